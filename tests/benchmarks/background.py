"""Calls while jobs run, beside the same calls while nothing runs, interleaved; and what an idle server costs.

    python -m tests.benchmarks.background [--rounds 8] [--seconds 5] [--idle 60]

Each round starts a server on a fresh copy of one file twice: once with its jobs off, once with a back-fill of thousands
of memories, or a compression, that has been due for days and so waits for no rest. Prints p50 and p95 of `ping` and
`recall` in ms and the ratio to the server with nothing to do; then CPU and bytes written of a server left alone.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import psutil

from middleout_mcp.adapters.system_clock import SystemClock
from middleout_mcp.app import App, open_app
from middleout_mcp.jobs.upkeep import JOBS
from middleout_mcp.memory.contract import RememberIn, TurnIn
from middleout_mcp.ports import JobState
from middleout_mcp.settings import Settings
from tests.fakes import FakeClock
from tests.server.connect import Child, child

PENDING = 3_000
DAYS = 60


async def _due(app: App, name: str, data: dict[str, Any]) -> None:
    now = SystemClock().now()
    control = (await app.parts()).store.control
    for job in JOBS:
        due = now - timedelta(days=2) if job.name == name else now + job.every
        await control.save_job(JobState(name=job.name, next_run=due, data=data if job.name == name else {}))


async def pending(home: Path) -> None:
    """Thousands of memories without vectors, and a back-fill that is due."""
    app = open_app(Settings(home=home, embedder="none"))
    async with app.running(scheduled=False):
        notes = [f"Note {number} is about lake {number} and its ferry." for number in range(PENDING)]
        await app.remember(app.caller("benchmark", "1"), RememberIn(memories=notes))
        await _due(app, "backfill", {})


async def old_sessions(home: Path) -> None:
    """More than a thousand memories with vectors in old sessions, and a compression that is due."""
    clock = FakeClock()
    app = open_app(Settings(home=home), clock=clock)
    async with app.running(scheduled=False):
        for day in range(DAYS):
            texts = [f"On day {day} Ann moved lamp {step} of {day} to room {step} at {step}:30." for step in range(20)]
            turns = [TurnIn(role="user", text=text) for text in texts]
            await app.remember(app.caller("benchmark", "1"), RememberIn(messages=turns, thread=f"day {day}"))
            clock.advance(hours=2)
        await _due(app, "compression", {"default": {"at": SystemClock().now().isoformat(), "live": 0}})


def ping(server: Child) -> None:
    """A call that needs nothing."""
    server.begin("ping")
    server.answer()


def recall(server: Child) -> None:
    """A call that embeds and searches."""
    assert not server.call("recall", query="which lamp went to the room by the lake").get("isError")


CALLS: dict[str, Callable[[Child], None]] = {"ping": ping, "recall": recall}


def waits(home: Path, seconds: float, **environment: str) -> dict[str, list[float]]:
    """Milliseconds of each call, made in turn until the time is over."""
    found: dict[str, list[float]] = {name: [] for name in CALLS}
    with child(home, **environment) as server:
        server.shake_hands()
        recall(server)  # loads the model
        time.sleep(2.5)  # the scheduler has looked
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for name, call in CALLS.items():
                began = time.perf_counter()
                call(server)
                found[name].append((time.perf_counter() - began) * 1000)
        server.leave()
    return found


def compare(name: str, prepare: Callable[[Path], Any], rounds: int, seconds: float) -> None:
    """Print the waits of both servers, started in turn."""
    with tempfile.TemporaryDirectory() as folder:
        filled = Path(folder) / "filled"
        anyio.run(prepare, filled)
        both: dict[str, dict[str, list[float]]] = {kind: {call: [] for call in CALLS} for kind in ("idle", "busy")}
        for _ in range(rounds):
            for kind, off in (("idle", "all"), ("busy", "")):
                home = Path(folder) / "home"
                shutil.copytree(filled, home)
                for call, times in waits(home, seconds, MIDDLEOUT_JOBS_OFF=off).items():
                    both[kind][call] += times
                shutil.rmtree(home)
    for call in CALLS:
        p50, p95 = ([_at(both[kind][call], part) for kind in ("idle", "busy")] for part in (0.5, 0.95))
        print(
            f"{name:12}{call:8}{p50[0]:9.2f}{p50[1]:9.2f}{p50[1] / p50[0]:8.2f}"
            f"{p95[0]:9.2f}{p95[1]:9.2f}{p95[1] / p95[0]:8.2f}{max(both['busy'][call]):9.1f}",
            flush=True,
        )


def _at(times: list[float], part: float) -> float:
    return statistics.quantiles(times, n=100)[round(part * 100) - 1]


def idle(seconds: float) -> None:
    """Print what a server costs that is left alone."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        anyio.run(old_sessions, home)
        for off in ("", "all"):
            with child(home, MIDDLEOUT_JOBS_OFF=off, MIDDLEOUT_EMBEDDER="none") as server:
                server.shake_hands()
                server.call("open_episode", id="stats")
                time.sleep(20)  # what was due is done
                process = psutil.Process(server.process.pid)
                before, written = process.cpu_times(), process.io_counters().write_bytes
                time.sleep(seconds)
                after = process.cpu_times()
                cpu = after.user + after.system - before.user - before.system
                bytes_written = process.io_counters().write_bytes - written
                print(
                    f"jobs off: {off or 'none':6} CPU {1000 * cpu * 60 / seconds:6.0f} ms a minute, "
                    f"{bytes_written * 3600 / seconds:8.0f} bytes written an hour",
                    flush=True,
                )
                server.leave()


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--idle", type=float, default=60)
    options = parser.parse_args()
    print(f"{'job':12}{'call':8}{'p50':>9}{'busy':>9}{'ratio':>8}{'p95':>9}{'busy':>9}{'ratio':>8}{'max':>9}")
    compare("back-fill", pending, options.rounds, options.seconds)
    compare("compression", old_sessions, options.rounds, options.seconds)
    idle(options.idle)


if __name__ == "__main__":
    main()
