"""Nothing crosses a namespace: through every tool, resource, prompt and error, a foreign id is one that never existed.

So is every other name of something foreign: a thread, a session, a caller's own reference, a tag, a scope.
"""

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

from middleout_mcp.app import App
from middleout_mcp.records import Filter, Grant, Status, new_id
from tests.fakes import NEW_YEAR
from tests.server.connect import ask, connected, new_app

SECRET_WORD = "Quetzalcoatl"  # what the foreign namespace talks about, and nobody else
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("remember", {"memories": [{"id": "ID", "text": "changed"}]}),
    ("remember", {"memories": [{"id": "ID", "pinned": True}]}),
    ("remember", {"memories": [{"ref": "ID", "text": "our own"}]}),
    ("remember", {"memories": [{"ref": "ID", "text": "our own", "privacy": "private"}, {"text": "x", "tags": ["ID"]}]}),
    ("remember", {"messages": [{"role": "user", "text": "our own words"}], "thread": "ID", "session": "ID"}),
    ("remember", {"used": ["ID"]}),
    ("remember", {"wrong": ["ID"]}),
    ("recall", {"query": "ID"}),
    ("recall", {"query": f"what is {SECRET_WORD} ID", "include": ["archived", "expired", "superseded", "below_floor"]}),
    ("recall", {"query": SECRET_WORD, "tags": ["ID"]}),
    ("recall", {"scope": "ID"}),
    ("recall", {"tags": ["ID"]}),
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
    ("forget", {"ids": ["ID"], "action": "redact", "spans": [SECRET_WORD]}),
    ("forget", {"query": "ID", "action": "erase"}),
    ("forget", {"query": f"everything about {SECRET_WORD} in ID"}),
    ("compress", {"target": ["ID"]}),
    ("compress", {"target": "ID"}),
    ("compress", {"target": "thread:ID"}),
    ("compress", {"target": "tag:ID"}),
    ("compress", {"run_id": "ID"}),
    ("compress", {"run_id": "ID", "dry_run": False}),
    ("compress", {"run_id": "ID", "target": "cancel"}),
    ("compress", {"run_id": "ID", "summaries": [{"cluster": "c1", "text": "ours"}]}),
]
PROMPTS: list[tuple[str, dict[str, str]]] = [
    ("brief", {"scope": "ID"}),
    ("brief", {}),
    ("review", {}),
    ("save", {"thread": "ID"}),
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
        kept = {"text": f"{SECRET_WORD} is kept.", "pinned": True}
        named = {"ref": "their-ref", "tags": ["their tag"], "scope": "their scope", "known_by": ["their holder"]}
        given_ = [f"{SECRET_WORD} is a name.", kept | named]
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
            "their-ref",
            "their tag",
            "their scope",
            "their holder",
        ]


NAMES = 16  # as many as `_populate` returns


def unknown_like(foreign_id: str) -> str:
    """An id of the same kind that never existed."""
    prefix, _, rest = foreign_id.partition("_")
    return new_id(prefix) if rest and prefix in ("m", "e", "g", "op", "r", "run", "s") else "never heard of it"


async def _answer(client: Client, tool: str, arguments: dict[str, Any], target: str) -> str:
    """What the call answers, with the id and everything random about an answer taken out."""
    given_ = json.loads(json.dumps(arguments).replace("ID", target))
    if tool in dict(PROMPTS):
        (message,) = (await client.get_prompt(tool, given_)).messages
        return message.content.text
    result = await client.call_tool(tool, given_)
    structured = json.dumps([result.is_error, result.structured_content], ensure_ascii=False)
    return "\n".join([structured, *(block.text for block in result.content)])


def _anonymous(said: str, target: str) -> str:
    said = said.replace(target, "ID")
    return re.sub(r"\b(m|e|s|r|run|op)_[0-9a-z]{9}\b|stored [0-9a-f]{8}", "RANDOM", said)


async def _compare(home: Path, tool: str, arguments: dict[str, Any], target: str, ids: list[str]) -> None:
    """Make the call with the foreign and with an unknown name, each in a namespace of its own that is otherwise empty,
    so that what the one left there does not change the answer to the other.
    """
    answers = []
    for name in (target, unknown_like(target)):
        app = new_app(home, namespace=new_id("s"))
        async with connected(app, "auto") as client:
            before = await _theirs(app)
            said = await _answer(client, tool, arguments, name)
            await app.settled()
            assert await _theirs(app) == before
        asked = json.dumps(arguments)
        assert SECRET_WORD in asked or SECRET_WORD not in said.replace(name, "ID")
        assert not [each for each in ids if each in said.replace(name, "ID")]
        answers.append(_anonymous(said, name).replace(app.settings.namespace, "OURS"))
    assert answers[0] == answers[1]


async def _theirs(app: App) -> list[Any]:
    """Everything that the foreign namespace holds, uses and operations included."""
    store, grant = (await app.parts()).store, Grant.only("theirs")
    everything = Filter(now=NEW_YEAR, statuses=tuple(Status), sensitive=True, compressed=True, hidden=True)
    return [
        await store.memories.find(grant, everything, limit=1000),
        await store.journal.operations(grant, limit=1000),
        await store.threads.sessions(grant, limit=1000),
        [await store.control.runs(grant, status) for status in ("planned", "running", "cancelled", "awaiting")],
        dict(await store.memories.count(grant)),
    ]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(call=st.sampled_from([*CALLS, *PROMPTS]), which=st.integers(0, NAMES - 1))
def test_a_foreign_id_is_answered_like_one_that_never_existed(
    foreign: tuple[Path, list[str]], call: tuple[str, dict[str, Any]], which: int
) -> None:
    home, ids = foreign
    assert len(ids) == NAMES
    anyio.run(_compare, home, *call, ids[which], ids)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(resource=st.sampled_from(RESOURCES), which=st.integers(0, NAMES - 1))
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
def test_no_recall_listing_count_candidate_resource_or_prompt_shows_anything_foreign(
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
            for uri in ("memory://buffer", "memory://stats"):
                (content,) = (await client.read_resource(uri)).contents
                answers.append({uri: content.text})
            for prompt in ("brief", "review"):
                (message,) = (await client.get_prompt(prompt, {})).messages
                answers.append({prompt: message.content.text})
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
