"""Latency of a single `remember` and `recall` over stdio at 1,000 and 10,000 memories, with the bundled embedder.

    python -m tests.benchmarks.latency [--sizes 1000 10000] [--calls 100]

Wall time as a client sees it and CPU time of the server, medians and p95; embedding included.
"""

import argparse
import random
import statistics
import time

from tests.benchmarks.start import OURS, Server, started

WORDS = (
    "garden bridge invoice server cable winter festival doctor engine paper lemon river ticket museum coffee bicycle "
    "contract teacher mountain battery window kitchen planet forest camera harbour letter budget violin market"
).split()


def sentence(dice: random.Random) -> str:
    """A made-up fact of about twelve words."""
    return f"The {' '.join(dice.choices(WORDS, k=9))} costs {dice.randint(10, 99_999)} euros."


def fill(server: Server, size: int, stored: int, dice: random.Random) -> None:
    """Store memories up to `size`, all of them embedded before the answer."""
    for start in range(stored, size, 200):
        server.call("remember", memories=[sentence(dice) for _ in range(min(200, size - start))])


def timed(server: Server, calls: int, tool: str, dice: random.Random) -> tuple[list[float], float]:
    """Wall milliseconds of each call, and CPU milliseconds of the server a call."""
    walls = []
    cpu = server.cpu()
    for _ in range(calls):
        text = sentence(dice)
        arguments = {"memories": [text]} if tool == "remember" else {"query": text}
        began = time.perf_counter()
        server.call(tool, **arguments)
        walls.append((time.perf_counter() - began) * 1000)
    return sorted(walls), (server.cpu() - cpu) * 1000 / calls


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--calls", type=int, default=100)
    options = parser.parse_args()
    dice = random.Random(7)
    print(f"{'memories':>9} {'tool':9}{'p50 ms':>9}{'p95 ms':>9}{'CPU ms':>9}{'MiB':>7}")
    with started(OURS) as server:
        server.shake_hands()
        stored = 0
        for size in options.sizes:
            fill(server, size, stored, dice)
            stored = size
            for tool in ("remember", "recall"):
                walls, cpu = timed(server, options.calls, tool, dice)
                p95 = walls[int(len(walls) * 0.95)]
                print(
                    f"{size:9,} {tool:9}{statistics.median(walls):9.1f}{p95:9.1f}{cpu:9.1f}{server.mebibytes():7.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
