"""Themes found by a child process: the same each time, beside the event loop, and no child is left behind."""

import os
import random
import select
import subprocess
import sys
import textwrap
from array import array
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from middleout_mcp.adapters.hdbscan import LEAST, Hdbscan
from middleout_mcp.errors import ClusteringFailed
from middleout_mcp.records import Vector

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[1]
SLOW = "import sys, time; sys.stdin.buffer.read(); time.sleep(60)"


def points(themes: int, each: int, noise: int, dimension: int = 32) -> list[Vector]:
    """Points around as many directions, and some in any direction, in an order that tells nothing."""
    dice = random.Random(4)

    def near(centre: list[float], spread: float) -> Vector:
        values = [value + dice.gauss(0, spread) for value in centre]
        length = sum(value * value for value in values) ** 0.5
        return array("f", (value / length for value in values)).tobytes()

    centres = [[dice.gauss(0, 1) for _ in range(dimension)] for _ in range(themes)]
    found = [near(centre, 0.1) for _ in range(each) for centre in centres]
    return found + [near([0.0] * dimension, 1.0) for _ in range(noise)]


async def test_themes_are_found_and_the_same_each_time() -> None:
    given = points(themes=4, each=10, noise=20)
    labels = await Hdbscan().cluster(given)
    themes = [labels[start::4][:10] for start in range(4)]
    assert [len(set(theme)) for theme in themes] == [1] * 4
    assert len({theme[0] for theme in themes}) == 4
    assert -1 in labels
    assert await Hdbscan().cluster(given) == labels


async def test_a_sample_stands_for_very_many() -> None:
    given = points(themes=3, each=5_100, noise=0, dimension=8)
    labels = await Hdbscan().cluster(given)
    assert [len(set(labels[start::3]) - {-1}) for start in range(3)] == [1] * 3
    assert labels.count(-1) < 100


@pytest.mark.parametrize("count", [0, 1, LEAST - 1])
async def test_too_few_vectors_have_no_themes_and_start_no_process(count: int) -> None:
    assert await Hdbscan(["no such program"]).cluster(points(1, count, 0)) == [-1] * count


@pytest.mark.parametrize("given", [points(1, 1, 0) * LEAST, points(0, 0, LEAST), points(2, 6, 0, dimension=2)])
async def test_vectors_that_are_all_alike_or_few_or_flat_are_clustered_without_a_fault(given: list[Vector]) -> None:
    assert len(await Hdbscan().cluster(given)) == len(given)


@pytest.mark.parametrize(
    "program", ["raise SystemExit(3)", "print('no labels')", "import os; os.kill(os.getpid(), 9)", "pass"]
)
async def test_a_child_that_fails_is_told_in_a_sentence(program: str) -> None:
    many = points(1, 5_000, 0, dimension=64)  # more than a pipe holds: the child is gone while it is written to
    with pytest.raises(ClusteringFailed, match="failed"):
        await Hdbscan([sys.executable, "-c", program]).cluster(many)


async def test_a_program_that_does_not_start_is_told_in_a_sentence() -> None:
    with pytest.raises(ClusteringFailed, match="did not start"):
        await Hdbscan(["/no/such/program"]).cluster(points(1, LEAST, 0))


async def test_a_child_that_takes_too_long_is_given_up_and_gone() -> None:
    with pytest.raises(ClusteringFailed, match="longer than"):
        await Hdbscan([sys.executable, "-c", SLOW], seconds=0.5).cluster(points(1, LEAST, 0))


async def test_others_are_served_while_themes_are_looked_for() -> None:
    done = anyio.Event()
    turns = 0

    async def look() -> None:
        await Hdbscan().cluster(points(5, 300, 500))
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        while not done.is_set():
            await anyio.sleep(0.01)
            turns += 1
    assert turns > 20  # it takes a second at least to start


def test_a_file_in_the_folder_of_the_client_is_no_part_of_the_child(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit(9)", encoding="utf-8")
    program = textwrap.dedent(
        f"""
        import anyio, sys
        sys.path[:] = {[str(ROOT), *(path for path in sys.path if path)]!r}
        from middleout_mcp.adapters.hdbscan import Hdbscan
        from tests.test_hdbscan import points
        assert len(anyio.run(Hdbscan().cluster, points(2, 10, 0))) == 20
        """
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
async def test_cancelled_the_child_is_gone(tmp_path: Path) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    program = f"import os, sys, time; open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Hdbscan([sys.executable, "-c", program]).cluster, points(1, LEAST, 0))
        child = int(await anyio.to_thread.run_sync(told.read_text))
        os.kill(child, 0)
        tasks.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are listed on Linux")
def test_the_child_of_a_process_that_was_killed_ends_too() -> None:
    program = textwrap.dedent(
        """
        import anyio
        from pathlib import Path
        from middleout_mcp.adapters.hdbscan import Hdbscan
        from tests.test_hdbscan import points

        async def main():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(Hdbscan().cluster, points(20, 700, 0, 64))
                while not (found := Path("/proc/self/task", Path("/proc/self").readlink(), "children").read_text()):
                    await anyio.sleep(0.01)
                print(found, flush=True)

        anyio.run(main)
        """
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as told:
        found = told.readline().split()
    ended = os.pidfd_open(int(found[0]))
    process.kill()
    process.wait()
    assert select.select([ended], [], [], 60)[0]
    os.close(ended)
