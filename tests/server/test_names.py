"""Names, whoever gives them: the client's own, roles, speakers, holders, threads, sessions. Nothing secret is kept."""

from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import Implementation

from middleout_mcp.server.mcp_server import build_server
from tests.server.connect import ERAS, ask, new_app, refusal

pytestmark = pytest.mark.anyio

TOKEN = "ghp_" + "Zq8Lw3Rt6Yb1Nc9Vx4Hd" + "7Kf2Jm5Gs0PaQe8U"  # made up, and in parts for scanners that read this file
PRIVATE = "xylophone"
SAID = {"role": "user", "text": "The okapi sleeps."}
NAMED: list[dict[str, Any]] = [
    {"messages": [{**SAID, "role": "NAME"}]},
    {"messages": [{**SAID, "name": "NAME"}]},
    {"messages": [{**SAID, "present": ["Ann", "NAME"]}]},
    {"messages": [SAID], "thread": "NAME"},
    {"messages": [SAID], "session": "NAME"},
    {"memories": [{"text": "The okapi wakes.", "kind": "NAME"}]},
    {"memories": [{"text": "The okapi wakes.", "key": "NAME"}]},
    {"memories": [{"text": "The okapi wakes.", "scope": "NAME"}]},
    {"memories": [{"text": "The okapi wakes.", "tags": ["NAME"]}]},
    {"memories": [{"text": "The okapi wakes.", "known_by": ["NAME"]}]},
    {"memories": [{"text": "The okapi wakes.", "ref": "NAME"}]},
]


def with_name(value: Any, name: str) -> Any:
    """The arguments with `name` in the place of NAME."""
    if isinstance(value, dict):
        return {key: with_name(each, name) for key, each in value.items()}
    if isinstance(value, list):
        return [with_name(each, name) for each in value]
    return name if value == "NAME" else value


def on_disk(home: Path, text: str) -> bool:
    """Whether the bytes of a text are in any file of the store."""
    return any(text.lower().encode() in path.read_bytes().lower() for path in home.iterdir())


async def agent_of(home: Path, era: str, given: str, **settings: Any) -> str:
    """The agent that an operation is stored under when a client of that name remembers something."""
    client_info = Implementation(name=given, version="1")
    async with Client(build_server(new_app(home, **settings)), mode=era, client_info=client_info) as client:
        stored = await ask(client, "remember", memories=["The okapi sleeps."])
        opened = await ask(client, "open_episode", id=stored["operation_id"])
        return opened["details"]["agent"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("claude-code", "claude-code"),
        (f"ide {TOKEN}", "ide [redacted:github_token]"),
        (f"ide <private>{PRIVATE}</private>", "ide [private]"),
        ("two\nlines\r\n and \x1b[31mcolour\x00", "two lines and [31mcolour"),
        ("# heading\u202e\u200b", "heading"),
        ("ｆｕｌｌ ｗｉｄｔｈ", "full width"),
        ("long " * 100_000, ("long " * 20).strip()),
        ("", "unknown"),
        ("\u200b \n", "unknown"),
    ],
)
async def test_the_name_of_a_client_is_cleaned_and_screened_before_it_is_stored(tmp_path, era, given, stored):
    assert await agent_of(tmp_path, era, given) == stored
    assert not on_disk(tmp_path, TOKEN)
    assert not on_disk(tmp_path, PRIVATE)


async def test_the_agent_of_the_settings_is_screened_as_well(tmp_path):
    assert await agent_of(tmp_path, "auto", "ide", agent=f"desk {TOKEN}") == "desk [redacted:github_token]"
    assert not on_disk(tmp_path, TOKEN)


@pytest.mark.parametrize("arguments", NAMED)
async def test_a_name_with_a_secret_or_private_text_is_refused_and_nothing_of_it_is_stored(tmp_path, arguments):
    async with Client(build_server(new_app(tmp_path))) as client:
        for name in (
            TOKEN,
            f"Ann {TOKEN}",
            f"<private>{PRIVATE}</private>",
            f"Ann <private>{PRIVATE}",
            "ｇｈｐ" + TOKEN[3:],
        ):
            sentence = await refusal(client, "remember", **with_name(arguments, name))
            assert "secret or <private>" in sentence
            assert PRIVATE not in sentence and TOKEN[3:] not in sentence
    assert not on_disk(tmp_path, TOKEN[3:])
    assert not on_disk(tmp_path, PRIVATE)


@pytest.mark.parametrize("arguments", NAMED)
async def test_a_name_loses_its_controls_and_line_breaks(tmp_path, arguments):
    async with Client(build_server(new_app(tmp_path))) as client:
        await ask(client, "remember", **with_name(arguments, "zebra\x1b\x00\n\u202ecrossing\u2028now"))
    assert not on_disk(tmp_path, "zebra\x1b")
    assert not on_disk(tmp_path, "\u202e")
    assert not on_disk(tmp_path, "\u2028")
    assert on_disk(tmp_path, "zebra crossing now") or on_disk(tmp_path, "zebra_crossing_now")


async def test_a_session_is_found_by_the_name_it_was_given(tmp_path):
    async with Client(build_server(new_app(tmp_path))) as client:
        await ask(client, "remember", memories=["The okapi sleeps."], session="ｍonday\n talk")
        for name in ("ｍonday\n talk", "monday talk"):
            assert (await ask(client, "recall", query="okapi", session=name))["items"]
