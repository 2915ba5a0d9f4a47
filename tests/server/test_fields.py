"""Every field that `remember` takes is what `open_episode` shows, in both eras."""

from pathlib import Path
from typing import Any

import pytest

from middleout_mcp.memory.contract import MemoryIn, TurnIn
from tests.server.connect import ERAS, ask, connected, new_app

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("era", ERAS)]
TURNS = [
    {
        "role": "user",
        "text": "  Paint the fence —\n\tgreen, please.\n",
        "at": "2025-12-30T10:00:00+01:00",
        "name": "Ann Zażółć",
        "present": ["Ann Zażółć", "Bob"],
        "data": {"mood": "calm", "n": [1, 2.5, None, True], "": {"deep": []}},
    },
    {
        "role": "assistant",
        "text": "Green it is.",
        "at": "2025-12-30T09:00:01Z",
        "name": "Clerk",
        "data": [0, "", False],
    },
    {"role": "tool", "text": "Paint is in stock.", "at": "2025-12-31", "present": [], "data": "4 tins"},
]
TASK = {
    "text": "The fence is to be painted\n  green.",
    "kind": "task",
    "source": "user",
    "confidence": 0.83,
    "importance": 0.71,
    "emotional_weight": 0.4,
    "tags": ["garden", "Zażółć"],
    "key": "fence_colour",
    "value": "green, RAL 6018",
    "scope": "house",
    "known_by": ["Ann", "Bob>Ann"],
    "turns": [2, 0],
    "expires": "2026-06-01T12:00:00Z",
    "privacy": "private",
    "at": "2025-12-30T09:00:00Z",
    "state": "done",
    "due": "2026-02-03T04:05:06Z",
    "pinned": True,
    "ref": "crm/42?x=y",
}
"""A memory with every field, and with no value that a default would give it as well."""


async def opened(client: Any, memory_id: str) -> dict[str, Any]:
    """A memory's text, item and details, together under the names that `remember` takes."""
    shown = await ask(client, "open_episode", id=memory_id)
    assert shown["type"] == "memory"
    return {"text": shown["text"], **shown["details"]["record"], **shown["details"]}


async def test_every_field_of_a_memory_is_shown_as_it_was_given(tmp_path: Path, era: str) -> None:
    assert {"id", *TASK} == set(MemoryIn.model_fields)
    async with connected(new_app(tmp_path), era) as client:
        before = await ask(client, "remember", messages=TURNS[:1], thread="fence")
        told = await ask(client, "remember", memories=[TASK], messages=TURNS, thread="fence")
        memory_id = told["results"][0]["id"]
        shown = await opened(client, memory_id)
        assert {name: shown[name] for name in TASK} == {**TASK, "turns": [1, 3]}  # by their numbers in the thread
        assert shown["thread"] == "fence"
        assert told["episode"]["id"] == shown["episode_id"]
        assert (before["episode"]["thread"], shown["trust"], shown["status"]) == ("fence", "user", "live")


async def test_every_field_of_a_message_is_shown_as_it_was_given(tmp_path: Path, era: str) -> None:
    assert set().union(*TURNS) == set(TurnIn.model_fields)
    async with connected(new_app(tmp_path), era) as client:
        told = await ask(client, "remember", messages=TURNS, thread="fence", episode="Ann wants it green.")
        shown = await ask(client, "open_episode", id=told["episode"]["id"])
        assert shown["turns"] == [
            {"seq": 1, "role": "user", "name": "Ann Zażółć", "at": "2025-12-30T09:00:00Z", "text": TURNS[0]["text"]},
            {"seq": 2, "role": "assistant", "name": "Clerk", "at": "2025-12-30T09:00:01Z", "text": "Green it is."},
            {"seq": 3, "role": "tool", "at": "2025-12-31T00:00:00Z", "text": "Paint is in stock."},
        ]
        assert shown["details"]["data"] == {str(number): turn["data"] for number, turn in enumerate(TURNS, 1)}
        assert shown["line"] == "Ann wants it green."
        assert (shown["details"]["thread"], shown["details"]["start"], shown["details"]["end"]) == (
            "fence",
            "2025-12-30T09:00:00Z",
            "2025-12-31T00:00:00Z",
        )


@pytest.mark.parametrize(
    ("field", "given", "expected"),
    [
        *(("kind", kind, kind) for kind in ("event", "fact", "preference", "decision", "task", "error")),
        *(("source", source, source) for source in ("user", "agent", "import")),
        *(("privacy", privacy, privacy) for privacy in ("normal", "private")),
        *(("state", state, state) for state in ("open", "done", "dropped")),
        *((number, 0, 0) for number in ("confidence", "importance", "emotional_weight")),
        *((number, 1, 1) for number in ("confidence", "importance", "emotional_weight")),
        ("expires", "session", "session"),
        ("expires", "P1DT2H", "2026-01-02T02:00:00Z"),
        ("at", "yesterday", "2025-12-31T00:00:00Z"),
        ("due", "in 2 days", "2026-01-03T00:00:00Z"),
        ("pinned", False, None),
        ("tags", [], None),
        ("known_by", [], []),  # nobody knows it, which is not the same as no list
        ("known_by", ["nobody but me"], ["nobody but me"]),
        ("ref", "m²/①", "m²/①"),
        ("value", "x²", "x²"),
    ],
)
async def test_a_field_alone_is_shown_as_it_was_given(
    tmp_path: Path, era: str, field: str, given: Any, expected: Any
) -> None:
    async with connected(new_app(tmp_path), era) as client:
        told = await ask(client, "remember", memories=[{"text": "The fence is green.", field: given}])
        assert (await opened(client, told["results"][0]["id"])).get(field) == expected


async def test_a_memory_that_is_shown_whole_is_not_marked_cut(tmp_path: Path, era: str) -> None:
    async with connected(new_app(tmp_path), era) as client:
        told = await ask(client, "remember", memories=["The fence is green."])
        assert (await opened(client, told["results"][0]["id"]))["marks"] == ["weak"]


async def test_every_field_can_be_changed_by_id_and_is_shown_as_changed(tmp_path: Path, era: str) -> None:
    changed = {name: given for name, given in TASK.items() if name not in ("turns", "ref", "source")}
    async with connected(new_app(tmp_path), era) as client:
        told = await ask(client, "remember", memories=["A fence."])
        memory_id = told["results"][0]["id"]
        again = await ask(client, "remember", memories=[{"id": memory_id, **changed}])
        assert again["results"][0]["actions"] == ["updated"]
        shown = await opened(client, memory_id)
        assert {name: shown[name] for name in changed} == changed
        assert [old["text"] for old in shown["versions"]] == ["A fence."]
