"""Kill −9 in the middle of applying a compression: of each cluster all or nothing, and another process goes on."""

import random
import subprocess
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from middleout_mcp.app import App
from middleout_mcp.jobs.upkeep import JOBS
from middleout_mcp.memory.contract import CompressIn, ForgetIn
from middleout_mcp.records import Caller, Kind, Memory, Status
from tests.fakes import FakeClock, FakeEmbedder
from tests.memory.compressing import converse, everything, hidden_behind_nothing, new_app, summaries
from tests.server.connect import child

pytestmark = pytest.mark.anyio
KILLS = 12
CONVERSATIONS = 40


def whole(every: dict[str, Memory]) -> int:
    """How many clusters are applied; each is checked to be so with all of its members, which no other has."""
    found = [memory for memory in every.values() if memory.kind is Kind.SUMMARY and memory.status is Status.LIVE]
    hidden = {memory.id: memory.summary_id for memory in every.values() if memory.summary_id is not None}
    assert hidden == {parent: summary.id for summary in found for parent in summary.parents}
    assert all(len(summary.parents) == 4 for summary in found)
    return len(found)


async def looked_at(home: Path, clock: FakeClock) -> dict[str, Memory]:
    app = new_app(home, clock)
    async with app.running(scheduled=False):
        return await everything(app, app.caller("test", "afterwards"))


def apply_and_be_killed(home: Path, run_id: str, dice: random.Random) -> None:
    """A server that goes on with the run, killed at any moment of it."""
    with child(home, MIDDLEOUT_EMBEDDER="none", MIDDLEOUT_ACTIVE_SESSIONS="1") as server:
        server.shake_hands()
        result = server.call("compress", run_id=run_id, dry_run=False)
        assert not result.get("isError"), result
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(dice.choice([0.0, 0.02, 0.1, 0.3]) * dice.random())
        server.process.kill()
        server.process.wait()


async def resume(app: App, caller: Caller, run_id: str, clock: FakeClock) -> None:
    """Let the scheduler's job work until the run is over."""
    parts = await app.parts()
    work = next(job.work for job in JOBS if job.name == "compression")
    data: dict[str, object] = {}
    for _ in range(10 * CONVERSATIONS):
        run = await parts.store.control.run(caller.grant, run_id)
        assert run is not None
        if run.status != "running":
            return
        await work(parts, data, clock.advance(seconds=90))
    raise AssertionError("the run does not end")


async def test_a_cluster_is_applied_whole_or_not_at_all_and_another_process_ends_the_run(tmp_path: Path) -> None:
    dice = random.Random(7)
    clock = FakeClock(datetime.now(UTC) - timedelta(days=30))
    app = new_app(tmp_path, clock, embedder=FakeEmbedder(failing=True))
    async with app.running(scheduled=False):
        caller = app.caller("test", "before")
        await converse(app, caller, clock, CONVERSATIONS)
        before = await everything(app, caller)
        planned = await app.compress(caller, CompressIn())
        assert planned.report["clusters"] == CONVERSATIONS - 1
    seen = []
    for _ in range(KILLS):
        apply_and_be_killed(tmp_path, planned.run_id or "", dice)
        unheard = FakeClock(datetime.now(UTC) - timedelta(hours=2))
        await _grow_old(tmp_path, planned.run_id or "", unheard)
        seen.append(whole(await looked_at(tmp_path, unheard)))
    assert seen == sorted(seen)
    assert len(set(seen)) > 3, seen  # the kills came at different moments
    clock = FakeClock(datetime.now(UTC))
    app = new_app(tmp_path, clock, embedder=FakeEmbedder(failing=True))
    async with app.running(scheduled=False):
        caller = app.caller("test", "afterwards")
        await resume(app, caller, planned.run_id or "", clock)
        done = await app.compress(caller, CompressIn(run_id=planned.run_id))
        applied, skipped = done.report["applied"], done.report.get("skipped_in_all", 0)
        assert applied + skipped == CONVERSATIONS - 1
        assert whole(await everything(app, caller)) == applied
        assert skipped <= KILLS / 2  # only what was under way at two kills
        assert done.status == "awaiting"
        await app.forget(caller, ForgetIn(ids=[done.report["operation_id"]], action="restore"))
        assert await summaries(app, caller) == []
        assert await hidden_behind_nothing(app, caller) == []
        after = await everything(app, caller)
        assert {one: _still(after[one]) for one in before} == {one: _still(before[one]) for one in before}


def _still(memory: Memory) -> tuple[object, ...]:
    return memory.text, memory.status, memory.summary_id, memory.updated_at, memory.tags, memory.copies


async def _grow_old(home: Path, run_id: str, clock: FakeClock) -> None:
    """As if the process had been gone for longer than another one waits for it."""
    app = new_app(home, clock, embedder=FakeEmbedder(failing=True))
    async with app.running(scheduled=False):
        parts = await app.parts()
        grant = app.caller("test", "old").grant
        run = await parts.store.control.run(grant, run_id)
        assert run is not None
        await parts.store.control.save_run(grant, replace(run, updated_at=clock.now()))
