"""Operations that the file has lost, as the head of the log beside it shows: told, and never written over."""

import logging
import shutil
from pathlib import Path

import anyio
import pytest

from middleout_mcp.adapters.sqlite import audit
from middleout_mcp.ports import Store
from tests.contract.builders import LIVE, found, memory, open_sqlite, put
from tests.disks import small_disk

pytestmark = pytest.mark.anyio


async def lose(folder: Path, kept: float) -> Path:
    """Five memories, of which the first is in the file and the others in its journal; a copy of all in another folder,
    where that part of the journal is kept.
    """
    store = await open_sqlite(folder)
    await put(store, memory("n1"))
    await store.control.close()
    store = await open_sqlite(folder)
    for number in range(2, 6):
        await put(store, memory(f"n{number}"))
    damaged = folder / "damaged"
    damaged.mkdir()
    for name in ("memory.db", "memory.db-wal", "audit.head"):
        shutil.copy(folder / name, damaged / name)
    await store.control.close()
    journal = damaged / "memory.db-wal"
    journal.write_bytes(journal.read_bytes()[: int(kept * journal.stat().st_size)])
    return damaged


async def losses(store: Store) -> list[str]:
    return (await store.control.health())["lost"]


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in log.records if record.levelno >= logging.WARNING]


async def test_a_journal_that_was_lost_is_told_once_and_the_proof_outlasts_the_next_operations(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = await lose(tmp_path, 0)
    proof = (damaged / "audit.head").read_text()
    store = await open_sqlite(damaged)
    assert await found(store, LIVE) == ["n1"]
    (told,) = warnings(caplog)
    assert "Operations 2 to 5 are missing" in told
    assert await losses(store) == [told]
    for number in range(6):
        await put(store, memory(f"after {number}"))
    assert await losses(store) == [told]
    await store.control.close()
    store = await open_sqlite(damaged)
    assert warnings(caplog) == await losses(store) == [told]
    (kept,) = damaged.glob("audit.head.lost-*")
    assert kept.name in told
    assert kept.read_text().startswith(proof)
    assert (damaged / "audit.head").read_text().startswith("7 ")
    kept.unlink()
    assert await losses(store) == []
    await store.control.close()


async def test_a_journal_that_was_cut_short_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = await open_sqlite(await lose(tmp_path, 0.99))
    assert sorted(await found(store, LIVE)) == ["n1", "n2", "n3", "n4"]
    (told,) = warnings(caplog)
    assert "Operation 5 is missing" in told
    await store.control.close()


async def test_other_operations_under_the_numbers_of_lost_ones_do_not_hide_the_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = await lose(tmp_path, 0)
    proof = (damaged / "audit.head").read_bytes()
    (damaged / "audit.head").unlink()
    store = await open_sqlite(damaged)
    for number in range(9):
        await put(store, memory(f"after {number}"))
    await store.control.close()
    (damaged / "audit.head").write_bytes(proof)
    store = await open_sqlite(damaged)
    (told,) = warnings(caplog)
    assert "Operation 5 is missing" in told
    await store.control.close()


async def test_nothing_is_told_where_nothing_was_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    damaged = await lose(tmp_path, 1)
    one, two = await open_sqlite(damaged), await open_sqlite(damaged)
    assert len(await found(one, LIVE)) == 5
    await put(two, memory("n6"))
    (damaged / "audit.head").unlink()
    assert await losses(one) == await losses(two) == warnings(caplog) == []
    await one.control.close()
    await two.control.close()


@pytest.mark.parametrize("content", [b"", b"five words that mean nothing", b"\xff\xfe", b"x y z"])
async def test_a_head_that_cannot_be_read_stops_nothing(tmp_path: Path, content: bytes) -> None:
    store = await open_sqlite(tmp_path)
    await put(store, memory("kept"))
    await store.control.close()
    for name in (audit.HEAD_NAME, f"{audit.LOST_NAME}20260301T120000Z"):
        (tmp_path / name).write_bytes(content)
    store = await open_sqlite(tmp_path)
    await put(store, memory("more"))
    assert len(await losses(store)) == 1
    await store.control.close()


async def test_a_loss_on_a_medium_that_may_only_be_read_is_told_and_nothing_is_touched(tmp_path: Path) -> None:
    home = tmp_path / "disk"
    with small_disk(home, 24):
        damaged = await lose(home, 0)
        store = await open_sqlite(damaged)
        await store.control.close()
        (kept,) = damaged.glob("audit.head.lost-*")
        kept.rename(damaged / "audit.head")
        (damaged / "audit.head").write_text("5 op_gone 00\n")
        await anyio.run_process(["mount", "-o", "remount,ro", str(home)])
        store = await open_sqlite(damaged)
        (told,) = await losses(store)
        assert "Operations 2 to 5" in told
        await store.control.close()
        assert (damaged / "audit.head").read_text() == "5 op_gone 00\n"
