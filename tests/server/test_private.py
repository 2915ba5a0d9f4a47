"""Two agents of one namespace: what is private to the one never was, for the other."""

import json
import re
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client

from middleout_mcp.records import new_id
from tests.server.connect import ask, connected, new_app, refusal

pytestmark = pytest.mark.anyio
WORD = "Quetzalcoatl"  # what only Alice's private memories and reasons hold
PRIVATE = {"text": f"{WORD} flies at night.", "privacy": "private"}
CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("remember", {"memories": [{"id": "ID", "text": f"{WORD} flies at noon."}]}),
    ("remember", {"memories": [{"id": "ID", "pinned": True}]}),
    *(
        ("forget", {"ids": ["ID"], "action": action, "reason": f"{WORD} is why"})
        for action in ("suppress", "demote", "expire", "archive", "redact", "erase")
    ),
]


class Pair:
    """Alice and Bob, two clients of one namespace on one file."""

    def __init__(self, alice: Client, bob: Client) -> None:
        self.alice, self.bob = alice, bob


async def pair(stack: AsyncExitStack, home: Path) -> Pair:
    alice, bob = [
        await stack.enter_async_context(connected(new_app(home, agent=name), "auto")) for name in ("alice", "bob")
    ]
    return Pair(alice, bob)


async def told(client: Client, operation: str) -> list[str]:
    """All that the client is told of an operation, with what is random taken out."""
    answers = [
        await client.call_tool("open_episode", {"id": operation}),
        await client.call_tool("forget", {"ids": [operation], "action": "restore"}),
    ]
    return [str([answer.is_error, answer.content[0].text]).replace(operation, "ID") for answer in answers]


async def _hides_what_was_done(changes: list[tuple[str, dict[str, Any]]]) -> None:
    with TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            two = await pair(stack, Path(folder))
            before = (await ask(two.bob, "open_episode", id="stats"))["details"]["operations"]
            stored = await ask(two.alice, "remember", memories=[PRIVATE])
            memory_id = stored["results"][0]["id"]
            operations = [stored["operation_id"]]
            for tool, arguments in changes:
                given_ = json.loads(json.dumps(arguments).replace("ID", memory_id))
                answer = await two.alice.call_tool(tool, given_)
                operations += re.findall(r"op_[0-9a-z]{9}", json.dumps(answer.structured_content))
            unknown = await told(two.bob, new_id("op"))
            for operation in operations:
                assert await told(two.bob, operation) == unknown
            stats = await ask(two.bob, "open_episode", id="stats")
            assert stats["details"]["operations"] == before
            review = await two.bob.get_prompt("review")
            assert not [each for each in (*operations, memory_id, WORD) if each in str(review)]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(CHANGES), max_size=4))
def test_what_an_agent_did_to_its_private_memories_is_unknown_to_another(
    changes: list[tuple[str, dict[str, Any]]],
) -> None:
    anyio.run(_hides_what_was_done, changes)


async def test_an_operation_on_private_and_shared_memories_shows_the_shared_ones_alone(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        two = await pair(stack, tmp_path)
        stored = await ask(two.alice, "remember", memories=[PRIVATE, "The roof is red."])
        private, shared = (result["id"] for result in stored["results"])
        done = await ask(two.alice, "forget", ids=[private, shared], action="demote", reason=f"{WORD} is why")
        opened = await ask(two.bob, "open_episode", id=done["operation_id"])
        assert [each["id"] for each in opened["memories"]] == [shared]
        assert opened["details"]["memories"] == 1
        assert opened["details"]["counts"] == {"memories": 1, "episodes": 0}
        assert opened["details"]["undoable"] is False
        listed = (await ask(two.bob, "open_episode", id=shared))["details"]["operations"]
        assert [each["id"] for each in listed] == [done["operation_id"], stored["operation_id"]]
        assert WORD not in json.dumps([opened, listed])
        sentence = await refusal(two.bob, "forget", ids=[done["operation_id"]], action="restore")
        assert sentence == f"There is no operation '{done['operation_id']}' to undo."
        own = await ask(two.alice, "open_episode", id=done["operation_id"])
        assert own["details"]["reason"] == f"{WORD} is why"
        assert own["details"]["undoable"] is True
        assert private in (await ask(two.alice, "forget", ids=[done["operation_id"]], action="restore"))["affected"]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=4), st.booleans())
def test_erasing_a_shared_episode_leaves_what_is_private_to_another(private: list[bool], merged: bool) -> None:
    anyio.run(_leaves_private, private, merged)


async def _leaves_private(private: list[bool], merged: bool) -> None:
    with TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            two = await pair(stack, Path(folder))
            memories = [
                {"text": f"Note number {n} about roof {n}.", "turns": [0], **({"privacy": "private"} if hidden else {})}
                for n, hidden in enumerate(private)
            ]
            turns = [{"role": "user", "text": "All roofs of the town are red."}]
            filed = await ask(two.alice, "remember", memories=memories, messages=turns, thread="t")
            ids = [result["id"] for result in filed["results"]]
            kept = [memory_id for memory_id, hidden in zip(ids, private, strict=False) if hidden]
            shared = [memory_id for memory_id in ids if memory_id not in kept]
            if merged and kept and shared:
                await two.alice.call_tool("forget", {"ids": [kept[0], shared[0]], "action": "merge"})
            gone = await ask(two.bob, "forget", ids=[filed["episode"]["id"]], action="erase")
            assert not set(kept) & {*gone["affected"], *gone.get("derived", [])}
            for memory_id in kept:
                opened = await ask(two.alice, "open_episode", id=memory_id)
                assert opened["text"].startswith("Note number")
                assert "turns" not in opened["details"] and "episode_id" not in opened["details"]["record"]
            for memory_id in shared:
                assert "nothing" in await refusal(two.alice, "open_episode", id=memory_id)
