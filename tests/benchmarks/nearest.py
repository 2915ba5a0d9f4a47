"""How much CPU time a search by vector among the live memories saves by what lies beside the vectors.

    python -m tests.benchmarks.nearest [--memories 10000] [--rounds 60]

Prints the median CPU time of one search, with nothing asked but what is live, and with a condition that all memories
meet but that has to be looked up; the two are run in turn, and must find the same. Then their ratio.
"""

import argparse
import random
import statistics
import tempfile
import time
from array import array
from dataclasses import replace
from pathlib import Path

import anyio

from middleout_mcp.adapters.sqlite import open_store
from middleout_mcp.records import Kind, Vector
from tests.contract.builders import LIVE, OURS, memory, put

DIMENSION, NEIGHBOURS, BATCH = 384, 60, 500


def direction(source: random.Random) -> Vector:
    """A unit vector in any direction."""
    values = [source.gauss(0, 1) for _ in range(DIMENSION)]
    length = sum(value * value for value in values) ** 0.5
    return array("f", (value / length for value in values)).tobytes()


async def measure(folder: Path, memories: int, rounds: int) -> dict[str, float]:
    """Median milliseconds of CPU time by kind of search."""
    source = random.Random(3)
    store = await open_store(folder / "memory.db", embedder_name="random", dimension=DIMENSION, synchronous="normal")
    for start in range(0, memories, BATCH):
        many = [memory(f"memory {number}") for number in range(start, min(start + BATCH, memories))]
        await put(store, *many, vectors={each.id: direction(source) for each in many})
    live = replace(LIVE, agent="ann", suppressed_in=("s_1",))
    conditions = {"what is live": live, "looked up": replace(live, kinds=tuple(Kind))}
    times: dict[str, list[float]] = {name: [] for name in conditions}
    for _ in range(rounds):
        asked, found = direction(source), []
        for name, condition in conditions.items():
            begun = time.process_time()
            found.append(await store.search.nearest(OURS, asked, condition, NEIGHBOURS))
            times[name].append(1000 * (time.process_time() - begun))
        assert found[0] == found[1]
    await store.control.close()
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        medians = anyio.run(measure, Path(folder), options.memories, options.rounds)
    for name, median in medians.items():
        print(f"{name}: {median:.2f} ms")
    print(f"ratio: {medians['what is live'] / medians['looked up']:.2f}")


if __name__ == "__main__":
    main()
