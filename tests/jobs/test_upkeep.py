"""What the jobs do, through the real app: expiry, back-fill, compression, checkpoint; off is off; stats tell."""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from middleout_mcp.app import App, open_app
from middleout_mcp.jobs.scheduler import Scheduler
from middleout_mcp.jobs.upkeep import EVERY_NEW, JOBS
from middleout_mcp.memory.contract import CompressIn, ForgetIn, MemoryIn, OpenIn, RecallIn, RememberIn, TurnIn
from middleout_mcp.memory.parts import Parts
from middleout_mcp.memory.runs import new_run, plan, started
from middleout_mcp.records import Caller, Filter, Grant, Kind, Memory, Operation, Status
from middleout_mcp.settings import JOBS as NAMES
from middleout_mcp.settings import Settings
from tests.fakes import FakeClock, FakeEmbedder

pytestmark = pytest.mark.anyio


@pytest.fixture
def caller(app: App) -> Caller:
    return app.caller("test-client", "process-1")


@pytest.fixture
async def scheduler(parts: Parts) -> Scheduler:
    """With the real jobs, seen for the first time."""
    scheduler = Scheduler(parts, JOBS)
    await scheduler.tick()
    return scheduler


async def settle(scheduler: Scheduler, clock: FakeClock, **after: float) -> int:
    """After so much time, everything that is due; how many steps that were."""
    clock.advance(**after)
    clock.advance(seconds=3)
    steps = 0
    while await scheduler.tick():
        steps += 1
        assert steps < 1000
    return steps


async def file_sessions(app: App, caller: Caller, clock: FakeClock, count: int, first: int = 0) -> None:
    """A thread of four turns in each of so many sessions."""
    for number in range(first, first + count):
        texts = [
            f"On day {number} Ann decided to move lamp {number} to room {step} before guests came at {step + 10}:30."
            for step in range(4)
        ]
        turns = [TurnIn(role="user", text=text) for text in texts]
        await app.remember(caller, RememberIn(messages=turns, thread=f"{caller.grant.write} day {number}"))
        clock.advance(hours=1)


async def remember(app: App, caller: Caller, *texts: str, **fields: Any) -> list[str]:
    done = await app.remember(caller, RememberIn(memories=[MemoryIn(text=text, **fields) for text in texts]))
    return [result.id for result in done.results if result.id]


async def recalled(app: App, caller: Caller, query: str, **fields: Any) -> list[str]:
    answer = await app.recall(caller, RecallIn(query=query, limit=50, max_tokens=10_000, **fields))
    return [item.id for item in answer.items]


async def stats(app: App, caller: Caller) -> dict[str, Any]:
    details = (await app.open_episode(caller, OpenIn(id="stats"))).details
    assert details is not None
    return details


async def job_in_stats(app: App, caller: Caller, name: str) -> dict[str, Any]:
    return next(job for job in (await stats(app, caller))["jobs"] if job["job"] == name)


async def summaries(parts: Parts, namespace: str = "default") -> list[Memory]:
    condition = Filter(now=parts.clock.now(), kinds=(Kind.SUMMARY,))
    return await parts.store.memories.find(Grant.only(namespace), condition, limit=1000)


async def by_the_scheduler(parts: Parts, namespace: str = "default") -> list[Operation]:
    every = await parts.store.journal.operations(Grant.only(namespace), limit=10_000)
    return [operation for operation in every if operation.agent == "scheduler"]


def test_every_job_can_be_switched_off() -> None:
    assert sorted(job.name for job in JOBS) == sorted(NAMES)


async def test_what_expired_is_marked_and_that_can_be_undone(
    app: App, caller: Caller, parts: Parts, clock: FakeClock, scheduler: Scheduler
) -> None:
    (soon,) = await remember(app, caller, "The parcel comes today.", expires="PT30M")
    (kept,) = await remember(app, caller, "The parcel shop is in Mill Street.")
    await settle(scheduler, clock, minutes=20)
    assert soon in await recalled(app, caller, "the parcel")
    clock.advance(minutes=10)
    assert await recalled(app, caller, "the parcel") == [kept]  # from its last moment on, marked or not
    (memory,) = await parts.store.memories.get(caller.grant, [soon])
    assert memory.status is Status.LIVE
    await settle(scheduler, clock, hours=1)
    (memory,) = await parts.store.memories.get(caller.grant, [soon])
    assert memory.status is Status.EXPIRED
    (operation,) = await by_the_scheduler(parts)
    assert (operation.kind, operation.memory_ids, operation.counts) == ("expire", (soon,), {"memories": 1})
    await app.forget(caller, ForgetIn(ids=[operation.id], action="restore"))
    (memory,) = await parts.store.memories.get(caller.grant, [soon])
    assert memory.status is Status.LIVE
    assert soon not in await recalled(app, caller, "the parcel")
    await settle(scheduler, clock, hours=1)
    await app.forget(caller, ForgetIn(ids=[soon], action="restore"))
    await settle(scheduler, clock, hours=1)
    assert set(await recalled(app, caller, "the parcel")) == {soon, kept}


async def test_what_expired_in_any_namespace_is_marked_in_small_steps(
    app: App, parts: Parts, clock: FakeClock, scheduler: Scheduler
) -> None:
    callers = [replace(app.caller("c", "k"), grant=Grant.only(name)) for name in ("one", "two")]
    for caller in callers:
        await remember(app, caller, *(f"Note {n} of {caller.grant.write}" for n in range(250)), expires="PT1M")
    await settle(scheduler, clock, hours=2)
    for caller in callers:
        assert (await parts.store.memories.count(caller.grant))["expired"] == 250
        assert [op.counts["memories"] for op in await by_the_scheduler(parts, caller.grant.write)] == [50, 200]
    await settle(scheduler, clock, hours=2)
    assert [len(await by_the_scheduler(parts, name)) for name in ("one", "two")] == [2, 2]


async def test_pending_memories_get_their_vectors_after_an_outage_and_the_outage_is_told(
    app: App,
    caller: Caller,
    parts: Parts,
    clock: FakeClock,
    scheduler: Scheduler,
    embedder: FakeEmbedder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    embedder.failing = True
    await remember(app, caller, *(f"Lake {number} is deep." for number in range(150)))
    await app.settled()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            await settle(scheduler, clock, minutes=1)
    assert [record.message for record in caplog.records] == [
        "The job backfill failed: The fake embedder was told to fail; set `failing` to False."
    ]
    assert "told to fail" in (await job_in_stats(app, caller, "backfill"))["last_error"]
    assert (await stats(app, caller))["memories"]["pending"] == 150
    embedder.failing = False
    assert await settle(scheduler, clock, minutes=1) >= 3  # 64 a step
    told = await job_in_stats(app, caller, "backfill")
    assert "last_error" not in told
    assert (await stats(app, caller))["memories"]["pending"] == 0
    assert len(await recalled(app, caller, "Lake 149 is deep")) > 0


async def test_an_idle_file_is_left_alone_for_days(
    app: App, caller: Caller, parts: Parts, clock: FakeClock, scheduler: Scheduler
) -> None:
    await remember(app, caller, "Tea is hot.")
    await settle(scheduler, clock, days=2)
    await parts.store.control.checkpoint()
    for _ in range(20):
        assert await settle(scheduler, clock, hours=1) == 0
    assert (await parts.store.control.health())["journal_bytes"] == 0


async def test_a_journal_that_has_grown_is_emptied(
    app: App, caller: Caller, parts: Parts, clock: FakeClock, scheduler: Scheduler
) -> None:
    await remember(app, caller, *(f"Note {number} " + "long " * 400 for number in range(200)))
    assert (await parts.store.control.health())["journal_bytes"] > 256 * 1024
    await settle(scheduler, clock, hours=1)
    assert (await parts.store.control.health())["journal_bytes"] < 64 * 1024


async def test_compression_is_done_a_day_after_it_was_first_looked_at(
    app: App, caller: Caller, parts: Parts, clock: FakeClock, scheduler: Scheduler
) -> None:
    await settle(scheduler, clock, minutes=10)
    await file_sessions(app, caller, clock, 7)
    await settle(scheduler, clock, minutes=10)
    assert await summaries(parts) == []
    await settle(scheduler, clock, days=1)
    made = await summaries(parts)
    assert made
    (run,) = await parts.store.control.runs(caller.grant, "done")
    assert (run.agent, run.target) == ("scheduler", "middle")
    members = await parts.store.memories.get(caller.grant, [one for summary in made for one in summary.parents])
    assert len({one.id for one in members}) == len(members)
    (operation,) = await by_the_scheduler(parts)
    await app.forget(caller, ForgetIn(ids=[operation.id], action="restore"))
    assert await summaries(parts) == []
    await settle(scheduler, clock, hours=1)
    assert await summaries(parts) == []
    assert [run.id for run in await parts.store.control.runs(caller.grant, "done")] == [run.id]


async def test_compression_is_due_after_enough_new_memories_in_each_namespace_and_mixes_none(
    app: App, parts: Parts, clock: FakeClock, scheduler: Scheduler
) -> None:
    one, two, few = (replace(app.caller("c", name), grant=Grant.only(name)) for name in ("one", "two", "few"))
    await remember(app, one, "The first of one.")
    await remember(app, two, "The first of two.")
    await remember(app, few, "The first of few.")
    await settle(scheduler, clock, minutes=10)
    for caller in (one, two):
        await file_sessions(app, caller, clock, EVERY_NEW // 4)
    await file_sessions(app, few, clock, 8)
    # so many hours later it would be due by the day alone; the look before it saw too few new memories
    for known in await parts.store.control.jobs():
        if known.name == "compression":
            data = {name: {**had, "at": clock.now().isoformat()} for name, had in known.data.items()}
            await parts.store.control.save_job(replace(known, data=data))
    await settle(scheduler, clock, minutes=10)
    assert await summaries(parts, "few") == []
    for name in ("one", "two"):
        made = await summaries(parts, name)
        assert made
        for summary in made:
            members = await parts.store.memories.get(Grant.only(name), summary.parents)
            assert len(members) == len(summary.parents)
            assert {memory.namespace for memory in members} == {name}
    assert await settle(scheduler, clock, minutes=10) == 0  # its summaries do not count as new


async def test_runs_that_lost_their_process_are_gone_on_with_or_ended(
    app: App, caller: Caller, parts: Parts, clock: FakeClock, scheduler: Scheduler
) -> None:
    await settle(scheduler, clock, minutes=10)
    await file_sessions(app, caller, clock, 7)
    begun = new_run(caller, "middle", clock.now())
    chosen = await parts.store.memories.find(caller.grant, Filter(now=clock.now()), limit=1000)
    applying = started(await plan(parts, caller, begun, chosen), clock.now())
    planning = new_run(caller, "middle", clock.now())
    for run in (applying, planning):
        await parts.store.control.save_run(caller.grant, run)
    clock.advance(seconds=-600)
    await settle(scheduler, clock, minutes=10)
    for run in (applying, planning):  # both were heard of a moment ago
        assert await parts.store.control.run(caller.grant, run.id) == run
    await settle(scheduler, clock, minutes=10)
    over = await parts.store.control.run(caller.grant, applying.id)
    assert over is not None and over.status == "awaiting"
    assert len(await summaries(parts)) == len(over.plan["applied"]) > 0
    assert await parts.store.control.run(caller.grant, planning.id) == planning  # planning may take long
    await settle(scheduler, clock, minutes=15)
    failed = await parts.store.control.run(caller.grant, planning.id)
    assert failed is not None and failed.status == "failed"


@pytest.fixture
async def off(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> AsyncIterator[App]:
    settings = Settings(home=tmp_path / "off", jobs_off=request.param)
    opened = open_app(settings, clock=clock, embedder=FakeEmbedder())
    async with opened.running(scheduled=False):
        yield opened


@pytest.mark.parametrize("off", ["compression", "all", "expiry", "backfill,checkpoint"], indirect=True)
async def test_off_is_off_for_days_and_thousands_of_memories_and_the_tools_still_work(
    off: App, clock: FakeClock
) -> None:
    parts = await off.parts()
    caller = off.caller("test", "test")
    switched_off = {name for name in NAMES if parts.settings.is_off(name)}
    scheduler = Scheduler(parts, JOBS)
    await scheduler.tick()
    await remember(off, caller, "It ends soon.", expires="PT1M")
    for number in range(8 if "compression" in switched_off else 2):
        texts = [f"Note {n} of day {number}: the lamp went to room {n} on floor {number}." for n in range(300)]
        await remember(off, caller, *texts)
        await off.settled()
        await settle(scheduler, clock, days=1)
        await file_sessions(off, caller, clock, 4, 4 * number)
    await settle(scheduler, clock, days=1)
    counts = await parts.store.memories.count(caller.grant)
    assert (counts["expired"] == 0) == ("expiry" in switched_off)
    assert (await summaries(parts) == []) == ("compression" in switched_off)
    assert (counts["pending"] > 0) == ("backfill" in switched_off)
    told = {job["job"]: job for job in (await stats(off, caller))["jobs"]}
    assert {name for name, job in told.items() if job.get("off")} == switched_off
    assert all("next_run" not in told[name] and "overdue" not in told[name] for name in switched_off)
    if "compression" in switched_off:
        run = await off.compress(caller, CompressIn(dry_run=False))
        await off.settled()
        assert run.status in ("running", "awaiting")
        assert await summaries(parts)


async def test_stats_tell_when_jobs_ran_what_is_overdue_and_who_leads(
    app: App, caller: Caller, parts: Parts, clock: FakeClock, scheduler: Scheduler, embedder: FakeEmbedder
) -> None:
    told = await stats(app, caller)
    assert [job["job"] for job in told["jobs"]] == list(NAMES)
    assert all(job["next_run"] > "2026-01-01" for job in told["jobs"])
    assert told["leader"] == {}
    await settle(scheduler, clock, hours=2)
    expiry = await job_in_stats(app, caller, "expiry")
    assert expiry["nothing_to_do_at"] == "2026-01-01T02:00:03Z"
    assert expiry["next_run"] == "2026-01-01T03:00:03Z"
    embedder.failing = True
    await remember(app, caller, "Tea is hot.", "It ends soon.", expires="PT1M")
    clock.advance(minutes=90)
    await scheduler.tick()
    assert (await stats(app, caller))["leader"] == {"jobs": scheduler.holder}
    await settle(scheduler, clock)
    assert (await job_in_stats(app, caller, "expiry"))["last_run"] == "2026-01-01T03:30:06Z"
    clock.advance(days=2)  # and nobody does anything
    assert (await job_in_stats(app, caller, "expiry"))["overdue"]
