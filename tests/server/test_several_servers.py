"""Four server processes on one file, killed and started again in between, with their schedulers at work: every
acknowledged memory is there, what was erased is gone, no error reaches a client, and no job is done twice.
"""

import json
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from middleout_mcp.adapters.sqlite import audit, connection
from middleout_mcp.adapters.system_clock import SystemClock
from middleout_mcp.app import App, open_app
from middleout_mcp.jobs.scheduler import Scheduler
from middleout_mcp.jobs.upkeep import JOBS
from middleout_mcp.memory.contract import RememberIn, TurnIn
from middleout_mcp.ports import JobState
from middleout_mcp.records import Filter, Kind
from middleout_mcp.settings import Settings
from tests.fakes import FakeClock
from tests.server.several import Shared, run_all

pytestmark = pytest.mark.anyio
SERVERS = 4


async def prepare(home: Path) -> None:
    """More than 200 memories of old sessions, so that compression is due, and every job due for two days, so that
    calls that never rest do not hold it up.
    """
    clock = FakeClock()
    app = open_app(Settings(home=home, embedder="minilm-int8"), clock=clock)
    async with app.running(scheduled=False):
        caller = app.caller("test", "test")
        for day in range(12):
            texts = [
                f"On day {day} Ann moved lamp {step} of {day} to room {step} at {step}:30, as decided."
                for step in range(20)
            ]
            turns = [TurnIn(role="user", text=text) for text in texts]
            await app.remember(caller, RememberIn(messages=turns, thread=f"day {day}"))
            clock.advance(hours=2)
        await app.settled()
        await make_due(app)


async def make_due(app: App) -> None:
    control = (await app.parts()).store.control
    now = SystemClock().now()
    for job in JOBS:
        data = {"default": {"at": now.isoformat(), "live": 0}} if job.name == "compression" else {}
        await control.save_job(JobState(name=job.name, next_run=now - timedelta(days=2), data=data))


async def check(home: Path, shared: Shared) -> None:
    """What the file holds in the end, once what was under way is done."""
    app = open_app(Settings(home=home))
    async with app.running(scheduled=False):
        parts = await app.parts()
        clock = FakeClock(SystemClock().now() + timedelta(hours=1))
        scheduler = Scheduler(parts.__class__(**{**_fields(parts), "clock": clock}), JOBS)
        clock.advance(hours=2)
        for _ in range(1000):
            if not await scheduler.tick():
                break
        await parts.store.memories.finish_erasures()
        grant = app.caller("test", "test").grant
        stored = {memory.id: memory.text for memory in await parts.store.memories.get(grant, list(shared.stored))}
        assert {i: t for i, t in shared.stored.items() if i not in shared.touched}.items() <= stored.items()
        assert await parts.store.memories.get(grant, list(shared.erased)) == []
        every = Filter(now=clock.now(), kinds=(Kind.SUMMARY,), statuses=("live", "archived"))
        summaries = await parts.store.memories.find(grant, every, limit=10_000)
        live = [member for summary in summaries if summary.status == "live" for member in summary.parents]
        assert len(live) == len(set(live))  # no memory is in two summaries
        for status in ("running", "planned"):
            left = [run for run in await parts.store.control.runs(grant, status) if status == "running"]
            assert left == []
        assert (await parts.store.memories.count(grant))["pending"] == 0
        assert await parts.store.control.checkpoint()
    plain = connection.connect(home / "memory.db", writing=False, synchronous="full")
    assert audit.first_fault(plain, home) is None
    plain.close()


def _fields(parts: Any) -> dict[str, Any]:
    return {name: getattr(parts, name) for name in parts.__dataclass_fields__}


def check_rows(home: Path, shared: Shared) -> list[str]:
    """Row, vector and index entry agree; nothing erased is left in any file. Returns the jobs that were done."""
    with sqlite3.connect(home / "memory.db") as rows:

        def column(query: str) -> list[Any]:
            return [row[0] for row in rows.execute(query)]

        assert column("PRAGMA integrity_check") == ["ok"]
        assert rows.execute("PRAGMA foreign_key_check").fetchall() == []
        (generation,) = column("SELECT generation FROM embedding")
        ids = column("SELECT n FROM memory ORDER BY n")
        assert column(f"SELECT rowid FROM vector_{generation}_rowids ORDER BY 1") == ids
        assert column("SELECT id FROM full_text_docsize ORDER BY 1") == ids
        marked = [
            m for listed in column("SELECT memory_ids FROM operation WHERE kind = 'expire'") for m in json.loads(listed)
        ]
        assert len(marked) == len(set(marked))  # nothing was marked twice
        did = column("SELECT name FROM job WHERE last_run IS NOT NULL AND last_error IS NULL")
    rows.close()
    everything = b"".join(path.read_bytes() for path in home.iterdir() if path.is_file())
    for text in shared.erased.values():
        assert text.encode() not in everything
    return did


async def live_together(home: Path, seconds: float, least: int) -> Shared:
    await prepare(home)
    shared = run_all(home, SERVERS, seconds, least)
    assert shared.errors == []
    await check(home, shared)
    did = check_rows(home, shared)
    assert {"compression", "expiry"} <= set(did)  # a back-fill only where no remembering was faster
    return shared


async def test_four_servers_with_kills_in_between_lose_nothing(tmp_path: Path) -> None:
    shared = await live_together(tmp_path, 12, 100)
    assert shared.kills > 0
    assert len(shared.stored) > SERVERS


@pytest.mark.slow
async def test_four_servers_for_a_minute(tmp_path: Path) -> None:
    shared = await live_together(tmp_path, 60, 500)
    assert shared.kills > SERVERS
    assert shared.erased
