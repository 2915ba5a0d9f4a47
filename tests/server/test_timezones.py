"""The setting `timezone` through the tools: naive times and words are read in it, answers are ISO 8601 UTC.

The clock stands half an hour after a midnight there, on a day on which the clocks change: the day before, in UTC, has
other bounds than in the zone, and the day itself has 23 or 25 hours.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from mcp import Client

from middleout_mcp.app import open_app
from middleout_mcp.settings import Settings
from middleout_mcp.times import to_iso
from tests.fakes import FakeClock, FakeEmbedder
from tests.server.connect import ask, connected, text_of

pytestmark = pytest.mark.anyio
MS = timedelta(milliseconds=1)
SPRING = "2026-03-28T23:30:00Z"  # 00:30 on 29 March in Berlin, whose clocks go forward at 01:00Z
AUTUMN = "2026-11-01T04:30:00Z"  # 00:30 on 1 November in New York, whose clocks go back at 06:00Z
BERLIN, NEW_YORK = ("Europe/Berlin", SPRING), ("America/New_York", AUTUMN)


@asynccontextmanager
async def client_in(home: Path, zone: str, now: str) -> AsyncIterator[tuple[Client, FakeClock]]:
    """A client of a server with that setting, at that time."""
    clock = FakeClock(datetime.fromisoformat(now))
    app = open_app(Settings(home=home, timezone=zone), clock=clock, embedder=FakeEmbedder())
    async with connected(app, "auto") as client:
        yield client, clock


async def kept(client: Client, **fields: Any) -> dict[str, Any]:
    """A memory as it opens right after it was stored: its item and its details."""
    stored = await ask(client, "remember", memories=[{"text": "Ann feeds the heron.", **fields}])
    opened = await ask(client, "open_episode", id=stored["results"][0]["id"])
    return {**opened["details"]["record"], **opened["details"]}


@pytest.mark.parametrize(
    ("place", "field", "given", "expected"),
    [
        (BERLIN, "at", "yesterday", "2026-03-27T23:00:00Z"),
        (BERLIN, "at", "2026-03-29T00:15", "2026-03-28T23:15:00Z"),
        (BERLIN, "at", "2026-03-28 23:59", "2026-03-28T22:59:00Z"),
        (BERLIN, "at", "2026-03-29T00:15+00:00", "2026-03-29T00:15:00Z"),
        (BERLIN, "due", "2026-03-29T09:00", "2026-03-29T07:00:00Z"),
        (BERLIN, "due", "2026-03-29T02:30", "2026-03-29T01:30:00Z"),  # an hour that is left out
        (BERLIN, "due", "tomorrow", "2026-03-29T22:00:00Z"),
        (BERLIN, "expires", "today", "2026-03-29T21:59:59.999Z"),
        (BERLIN, "expires", "2026-03-29T04:00", "2026-03-29T02:00:00Z"),
        (BERLIN, "expires", "PT24H", "2026-03-29T23:30:00Z"),
        (NEW_YORK, "at", "yesterday", "2026-10-31T04:00:00Z"),
        (NEW_YORK, "at", "2026-11-01T00:15", "2026-11-01T04:15:00Z"),
        (NEW_YORK, "due", "2026-11-01T01:30", "2026-11-01T05:30:00Z"),  # an hour that comes twice: its first time
        (NEW_YORK, "due", "2026-11-01T09:00", "2026-11-01T14:00:00Z"),
        (NEW_YORK, "due", "tomorrow", "2026-11-02T05:00:00Z"),
        (NEW_YORK, "expires", "2026-11-01", "2026-11-02T04:59:59.999Z"),
        (("UTC", SPRING), "at", "yesterday", "2026-03-27T00:00:00Z"),
        (("UTC", AUTUMN), "at", "2026-11-01T00:15", "2026-11-01T00:15:00Z"),
    ],
)
async def test_a_naive_time_or_a_word_is_kept_as_what_it_means_in_the_zone(
    tmp_path: Path, place: tuple[str, str], field: str, given: str, expected: str
) -> None:
    async with client_in(tmp_path, *place) as (client, _):
        assert (await kept(client, **{field: given}))[field] == expected


@pytest.mark.parametrize(
    ("place", "first", "last"),
    [
        (BERLIN, "2026-03-27T23:00:00Z", "2026-03-28T22:59:59.999Z"),
        (NEW_YORK, "2026-10-31T04:00:00Z", "2026-11-01T03:59:59.999Z"),
        (("UTC", SPRING), "2026-03-27T00:00:00Z", "2026-03-27T23:59:59.999Z"),
        (("America/New_York", SPRING), "2026-03-27T04:00:00Z", "2026-03-28T03:59:59.999Z"),
    ],
)
async def test_yesterday_as_a_bound_is_the_whole_day_of_the_zone(
    tmp_path: Path, place: tuple[str, str], first: str, last: str
) -> None:
    begins, ends = datetime.fromisoformat(first), datetime.fromisoformat(last)
    moments = [to_iso(moment) for moment in (begins - MS, begins, ends, ends + MS)]
    async with client_in(tmp_path, *place) as (client, _):
        notes = [{"text": f"Heron seen, note {n}.", "at": at} for n, at in enumerate(moments)]
        await ask(client, "remember", memories=notes)
        for bounds, expected in (
            ({"since": "yesterday", "until": "yesterday"}, moments[1:3]),
            ({"since": "yesterday"}, moments[1:]),
            ({"until": "yesterday"}, moments[:3]),
            ({"since": "today"}, moments[3:]),
        ):
            found = await ask(client, "recall", query="heron seen note", **bounds)
            assert sorted(item["at"] for item in found["items"]) == expected, bounds


@pytest.mark.parametrize(
    ("place", "ends"), [(BERLIN, "2026-03-29T21:59:59.999Z"), (NEW_YORK, "2026-11-02T04:59:59.999Z")]
)
async def test_what_expires_today_or_is_hidden_until_tomorrow_follows_the_midnight_of_the_zone(
    tmp_path: Path, place: tuple[str, str], ends: str
) -> None:
    async with client_in(tmp_path, *place) as (client, clock):
        await ask(client, "remember", memories=[{"text": "The heron nests.", "expires": "today"}])
        hidden = await ask(client, "remember", memories=["The heron sleeps."])
        await ask(
            client, "forget", ids=[hidden["results"][0]["id"]], action="suppress", until="tomorrow", reason="later"
        )

        async def seen() -> list[str]:
            return [item["text"] for item in (await ask(client, "recall", query="the heron"))["items"]]

        clock.set(datetime.fromisoformat(ends) - MS)
        assert await seen() == ["The heron nests."]
        clock.set(datetime.fromisoformat(ends) + MS)
        assert await seen() == ["The heron sleeps."]


@pytest.mark.parametrize(
    ("place", "said", "shown"),
    [(BERLIN, "2026-03-29T00:10", "2026-03-29 00:10"), (NEW_YORK, "2026-10-31T21:00", "2026-10-31 21:00")],
)
async def test_turns_are_dated_from_the_zone_answered_in_utc_and_shown_in_the_zone(
    tmp_path: Path, place: tuple[str, str], said: str, shown: str
) -> None:
    turn = {"role": "user", "text": "The heron came back to the pond.", "at": said}
    async with client_in(tmp_path, *place) as (client, _):
        stored = await ask(client, "remember", messages=[turn], thread="pond")
        opened = await client.call_tool("open_episode", {"id": stored["episode"]["id"]})
        recalled = await client.call_tool("recall", {"query": "heron pond"})
        at = to_iso(datetime.fromisoformat(said).replace(tzinfo=ZoneInfo(place[0])))
        assert stored["episode"]["start"] == stored["episode"]["end"] == at
        assert opened.structured_content["turns"][0]["at"] == at
        assert recalled.structured_content["items"][0]["at"] == at
        assert shown in text_of(recalled)
        assert f"(times: {place[0]})" in text_of(recalled)
