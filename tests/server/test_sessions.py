"""The ends of a session (DESIGN §2) through the tools: what was kept for it surfaces until the last millisecond of it,
and from the next one on nowhere, neither for its own client nor for another process on the same file.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from mcp import Client

from middleout_mcp.app import App, open_app
from middleout_mcp.settings import Settings
from tests.fakes import NEW_YEAR, FakeClock, FakeEmbedder
from tests.server.connect import ask, connected

pytestmark = pytest.mark.anyio
MS = timedelta(milliseconds=1)
TEXT = "Answer in rhymes today."


@dataclass
class Room:
    """A client whose session is watched, and a client of another process on the same file, under one clock."""

    clock: FakeClock
    app: App
    client: Client
    other: Client

    async def seen(self) -> list[bool]:
        """Whether the memory surfaces for the other process and then for the session's own client, which thereby calls.

        Work in the background is waited for, as it is done within milliseconds while the clock here stands still.
        """
        await self.app.settled()
        answers = [await ask(client, "recall", query="rhymes today") for client in (self.other, self.client)]
        await self.app.settled()
        return [[item["text"] for item in answer["items"]] == [TEXT] for answer in answers]

    async def outside(self) -> bool:
        """Whether it surfaces for the other process, while the session's client is silent."""
        await self.app.settled()
        return bool((await ask(self.other, "recall", query="rhymes today"))["items"])

    async def session(self) -> str:
        """The id of the session that this very call belongs to."""
        return (await ask(self.client, "open_episode", id="stats"))["details"]["session"]["id"]


@asynccontextmanager
async def room(home: Path) -> AsyncIterator[Room]:
    """A room in which the session was just begun, under the name `first`, by keeping something for it."""
    clock = FakeClock()
    apps = [open_app(Settings(home=home), clock=clock, embedder=FakeEmbedder()) for _ in range(2)]
    async with AsyncExitStack() as stack:
        client, other = [await stack.enter_async_context(connected(app, "auto")) for app in apps]
        await ask(client, "remember", memories=[{"text": TEXT, "expires": "session"}], session="first")
        yield Room(clock, apps[0], client, other)


async def test_a_session_ends_thirty_minutes_after_its_last_call_and_any_call_counts(tmp_path: Path) -> None:
    async with room(tmp_path) as there:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: ask(there.client, "recall", query="something else"),
            lambda: ask(there.client, "open_episode", id="stats"),
            lambda: ask(there.client, "forget", query="something else"),
            lambda: ask(there.client, "compress"),
            lambda: there.client.read_resource("memory://stats"),
            lambda: ask(there.client, "remember", memories=["Something else."]),
        ]
        for call in calls:
            there.clock.advance(seconds=1)  # less than a minute after the call before
            await call()
            there.clock.advance(timedelta(minutes=30) - MS)
            assert await there.outside(), call
            await call()
        first = await there.session()
        there.clock.advance(timedelta(minutes=30))
        assert await there.seen() == [False, False]
        assert await there.session() != first


async def test_a_session_ends_after_eight_hours_however_busy(tmp_path: Path) -> None:
    async with room(tmp_path) as there:
        first = await there.session()
        while there.clock.now() < NEW_YEAR + timedelta(hours=7, minutes=40):
            there.clock.advance(minutes=20)
            assert await there.seen() == [True, True]
        there.clock.set(NEW_YEAR + timedelta(hours=8) - MS)
        assert await there.seen() == [True, True]
        assert await there.session() == first
        there.clock.advance(MS)
        assert await there.seen() == [False, False]
        assert await there.session() != first


async def test_a_session_ends_with_its_two_hundredth_turn(tmp_path: Path) -> None:
    turns = [{"role": "user", "text": f"Verse {number} is about bridges."} for number in range(200)]
    async with room(tmp_path) as there:
        first = await there.session()
        await ask(there.client, "remember", messages=turns[:150], thread="poem")
        await ask(there.client, "remember", messages=turns[150:199], thread="poem")
        assert await there.seen() == [True, True]
        assert await there.session() == first
        await ask(there.client, "remember", messages=turns[199:], thread="poem")
        assert await there.seen() == [False, False]
        assert await there.session() != first


@pytest.mark.parametrize("name", ["end", "second"])
async def test_a_session_ends_on_demand_and_under_a_new_name(tmp_path: Path, name: str) -> None:
    async with room(tmp_path) as there:
        first = await there.session()
        await ask(there.client, "remember", session="first")  # the same name is the same session
        assert await there.session() == first
        assert await there.seen() == [True, True]
        await ask(there.client, "remember", session=name)
        assert await there.seen() == [False, False]
        assert await there.session() != first


async def test_what_ended_while_the_clock_was_set_back_stays_ended_when_it_is_right_again(tmp_path: Path) -> None:
    async with room(tmp_path) as there:
        there.clock.advance(MS - timedelta(minutes=30))
        assert await there.seen() == [True, True]
        there.clock.advance(-MS)
        assert await there.seen() == [False, False]
        there.clock.set(NEW_YEAR)
        assert await there.seen() == [False, False]


async def test_a_server_that_leaves_ends_its_session(tmp_path: Path) -> None:
    clock = FakeClock()

    def app() -> App:
        return open_app(Settings(home=tmp_path), clock=clock, embedder=FakeEmbedder())

    async with connected(app(), "auto") as client:
        await ask(client, "remember", memories=[{"text": TEXT, "expires": "session"}])
        assert (await ask(client, "recall", query="rhymes today"))["items"]
    async with connected(app(), "auto") as client:
        assert (await ask(client, "recall", query="rhymes today"))["items"] == []
        shown = await ask(client, "recall", query="rhymes today", include=["expired"])
        assert [item["text"] for item in shown["items"]] == [TEXT]


async def test_a_session_that_was_only_named_can_be_searched_at_once(tmp_path: Path) -> None:
    async with room(tmp_path) as there:
        await ask(there.client, "remember", session="monday")
        assert (await ask(there.client, "recall", query="rhymes today", session="monday"))["items"] == []


async def test_what_lapsed_with_its_session_is_shown_as_expired(tmp_path: Path) -> None:
    async with room(tmp_path) as there:
        there.clock.advance(hours=1)
        for client in (there.other, there.client):
            shown = await ask(client, "recall", query="rhymes today", include=["expired"])
            assert [item["status"] for item in shown["items"]] == ["expired"]
            opened = await ask(client, "open_episode", id=shown["items"][0]["id"])
            assert opened["details"]["record"]["status"] == "expired"
