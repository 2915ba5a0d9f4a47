"""One process at a time does the jobs; another follows where it is gone, asleep or stuck."""

import logging
from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest

from middleout_mcp.jobs.scheduler import LEASE, Job, Scheduler
from middleout_mcp.memory.parts import Parts
from tests.fakes import FakeClock
from tests.jobs.plans import Noted, leases, state

pytestmark = pytest.mark.anyio
HOUR = timedelta(hours=1)
SHORT = timedelta(seconds=0.2)


async def always(_parts: Parts, _data: dict[str, Any], _now: datetime) -> bool:
    return True


async def two(parts: Parts, other: Parts, job: Noted, clock: FakeClock) -> tuple[Scheduler, Scheduler]:
    """Two schedulers, in two processes, with the same job due."""
    first = Scheduler(parts, [job.job()], holder="first")
    second = Scheduler(other, [job.job()], holder="second")
    await first.tick()
    clock.advance(HOUR)
    return first, second


async def test_a_second_process_does_nothing_while_the_first_leads_and_follows_when_its_lease_ran_out(
    parts: Parts, other: Parts, clock: FakeClock
) -> None:
    first, second = await two(parts, other, job := Noted("a", steps=9), clock)
    assert await first.tick()
    clock.advance(LEASE - timedelta(milliseconds=1))
    assert not await second.tick()
    clock.advance(milliseconds=1)
    assert await second.tick()
    assert not await first.tick()
    assert await leases(parts) == ["second"]
    assert len(job.done) == 2


async def test_a_leader_renews_its_lease_as_long_as_it_works(parts: Parts, other: Parts, clock: FakeClock) -> None:
    first, second = await two(parts, other, Noted("a", steps=99), clock)
    for _ in range(20):
        assert await first.tick()
        assert not await second.tick()
        clock.advance(seconds=5)


async def test_a_leader_with_nothing_left_to_do_gives_the_lease_back(
    parts: Parts, other: Parts, clock: FakeClock
) -> None:
    first, _ = await two(parts, other, Noted("a"), clock)
    assert await first.tick()
    assert await leases(parts) == ["first"]
    assert not await first.tick()
    assert await leases(parts) == []


async def test_a_leader_whose_clock_was_set_back_does_not_go_on_beside_another(
    parts: Parts, other: Parts, clock: FakeClock
) -> None:
    first, second = await two(parts, other, job := Noted("a", steps=99), clock)
    clock.advance(days=365)
    assert await first.tick()
    clock.advance(days=-365)
    for scheduler in (first, second):
        await scheduler.tick()  # a new time to be due
    clock.advance(HOUR)
    assert await second.tick()
    done = len(job.done)
    assert not await first.tick()
    assert len(job.done) == done


async def test_a_long_step_keeps_its_lease(parts: Parts, other: Parts, clock: FakeClock) -> None:
    renewed, seen = anyio.Event(), []

    async def work(parts: Parts, data: dict[str, Any], now: datetime) -> bool:
        for _ in range(6):
            clock.advance(SHORT * 0.6)
            before = seen[-1] if seen else now
            while True:
                (lease,) = (await parts.store.control.health())["leases"]
                if lease.until > max(before, clock.now()):
                    break
                await anyio.sleep(0.01)
            seen.append(lease.until)
        renewed.set()
        return False

    job = Job("long", HOUR, always, work)
    scheduler = Scheduler(parts, [job], lease=SHORT)
    await scheduler.tick()
    clock.advance(HOUR)
    began = clock.now()
    with anyio.fail_after(30):
        assert await scheduler.tick()
    assert renewed.is_set()
    assert clock.now() - began > 3 * SHORT  # far longer than one lease
    assert (await state(parts, "long")).last_error is None


async def test_a_step_whose_lease_another_process_took_stops_and_keeps_nothing(
    parts: Parts, other: Parts, clock: FakeClock
) -> None:
    """As after a sleep of the machine that was longer than the lease."""
    cancelled = anyio.Event()

    async def work(parts: Parts, data: dict[str, Any], now: datetime) -> bool:
        data["step"] = "kept"
        clock.advance(10 * SHORT)
        await other.store.control.lease("jobs", "another", clock.now(), clock.now() + SHORT)
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    scheduler = Scheduler(parts, [Job("long", HOUR, always, work)], lease=SHORT)
    await scheduler.tick()
    clock.advance(HOUR)
    before = await state(parts, "long")
    with anyio.fail_after(30):
        await scheduler.tick()
    assert cancelled.is_set()
    assert await state(parts, "long") == before
    assert await leases(parts) == ["another"]


async def test_a_step_that_hangs_is_given_up_and_told_and_lets_another_process_lead(
    parts: Parts, other: Parts, clock: FakeClock
) -> None:
    async def work(parts: Parts, data: dict[str, Any], now: datetime) -> bool:
        await anyio.sleep_forever()
        return True

    good = Noted("good")
    scheduler = Scheduler(parts, [Job("bad", HOUR, always, work)], lease=SHORT, longest_seconds=0.3)
    await scheduler.tick()
    clock.advance(HOUR)
    with anyio.fail_after(30):
        assert await scheduler.tick()
    error = (await state(parts, "bad")).last_error
    assert error is not None and error.startswith("it took longer than")
    assert await leases(parts) == []
    follower = Scheduler(other, [good.job()])
    await follower.tick()
    clock.advance(HOUR)
    assert await follower.tick()


async def test_a_process_says_once_what_another_that_leads_does_not_do(
    parts: Parts, other: Parts, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    _, second = await two(parts, other, Noted("a"), clock)

    async def hold() -> None:
        await parts.store.control.lease("jobs", "stuck", clock.now(), clock.now() + LEASE)

    with caplog.at_level(logging.WARNING):
        clock.advance(days=1)
        for _ in range(200):
            await hold()
            assert not await second.tick()
            clock.advance(seconds=30)
    (record,) = caplog.records
    assert record.message == (
        "The job a failed: it has been due for more than a day, and the process that leads does not do it"
    )
