"""What an erase in the SQLite file costs."""

from pathlib import Path

import pytest

from middleout_mcp.adapters.sqlite import connection, erasing
from tests.contract.builders import OURS, episode, memory, open_sqlite, operation, put, turn

pytestmark = pytest.mark.anyio


async def steps_of_an_erase(folder: Path, *, held: int, gone: int) -> int:
    """In thousands, the steps SQLite's machine makes to erase `gone` memories of one episode that holds more."""
    store = await open_sqlite(folder)
    every = [memory(f"note {number}", thread="t", turns=(number,)) for number in range(1, held + 1)]
    turns = [turn(number, f"turn {number}") for number in range(1, held + 1)]
    await put(store, *every, turns=turns, episodes=(episode(1, held, memory_ids=tuple(each.id for each in every)),))
    await store.control.close()
    writer = connection.connect(folder / "memory.db", writing=True, synchronous="full")
    steps = 0

    def one_more() -> bool:
        nonlocal steps
        steps += 1
        return False

    writer.set_progress_handler(one_more, 1000)
    writer.execute("BEGIN IMMEDIATE")
    erasing.erase(writer, OURS, [each.id for each in every[:gone]], [], operation(kind="erase"))
    writer.execute("COMMIT")
    writer.close()
    return steps


async def test_to_erase_a_few_of_many_memories_costs_hardly_more_than_a_few_of_a_few(tmp_path: Path) -> None:
    few = await steps_of_an_erase(tmp_path / "few", held=200, gone=100)
    many = await steps_of_an_erase(tmp_path / "many", held=1600, gone=100)
    assert many < 3 * few
