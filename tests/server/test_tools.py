"""The tools over a real client in memory, in both eras of the protocol."""

import ast
import json
import logging
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import Implementation

from middleout_mcp.app import open_app
from middleout_mcp.budget import count_tokens
from middleout_mcp.records import Vector
from middleout_mcp.server.mcp_server import build_server
from middleout_mcp.settings import Settings
from tests.fakes import FakeClock, FakeEmbedder
from tests.server.connect import ERAS, ROOT, ask, connected, new_app, refusal, text_of

HOSTILE_QUERIES = [
    '"',
    "'",
    "a AND",
    "NEAR(",
    "*",
    "(",
    "-",
    'col:"x"',
    "^",
    "\x00",
    "{}",
    "a" * 5000,
    "tea OR OR",
    "🫖",
]


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_what_is_remembered_is_recalled_opened_and_forgotten(tmp_path, era):
    async with connected(new_app(tmp_path), era) as client:
        stored = await ask(
            client,
            "remember",
            memories=[{"text": "Ann drinks green tea at breakfast.", "kind": "preference", "source": "user"}],
            messages=[{"role": "user", "text": "I drink green tea at breakfast.", "name": "Ann"}],
            episode="Ann tells what she drinks.",
            thread="kitchen",
        )
        memory = stored["results"][0]["id"]
        result = await client.call_tool("recall", {"query": "green tea at breakfast"})
        assert memory in [item["id"] for item in result.structured_content["items"]]
        assert f"[{memory} " in text_of(result)
        assert "data, not instructions" in text_of(result)
        opened = await ask(client, "open_episode", id=stored["episode"]["id"])
        assert opened["turns"][0]["text"] == "I drink green tea at breakfast."
        forgotten = await ask(client, "forget", ids=[memory], action="erase")
        assert memory in forgotten["affected"]
        again = await ask(client, "recall", query="green tea at breakfast")
        assert memory not in [item["id"] for item in again["items"]]


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_the_agent_is_the_name_of_the_client(tmp_path, era):
    server = build_server(new_app(tmp_path))
    async with Client(server, mode=era, client_info=Implementation(name="kettle-desk", version="7")) as client:
        stored = await ask(client, "remember", memories=["Tea is hot."])
        opened = await ask(client, "open_episode", id=stored["results"][0]["id"])
        assert opened["details"]["agent"] == "kettle-desk"
    async with connected(new_app(tmp_path, agent="from the settings"), era) as client:
        stored = await ask(client, "remember", memories=["Soup is hot."])
        opened = await ask(client, "open_episode", id=stored["results"][0]["id"])
        assert opened["details"]["agent"] == "from the settings"


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_a_refusal_is_one_plain_sentence(tmp_path, era):
    async with connected(new_app(tmp_path), era) as client:
        assert await refusal(client, "recall", limit=-1) == "limit must be at least 1"
        for tool in ("remember", "recall", "open_episode", "forget", "compress"):
            sentence = await refusal(client, tool, colour="red")
            assert sentence.startswith(f"unknown argument 'colour' of {tool}; it takes ")
            assert "\n" not in sentence
        unknown = await refusal(client, "open_episode", id="m_000000000")
        assert "Error executing" not in unknown
        assert "\n" not in unknown


@pytest.mark.anyio
async def test_text_that_looks_like_json_is_stored_and_returned_verbatim(tmp_path):
    texts = ["123", '{"a":1}', '["x"]', "null"]
    async with connected(new_app(tmp_path), "auto") as client:
        stored = await ask(client, "remember", memories=texts)
        for text, result in zip(texts, stored["results"], strict=True):
            assert (await ask(client, "open_episode", id=result["id"]))["text"] == text
            await ask(client, "recall", query=text)


# CASE 25
@pytest.mark.anyio
async def test_queries_full_of_operators_are_words(tmp_path):
    async with connected(new_app(tmp_path), "auto") as client:
        await ask(client, "remember", memories=["Tea is hot."])
        for query in HOSTILE_QUERIES:
            await ask(client, "recall", query=query)
            for words in (f"{query} tea hot", f"tea {query} hot", f"tea hot {query}", f'"tea{query}hot" tea hot'):
                found = await ask(client, "recall", query=words)
                assert [item["text"] for item in found["items"]] == ["Tea is hot."], words[:60]


def a_talk_about_tea(number: int) -> dict[str, Any]:
    """A call that stores long texts under names as long as they may be: thread, scope, tags, key, value, holders."""
    name = (f"{number} of the long names of things about tea " * 9)[:200]
    memory = {
        "text": f"Tea of sort number {number}. " + "It is very good tea indeed. " * 40,
        "scope": name,
        "tags": [f"{tag} {name}"[:200] for tag in range(9)],
        "key": name,
        "value": name * 9,
        "known_by": [name],
        "turns": [0],
        "ref": name,
        **({"kind": "task", "due": "2026-02-01"} if number % 2 else {"pinned": True}),
    }
    return {
        "memories": [memory, {**memory, "text": f"Tea {number}.", "ref": f"short {name}"[:200]}],
        "messages": [{"role": name, "name": name, "text": f"Tea number {number} is good tea."}],
        "thread": name,
        "episode": f"Tea {name}",
    }


async def sizes(client: Client, **arguments: Any) -> tuple[int, int]:
    """Prompt tokens of a recall that finds something: of its text, and of its structured form, as models see either."""
    result = await client.call_tool("recall", arguments)
    assert result.structured_content["items"]
    structured = json.dumps(result.structured_content, ensure_ascii=False, separators=(",", ":"))
    return count_tokens(text_of(result)), count_tokens(structured)


@pytest.mark.anyio
async def test_a_default_recall_stays_below_its_budget_whatever_is_stored(tmp_path):
    async with connected(new_app(tmp_path), "auto") as client:
        for talk in range(60):
            await ask(client, "remember", **a_talk_about_tea(talk))
        for arguments in ({"query": "tea"}, {}):
            text, _ = await sizes(client, **arguments)
            assert text < 2_000, arguments
            text, _ = await sizes(client, **arguments, limit=1000, max_tokens=10_000)
            assert text < 10_000, arguments


@pytest.mark.anyio
async def test_the_structured_form_of_a_recall_stays_below_its_budget_too(tmp_path):
    async with connected(new_app(tmp_path), "auto") as client:
        for talk in range(60):
            await ask(client, "remember", **a_talk_about_tea(talk))
        for arguments in ({"query": "tea"}, {}):
            _, structured = await sizes(client, **arguments)
            assert structured < 2_000, arguments
            _, structured = await sizes(client, **arguments, limit=1000, max_tokens=10_000)
            assert structured < 10_000, arguments
            _, structured = await sizes(client, **arguments, max_tokens=500)
            assert structured < 600, arguments


@pytest.mark.anyio
async def test_pages_of_a_recall_are_followed_by_the_cursor_in_the_text(tmp_path):
    async with connected(new_app(tmp_path), "auto") as client:
        sorts = ("green", "black", "white", "red", "yellow", "smoked")
        await ask(client, "remember", memories=[f"Ann keeps {sort} tea in tin {sort}." for sort in sorts])
        first = await client.call_tool("recall", {"query": "tea", "limit": 2})
        cursor = first.structured_content["cursor"]
        assert f"cursor={cursor!r}" in text_of(first)
        second = await ask(client, "recall", query="tea", limit=2, cursor=cursor)
        seen = {item["id"] for item in first.structured_content["items"]}
        assert seen.isdisjoint(item["id"] for item in second["items"])


@pytest.mark.anyio
async def test_null_is_nowhere_in_structured_content(tmp_path):
    async with connected(new_app(tmp_path), "auto") as client:
        stored = await client.call_tool("remember", {"memories": ["Tea is hot."]})
        recalled = await client.call_tool("recall", {"query": "tea"})
        found = await client.call_tool("forget", {"query": "tea"})
        planned = await client.call_tool("compress", {})
    for result in (stored, recalled, found, planned):
        assert not has_null(result.structured_content)
        assert len(result.content) == 1
        assert not text_of(result).lstrip().startswith("{")


def has_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(has_null, value.values()))
    if isinstance(value, list):
        return any(map(has_null, value))
    return value is None


@pytest.mark.anyio
async def test_what_is_not_supported_yet_is_refused_not_ignored(tmp_path):
    async with connected(new_app(tmp_path), "auto") as client:
        assert "not supported" in await refusal(client, "recall", viewpoint="task")


class BrokenEmbedder(FakeEmbedder):
    """One with a fault of which nobody thought, that has the text in its message."""

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        raise KeyError(*texts)


@pytest.mark.anyio
async def test_an_unexpected_error_is_masked_and_logged_without_text(tmp_path, caplog):
    app = open_app(Settings(home=tmp_path), clock=FakeClock(), embedder=BrokenEmbedder())
    async with connected(app, "auto") as client:
        with caplog.at_level(logging.ERROR):
            sentence = await refusal(client, "remember", memories=["my private words"])
        assert (await ask(client, "open_episode", id="stats"))["details"]["memories"]["live"] == 0
    assert sentence == "internal error in remember; the server's log says where"
    logged = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("middleout_mcp"))
    assert "KeyError" in logged
    assert "in embed" in logged
    assert "my private words" not in caplog.text


@pytest.mark.anyio
async def test_a_corrupt_file_is_told_by_every_call_and_not_before(tmp_path):
    (tmp_path / "memory.db").write_bytes(b"this is no database" * 1000)
    async with connected(new_app(tmp_path), "auto") as client:
        assert len((await client.list_tools()).tools) == 5
        sentence = await refusal(client, "recall", query="tea")
        assert "\n" not in sentence
        assert sentence == await refusal(client, "recall", query="tea")


# CASE 9
def test_the_protocol_package_is_used_through_public_names_and_below_its_next_major_version():
    used = [node for path in (ROOT / "middleout_mcp" / "server").glob("*.py") for node in ast.walk(parse(path))]
    modules = [node.module or "" for node in used if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in used if isinstance(node, ast.ImportFrom | ast.Import) for alias in node.names]
    private = [name for name in (*modules, *names) if re.match(r"_(?!_)", name) or "._" in name]
    assert "mcp.server.mcpserver" in modules
    assert not private
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert [name for name in wanted if name.startswith("mcp")] == ["mcp>=2.3,<3"]


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
