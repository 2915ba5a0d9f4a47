"""SIGKILL in the middle of a job: a process that was waiting follows when the lease ran out, and the work ends."""

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import anyio
import pytest

from middleout_mcp.adapters.sqlite import open_store
from middleout_mcp.adapters.system_clock import SystemClock
from middleout_mcp.ports import JobState, Lease, Store
from middleout_mcp.records import Change, Grant, Kind, Memory, Operation, new_id
from tests.fakes import FakeEmbedder
from tests.server.connect import ROOT

pytestmark = pytest.mark.anyio
MEMORIES = 12_000
GRANT = Grant.only("default")
LEASE_SECONDS = 2.0
LIMIT = 120  # against hanging


def note(number: int, now: datetime) -> Memory:
    return Memory(
        id=new_id("m"),
        namespace="default",
        kind=Kind.FACT,
        text=f"Note {number} is about lake {number}.",
        at=now,
        created_at=now,
        updated_at=now,
        agent="test",
    )


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """A file with many memories that wait for a vector, and a back-fill that is due."""
    embedder = FakeEmbedder()
    opened = await open_store(tmp_path / "memory.db", embedder_name=embedder.name, dimension=embedder.dimension)
    now = SystemClock().now()
    operation = Operation(id=new_id("op"), namespace="default", kind="remember", at=now, agent="test")
    notes = tuple(note(number, now) for number in range(MEMORIES))
    await opened.memories.commit(GRANT, Change(operation=operation, memories=notes))
    await opened.control.save_job(JobState(name="backfill", next_run=now))
    yield opened
    await opened.control.close()


@contextmanager
def leading(home: Path, holder: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.jobs.leader", str(home), holder, str(LEASE_SECONDS)]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def lease(store: Store) -> Lease | None:
    return next(iter((await store.control.health())["leases"]), None)


async def pending(store: Store) -> int:
    return (await store.memories.count(GRANT))["pending"]


async def until(true: Callable[[Store], Awaitable[bool]], store: Store) -> None:
    """Look again and again: other processes write to the file."""
    with anyio.fail_after(LIMIT):
        met = False
        while not met:
            await anyio.sleep(0.01)
            met = await true(store)


async def has_begun(store: Store) -> bool:
    return await pending(store) < MEMORIES


async def seen_all_jobs(store: Store) -> bool:
    """The second process has seen the jobs, too: the back-fill was there before either."""
    return len(await store.control.jobs()) == 4


async def has_run(store: Store) -> bool:
    return (await store.control.jobs())[0].last_run is not None


async def is_free(store: Store) -> bool:
    return await lease(store) is None


async def test_a_killed_leader_is_followed_and_its_work_is_ended_by_the_other(tmp_path: Path, store: Store) -> None:
    with anyio.fail_after(LIMIT), leading(tmp_path, "first") as first:
        await until(has_begun, store)
        with leading(tmp_path, "second"):
            await until(seen_all_jobs, store)
            held = await lease(store)
            assert held is not None and held.holder == "first"
            first.kill()
            first.wait()
            left = await pending(store)
            assert left > 0  # in the middle of the job
            held = await lease(store)
            assert held is not None
            seen = {held.holder}
            while await pending(store):
                now = await lease(store)
                if now is not None and now.holder == "second":
                    seen.add("second")
                    assert now.since >= held.until  # not before the lease ran out
                await anyio.sleep(0.01)
            assert seen == {"first", "second"}
            await until(has_run, store)
            await until(is_free, store)
    assert (await store.control.jobs())[0].last_error is None
