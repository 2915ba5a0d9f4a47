"""When a step is done: due, at rest or in its turn, fairly, told where it fails, and never twice or too late."""

import logging
from collections import Counter
from datetime import timedelta
from itertools import pairwise

import anyio
import pytest

from middleout_mcp.errors import StoreUnavailable
from middleout_mcp.jobs.scheduler import RETRY, Scheduler, guarded
from middleout_mcp.memory.parts import Parts
from middleout_mcp.settings import Settings
from tests.fakes import FakeClock
from tests.jobs.plans import Noted, state

pytestmark = pytest.mark.anyio
HOUR = timedelta(hours=1)


async def begun(parts: Parts, *jobs: Noted) -> Scheduler:
    """A scheduler that has seen these jobs for the first time: they are due after their usual time."""
    scheduler = Scheduler(parts, [job.job() for job in jobs])
    assert not await scheduler.tick()
    return scheduler


async def work_off(scheduler: Scheduler) -> int:
    """Tick until nothing is done any more; how many steps were done."""
    steps = 0
    while await scheduler.tick():
        steps += 1
        assert steps < 1000
    return steps


async def test_a_job_is_due_after_its_usual_time_and_then_again(parts: Parts, clock: FakeClock) -> None:
    job = Noted("a")
    scheduler = await begun(parts, job)
    clock.advance(minutes=59, seconds=59)
    assert await work_off(scheduler) == 0
    due = clock.advance(seconds=1)
    assert await work_off(scheduler) == 1
    assert job.done == [due]
    known = await state(parts, "a")
    assert (known.last_run, known.next_run, known.last_error) == (due, due + HOUR, None)
    clock.advance(HOUR)
    assert await work_off(scheduler) == 1


async def test_a_job_of_many_steps_goes_on_until_it_is_done(parts: Parts, clock: FakeClock) -> None:
    job = Noted("a", steps=5)
    scheduler = await begun(parts, job)
    clock.advance(HOUR)
    assert await work_off(scheduler) == 5
    assert (await state(parts, "a")).data == {"step": 5}


async def test_state_survives_a_restart_in_the_middle_of_a_job(parts: Parts, other: Parts, clock: FakeClock) -> None:
    job = Noted("a", steps=4)
    scheduler = await begun(parts, job)
    clock.advance(HOUR)
    for _ in range(2):
        assert await scheduler.tick()
    assert (await state(other, "a")).data == {"step": 2}
    await scheduler.give_back()  # as on the way out
    assert await work_off(Scheduler(other, [job.job()])) == 2
    assert (await state(parts, "a")).data == {"step": 4}


async def test_looking_in_vain_writes_nothing_and_is_not_done_again_before_its_time(
    parts: Parts, clock: FakeClock
) -> None:
    job = Noted("a", once=True)
    scheduler = await begun(parts, job)
    clock.advance(HOUR)
    await work_off(scheduler)
    clock.advance(HOUR)
    before, looks = await state(parts, "a"), job.looks
    written = (await parts.store.control.health())["journal_bytes"]
    for _ in range(30):
        assert not await scheduler.tick()
        clock.advance(minutes=1)
    assert job.looks == looks + 1
    assert await state(parts, "a") == before
    assert (await parts.store.control.health())["journal_bytes"] == written
    job.left = 1
    clock.advance(minutes=30)
    assert await work_off(scheduler) == 1


async def test_nothing_is_done_while_a_call_is_under_way_or_ended_a_moment_ago(parts: Parts, clock: FakeClock) -> None:
    scheduler = await begun(parts, Noted("a", steps=9))
    clock.advance(HOUR)
    with parts.gate.call(clock.now):
        assert await work_off(scheduler) == 0
        clock.advance(seconds=30)
        with parts.gate.call(clock.now):
            pass
        assert await work_off(scheduler) == 0
    clock.advance(seconds=1.999)
    assert await work_off(scheduler) == 0
    clock.advance(seconds=0.001)
    assert await work_off(scheduler) == 9


async def test_under_calls_that_never_rest_there_is_one_step_a_minute_and_each_job_has_its_share(
    parts: Parts, clock: FakeClock
) -> None:
    jobs = [Noted("long", steps=100_000), Noted("b", every=timedelta(minutes=1)), Noted("c", steps=3)]
    scheduler = await begun(parts, *jobs)
    clock.advance(HOUR)
    begin = clock.now()
    with parts.gate.call(clock.now):
        while clock.now() < begin + timedelta(hours=2):
            await scheduler.tick()
            clock.advance(seconds=20)
    steps = sorted(time for job in jobs for time in job.done)
    assert len(steps) == 119
    assert {later - earlier for earlier, later in pairwise(steps)} == {timedelta(minutes=1)}
    shares = Counter({job.name: len(job.done) for job in jobs})
    assert max(shares.values()) - min(shares["long"], shares["b"]) <= 3
    assert shares["c"] >= 3  # three steps of the first hour, and of the second


async def test_under_days_of_unbroken_calls_nothing_due_waits_longer_than_a_day(parts: Parts, clock: FakeClock) -> None:
    jobs = [Noted("long", steps=10**9), *(Noted(name, steps=200, once=True) for name in "bcde")]
    scheduler = await begun(parts, *jobs)
    clock.advance(HOUR)
    begin = clock.now()
    with parts.gate.call(clock.now):
        while any(job.left for job in jobs[1:]):
            assert clock.now() < begin + timedelta(days=1, hours=1)
            await scheduler.tick()
            clock.advance(seconds=30)
    assert all(len(job.done) == 200 for job in jobs[1:])


async def test_what_has_been_due_for_a_day_waits_for_no_rest(parts: Parts, clock: FakeClock) -> None:
    old, new = Noted("old", steps=5, once=True), Noted("new", every=timedelta(days=1), once=True)
    scheduler = await begun(parts, old, new)
    clock.advance(days=1, hours=1)
    with parts.gate.call(clock.now):
        assert await work_off(scheduler) == 5
    assert not new.done  # due for an hour only


async def test_the_job_that_is_due_longest_comes_first_then_they_take_turns(parts: Parts, clock: FakeClock) -> None:
    order: list[str] = []
    jobs = [Noted("z", steps=3), Noted("b", timedelta(minutes=90), 3), Noted("a", timedelta(minutes=90), 3)]
    scheduler = await begun(parts, *jobs)
    clock.advance(hours=2)
    for _ in range(9):
        counts = [len(job.done) for job in jobs]
        assert await scheduler.tick()
        order += [job.name for job, count in zip(jobs, counts, strict=True) if len(job.done) > count]
    assert order == ["z", "a", "b"] * 3


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (StoreUnavailable("The disk is full."), "The disk is full."),
        (ZeroDivisionError("secret text"), "internal error (ZeroDivisionError)"),
    ],
)
async def test_a_job_that_fails_is_told_and_tried_again_later_and_stops_no_other(
    parts: Parts, clock: FakeClock, caplog: pytest.LogCaptureFixture, error: Exception, sentence: str
) -> None:
    bad, good = Noted("bad", raises=error), Noted("good", steps=3)
    scheduler = await begun(parts, bad, good)
    clock.advance(HOUR)
    with caplog.at_level(logging.WARNING):
        assert await work_off(scheduler) == 4
        known = await state(parts, "bad")
        assert (known.last_error, known.next_run) == (sentence, clock.now() + RETRY)
        assert len(good.done) == 3
        for _ in range(3):
            clock.advance(RETRY)
            await work_off(scheduler)
    assert [record.message for record in caplog.records] == [f"The job bad failed: {sentence}"]  # once
    assert "secret text" not in caplog.text
    bad.raises = None
    clock.advance(RETRY)
    await work_off(scheduler)
    assert (await state(parts, "bad")).last_error is None
    bad.raises = error
    clock.advance(HOUR)
    with caplog.at_level(logging.WARNING):
        await work_off(scheduler)
    assert len(caplog.records) == 2  # it had worked in between


async def test_a_clock_that_jumps_a_year_runs_nothing_twice_and_stops_nothing(parts: Parts, clock: FakeClock) -> None:
    job = Noted("a")
    scheduler = await begun(parts, job)
    clock.advance(HOUR)
    assert await work_off(scheduler) == 1
    clock.advance(days=365)
    assert await work_off(scheduler) == 1
    clock.advance(days=-365)
    assert await work_off(scheduler) == 0
    clock.advance(HOUR)
    assert await work_off(scheduler) == 1
    clock.advance(days=-365)
    assert await work_off(scheduler) == 0
    clock.advance(HOUR)
    assert await work_off(scheduler) == 1
    assert len(job.done) == 4


async def test_a_clock_set_back_during_calls_or_a_vain_look_holds_nothing_up(parts: Parts, clock: FakeClock) -> None:
    job = Noted("a", once=True)
    scheduler = await begun(parts, job)
    job.left = 0
    clock.advance(HOUR)
    assert not await scheduler.tick()  # a vain look
    clock.advance(days=-30)
    with parts.gate.call(clock.now):
        pass
    assert not await scheduler.tick()  # a new time to be due
    job.left = 2
    clock.advance(HOUR)
    with parts.gate.call(clock.now):
        assert not await scheduler.tick()
        clock.advance(seconds=-30)
        assert not await scheduler.tick()
    clock.advance(minutes=1)
    assert await work_off(scheduler) == 2


@pytest.mark.parametrize(("off", "left"), [(("a",), ["b"]), (("all",), []), ((), ["a", "b"])])
def test_a_job_that_is_off_is_none_of_a_scheduler(off: tuple[str, ...], left: list[str]) -> None:
    settings = Settings.model_construct(jobs_off=off)
    assert [name for name in ("a", "b") if not settings.is_off(name)] == left


async def test_a_running_scheduler_works_until_it_is_cancelled_and_survives_a_file_that_fails(
    parts: Parts, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    job = Noted("a", steps=3, once=True)
    scheduler = await begun(parts, job)
    clock.advance(HOUR)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scheduler.run)
        while job.left:
            await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    await parts.store.control.close()
    with caplog.at_level(logging.WARNING):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scheduler.run)
            while not caplog.records:
                await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert caplog.records[0].message.startswith("scheduled work waits: The store was closed")


async def test_work_that_the_end_of_the_process_cuts_short_is_no_warning(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        await parts.store.control.namespaces()

    await parts.store.control.close()
    with caplog.at_level(logging.WARNING):
        await guarded(work)
    assert caplog.records == []


async def test_a_fault_of_work_that_is_done_again_and_again_is_told_once_until_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        raise ZeroDivisionError("a word of some memory")

    told: set[str] = set()
    for _ in range(3):
        await guarded(work, told)
    assert [record.getMessage() for record in caplog.records] == ["a background job failed (ZeroDivisionError)"]
    told.clear()
    await guarded(work, told)
    assert len(caplog.records) == 2
