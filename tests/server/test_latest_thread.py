"""Whose conversation `memory://buffer` and a context without a thread show: this connection's, else this agent's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client
from mcp.types import Implementation

from middleout_mcp.app import App
from middleout_mcp.server.mcp_server import build_server
from tests.fakes import FakeClock
from tests.server.connect import ERAS, ask, new_app

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("era", ERAS)]


@asynccontextmanager
async def connection(app: App, era: str, agent: str) -> AsyncIterator[Client]:
    """A connection of its own, as a client of that name."""
    async with Client(build_server(app), mode=era, client_info=Implementation(name=agent, version="1")) as client:
        yield client


async def file(app: App, client: Client, thread: str) -> None:
    """File a turn, at a time later than everything before."""
    clock = (await app.parts()).clock
    assert isinstance(clock, FakeClock)
    clock.advance(seconds=1)
    turn = {"role": "user", "text": f"This was said in {thread}."}
    await ask(client, "remember", messages=[turn], thread=thread)


async def shown(client: Client) -> str | None:
    """The thread that the resource shows, and with it the tool without an id and the context."""
    (content,) = (await client.read_resource("memory://buffer")).contents
    buffer = await ask(client, "open_episode")
    context = await ask(client, "open_episode", id="context")
    assert buffer.get("details") == context.get("details")
    if "details" not in buffer:
        assert "No conversation of this client was filed yet" in content.text
        return None
    thread: str = buffer["details"]["thread"]
    assert f"thread: {thread}\n" in content.text
    assert {turn["text"] for turn in context["turns"]} == {f"This was said in {thread}."}
    return thread


async def test_each_connection_sees_what_it_filed_last_itself(tmp_path: Path, era: str) -> None:
    app = new_app(tmp_path)
    async with (
        connection(app, era, "ann") as one,
        connection(app, era, "ann") as other,
        connection(app, era, "bob") as bob,
    ):
        assert [await shown(client) for client in (one, other, bob)] == [None, None, None]
        await file(app, one, "kitchen")
        assert [await shown(client) for client in (one, other, bob)] == ["kitchen", "kitchen", None]
        await file(app, other, "garden")
        assert [await shown(client) for client in (one, other, bob)] == ["kitchen", "garden", None]
        await file(app, bob, "cellar")
        assert [await shown(client) for client in (one, other, bob)] == ["kitchen", "garden", "cellar"]
        await file(app, one, "attic")
        assert [await shown(client) for client in (one, other, bob)] == ["attic", "garden", "cellar"]
        async with connection(app, era, "ann") as third, connection(app, era, "cleo") as cleo:
            assert [await shown(client) for client in (third, cleo)] == ["attic", None]
        await ask(one, "remember", session="a new session")  # the connection is the same
        assert await shown(one) == "attic"


async def test_after_a_restart_it_is_what_the_same_agent_filed_last(tmp_path: Path, era: str) -> None:
    app = new_app(tmp_path)
    async with connection(app, era, "ann") as ann, connection(app, era, "bob") as bob:
        await file(app, ann, "kitchen")
        await file(app, bob, "cellar")
        await file(app, ann, "garden")
        await file(app, bob, "roof")
    app = new_app(tmp_path)
    async with (
        connection(app, era, "ann") as ann,
        connection(app, era, "bob") as bob,
        connection(app, era, "cleo") as cleo,
    ):
        assert [await shown(client) for client in (ann, bob, cleo)] == ["garden", "roof", None]


async def test_a_thread_whose_last_stretch_was_erased_is_not_shown_as_the_latest(tmp_path: Path, era: str) -> None:
    app = new_app(tmp_path)
    async with connection(app, era, "ann") as ann:
        await file(app, ann, "kitchen")
        await file(app, ann, "garden")
        buffer = await ask(ann, "open_episode", thread="garden", visible_from="2")
        await ask(ann, "forget", ids=[buffer["buffer"][0]["id"]], action="erase")
        assert await shown(ann) == "kitchen"
