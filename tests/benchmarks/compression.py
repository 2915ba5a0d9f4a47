"""What a compression costs: processor time and memory of planning and applying, bytes before and after, and what a
`recall` takes while a run is under way beside one on an idle server.

    MIDDLEOUT_EVAL_DATA=/path/to/data python -m tests.benchmarks.compression [--sizes 2000 10000] [--calls 60]

The server is the real one over stdio, with the bundled embedder; the memories are turns of LoCoMo where its file is
there, else made up. Recalls are interleaved: a block of them while nothing runs, a block while a run is under way, and
the run is undone and begun again in between, so that both meet the same machine.
"""

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.latency import sentence
from tests.benchmarks.start import OURS, Server, started

TURNS = 24  # of one session that is filed


def talks(size: int) -> Iterator[list[str]]:
    """Conversations of so many turns together, each of one session."""
    path = Path(os.environ.get("MIDDLEOUT_EVAL_DATA", "")) / "locomo_dev.json"
    if path.is_file():
        samples = json.loads(path.read_text(encoding="utf-8"))
        real = [
            [f"{turn['speaker']}: {turn['text']}" for turn in turns]
            for sample in samples
            for key, turns in sample["conversation"].items()
            if key.startswith("session_") and isinstance(turns, list)
        ]
    else:
        dice = random.Random(5)
        real = [[sentence(dice) for _ in range(TURNS)] for _ in range(200)]
    left, number = size, 0
    while left > 0:
        again, which = divmod(number, len(real))
        turns = [text if not again else f"{text} Told again {again}." for text in real[which]][:left]
        yield turns
        left -= len(turns)
        number += 1


def fill(server: Server, size: int) -> None:
    """File the conversations, each in a session of its own, and wait until all have vectors."""
    for number, turns in enumerate(talks(size)):
        messages = [{"role": "user", "text": text} for text in turns]
        server.call("remember", messages=messages, thread=f"t{number}", session=f"s{number}")
    while details(server)["memories"].get("pending"):
        time.sleep(0.2)


def details(server: Server) -> dict[str, Any]:
    """The statistics."""
    found: dict[str, Any] = server.call("open_episode", id="stats")["structuredContent"]["details"]
    return found


def show(server: Server, run_id: str) -> dict[str, Any]:
    """What is told of a run now."""
    shown: dict[str, Any] = server.call("compress", run_id=run_id, max_tokens=100)["structuredContent"]
    return shown


def cpu(server: Server) -> float:
    """Seconds of processor time so far, that of ended children included."""
    times = server.watched.cpu_times()
    return sum(times[:4])


def family(server: Server) -> float:
    """MiB that the server and its children take now."""
    total = server.watched.memory_info().rss
    for child in server.watched.children():
        try:
            total += child.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 2**20


def until_over(server: Server, run_id: str) -> tuple[dict[str, Any], float]:
    """The run when it has stopped, and the most memory seen meanwhile."""
    most = 0.0
    while True:
        shown = show(server, run_id)
        if shown["status"] != "running":
            return shown, most
        for _ in range(10):
            most = max(most, family(server))
            time.sleep(0.02)


def recalls(server: Server, calls: int, dice: random.Random) -> list[float]:
    """Milliseconds of each of so many recalls."""
    walls = []
    for _ in range(calls):
        query = " ".join(
            dice.choices("painting camping adoption support family race music career dog trip".split(), k=3)
        )
        began = time.perf_counter()
        server.call("recall", query=query)
        walls.append((time.perf_counter() - began) * 1000)
    return walls


def interleaved(server: Server, calls: int) -> tuple[list[float], list[float]]:
    """Recalls on an idle server and during runs, in blocks of ten in turn."""
    dice = random.Random(2)
    idle: list[float] = []
    busy: list[float] = []
    recalls(server, 10, dice)
    while len(busy) < calls:
        run = server.call("compress", dry_run=False, max_tokens=100)["structuredContent"]
        while len(busy) < calls and show(server, run["run_id"])["status"] == "running":
            busy += recalls(server, 10, dice)
        if show(server, run["run_id"])["status"] == "running":
            server.call("compress", target="cancel", run_id=run["run_id"])
        over, _ = until_over(server, run["run_id"])
        if "operation_id" in over["report"]:
            server.call("forget", ids=[over["report"]["operation_id"]], action="restore")
        time.sleep(0.5)
        idle += recalls(server, max(10, len(busy) - len(idle)), dice)
    return idle, busy


def measure(size: int, calls: int) -> None:
    """One size: print a line for the plan, for applying, and for recall."""
    with started(OURS) as server:
        server.shake_hands()
        fill(server, size)
        resting = family(server)
        spent, began = cpu(server), time.perf_counter()
        run = server.call("compress", max_tokens=100)["structuredContent"]
        planned, most = until_over(server, run["run_id"])
        report = planned["report"]
        print(f"{size:,} memories, at rest {resting:.0f} MiB")
        took = f"{cpu(server) - spent:6.1f} s CPU {time.perf_counter() - began:6.1f} s, at most {most:.0f} MiB"
        print(f"  planning   {took}; {report['clusters']} clusters, {report.get('themes', 0)} themes", flush=True)
        idle, busy = interleaved(server, calls)
        for name, walls in (("idle", idle), ("during a run", busy)):
            walls.sort()
            print(
                f"  recall {name:13}{statistics.median(walls):6.1f} ms p50 {walls[int(len(walls) * 0.95)]:6.1f} ms p95"
            )
        ratio = statistics.median(busy) / statistics.median(idle)
        print(f"  ratio of the medians {ratio:.2f}, of {len(idle)} and {len(busy)} recalls", flush=True)
        spent, began = cpu(server), time.perf_counter()
        run = server.call("compress", dry_run=False, max_tokens=100)["structuredContent"]
        done, most = until_over(server, run["run_id"])
        report = done["report"]
        sizes = report["compressed_bytes"]
        took = f"{cpu(server) - spent:6.1f} s CPU {time.perf_counter() - began:6.1f} s, at most {most:.0f} MiB"
        skipped = report.get("skipped_in_all", 0)
        print(f"  all of it  {took}; {report['applied']} summaries of {report['memories']} memories, {skipped} skipped")
        ratio = sizes["before"] / sizes["after"]
        print(f"  searchable bytes {sizes['before']:,} to {sizes['after']:,} ({ratio:.1f}:1)", flush=True)
        walls = sorted(recalls(server, calls, random.Random(2)))
        print(f"  recall afterwards   {statistics.median(walls):6.1f} ms p50", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2_000, 10_000])
    parser.add_argument("--calls", type=int, default=60)
    options = parser.parse_args()
    for size in options.sizes:
        measure(size, options.calls)


if __name__ == "__main__":
    main()
