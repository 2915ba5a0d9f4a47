"""Nothing crosses a namespace: through every tool, resource and error, a foreign id is one that never existed."""

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp.shared.exceptions import MCPError

from middleout_mcp.records import new_id
from tests.server.connect import ask, connected, new_app

SECRET_WORD = "Quetzalcoatl"  # what the foreign namespace talks about, and nobody else
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("remember", {"memories": [{"id": "ID", "text": "changed"}]}),
    ("remember", {"memories": [{"id": "ID", "pinned": True}]}),
    ("remember", {"used": ["ID"]}),
    ("remember", {"wrong": ["ID"]}),
    ("recall", {"query": SECRET_WORD, "used": ["ID"]}),
    ("recall", {"query": SECRET_WORD, "session": "ID"}),
    ("recall", {"query": SECRET_WORD, "cursor": "ID"}),
    ("recall", {"query": SECRET_WORD, "thread": "ID"}),
    ("open_episode", {"id": "ID"}),
    ("open_episode", {"thread": "ID"}),
    ("open_episode", {"id": "context", "thread": "ID"}),
    *(
        ("forget", {"ids": ["ID"], "action": action})
        for action in ("suppress", "demote", "expire", "archive", "redact", "erase", "restore")
    ),
    ("forget", {"ids": ["ID", "m_000000000"], "action": "merge"}),
    ("compress", {"target": ["ID"]}),
    ("compress", {"target": "thread:ID"}),
    ("compress", {"run_id": "ID"}),
]
RESOURCES = [
    "memory://memories/ID",
    "memory://episodes/ID",
    "memory://threads/ID/buffer",
    "memory://threads/ID/context",
]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A file in which another namespace has one of everything that has an id, and those ids."""
    home = tmp_path_factory.mktemp("shared")
    return home, anyio.run(_populate, home)


async def _populate(home: Path) -> list[str]:
    async with connected(new_app(home, namespace="theirs"), "auto") as client:
        turns = [{"role": "user", "text": f"{SECRET_WORD} flew over roof {n}."} for n in range(30)]
        told = await ask(client, "remember", messages=turns, thread=f"{SECRET_WORD} talk", session="their session")
        given_ = [f"{SECRET_WORD} is a name.", {"text": f"{SECRET_WORD} is kept.", "ref": "their-ref", "pinned": True}]
        stored = await ask(client, "remember", memories=given_)
        found = await ask(client, "recall", query=SECRET_WORD, limit=2)
        planned = await ask(client, "compress")
        stats = await ask(client, "open_episode", id="stats")
        episode = told["episode"]["id"]
        return [
            stored["results"][0]["id"],
            stored["results"][1]["id"],
            told["results"][0]["id"],
            episode,
            "g_" + episode.removeprefix("e_"),
            told["operation_id"],
            found["recall_id"],
            found["cursor"],
            planned["run_id"],
            stats["details"]["session"]["id"],
            "their session",
            f"{SECRET_WORD} talk",
        ]


def unknown_like(foreign_id: str) -> str:
    """An id of the same kind that never existed."""
    prefix, _, rest = foreign_id.partition("_")
    return new_id(prefix) if rest and prefix in ("m", "e", "g", "op", "r", "run", "s") else "never heard of it"


async def _answer(client: Client, tool: str, arguments: dict[str, Any], target: str) -> str:
    """What the call answers, with the id and everything random about an answer taken out."""
    given_ = json.loads(json.dumps(arguments).replace("ID", target))
    result = await client.call_tool(tool, given_)
    said = json.dumps([result.is_error, result.structured_content, [block.text for block in result.content]])
    return _anonymous(said, target)


def _anonymous(said: str, target: str) -> str:
    said = said.replace(target, "ID")
    return re.sub(r"\b(r|run|op)_[0-9a-z]{9}\b|stored [0-9a-f]{8}", "RANDOM", said)


async def _compare(home: Path, tool: str, arguments: dict[str, Any], target: str) -> None:
    async with connected(new_app(home, namespace="ours"), "auto") as client:
        of_foreign = await _answer(client, tool, arguments, target)
        of_unknown = await _answer(client, tool, arguments, unknown_like(target))
    assert of_foreign == of_unknown
    assert SECRET_WORD not in of_foreign.replace(SECRET_WORD + " talk", "")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(call=st.sampled_from(CALLS), which=st.integers(0, 11))
def test_a_foreign_id_is_answered_like_one_that_never_existed(
    foreign: tuple[Path, list[str]], call: tuple[str, dict[str, Any]], which: int
) -> None:
    home, ids = foreign
    anyio.run(_compare, home, *call, ids[which])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(resource=st.sampled_from(RESOURCES), which=st.integers(0, 11))
def test_a_foreign_resource_is_answered_like_one_that_never_existed(
    foreign: tuple[Path, list[str]], resource: str, which: int
) -> None:
    home, ids = foreign

    async def compare() -> None:
        async with connected(new_app(home, namespace="ours"), "auto") as client:
            said = []
            for target in (ids[which], unknown_like(ids[which])):
                place = target.replace(" ", "%20")
                with pytest.raises(MCPError) as error:
                    await client.read_resource(resource.replace("ID", place))
                said.append(_anonymous(str(error.value).replace(place, "ID"), target))
            assert said[0] == said[1]

    anyio.run(compare)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.sampled_from([SECRET_WORD, f"{SECRET_WORD} roof 7", None]),
    include=st.lists(st.sampled_from(["archived", "expired", "superseded", "below_floor"]), unique=True),
    own=st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cf")), min_size=1, max_size=40),
)
def test_no_recall_listing_count_or_candidate_shows_anything_foreign(
    foreign: tuple[Path, list[str]], query: str | None, include: list[str], own: str
) -> None:
    home, ids = foreign

    async def look() -> None:
        async with connected(new_app(home, namespace="ours"), "auto") as client:
            await client.call_tool("remember", {"memories": [f"ours: {own} x"]})
            query_ = {} if query is None else {"query": query}
            answers = [
                await ask(client, "recall", **query_, include=include, limit=100, max_tokens=10_000),
                await ask(client, "forget", **query_),
                await ask(client, "open_episode"),
                await ask(client, "open_episode", id="context"),
                await ask(client, "open_episode", id="stats"),
                await ask(client, "compress"),
            ]
            said = json.dumps(answers)
            assert SECRET_WORD not in said
            assert not [target for target in ids if target in said]
            assert answers[4]["details"]["memories"]["turns"] == 0

    anyio.run(look)


def test_a_granted_namespace_is_read_and_never_written(foreign: tuple[Path, list[str]]) -> None:
    home, ids = foreign

    async def look() -> None:
        async with connected(new_app(home, namespace="ours", read_namespaces=("theirs",)), "auto") as client:
            found = await ask(client, "recall", query=f"{SECRET_WORD} is a name")
            assert ids[0] in [item["id"] for item in found["items"]]
            for tool, arguments in (
                ("forget", {"ids": [ids[0]], "action": "erase"}),
                ("remember", {"memories": [{"id": ids[0], "text": "changed"}]}),
            ):
                assert (await client.call_tool(tool, arguments)).is_error
            assert (await ask(client, "open_episode", id=ids[0]))["text"] == f"{SECRET_WORD} is a name."

    anyio.run(look)
