"""The SQLite file taken away from under an open store: told before anything is acknowledged, for reads too."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from middleout_mcp.adapters.sqlite import audit, connection
from middleout_mcp.errors import StoreMoved
from tests.contract.builders import LIVE, OURS, found, memory, open_sqlite, operation, put

pytestmark = pytest.mark.anyio


def removed(home: Path) -> None:
    (home / "memory.db").unlink()


def removed_with_its_folder(home: Path) -> None:
    shutil.rmtree(home)


def moved_with_its_folder(home: Path) -> None:
    home.rename(home.with_name("elsewhere"))


def replaced(home: Path) -> None:
    shutil.copy(home / "memory.db", home / "copy")
    os.replace(home / "copy", home / "memory.db")


def without_its_journal(home: Path) -> None:
    (home / "memory.db-wal").unlink()


@pytest.mark.parametrize(
    ("take", "left"),
    [
        (removed, []),
        (removed_with_its_folder, []),
        (moved_with_its_folder, []),
        (replaced, []),  # the copy was made without the journal
        (without_its_journal, ["kept"]),
    ],
)
async def test_a_file_that_is_not_where_it_was_takes_nothing_more(
    tmp_path: Path, take: Callable[[Path], None], left: list[str]
) -> None:
    home = tmp_path / "home"
    store = await open_sqlite(home)
    kept = memory("kept")
    await put(store, kept)
    take(home)
    for call in (
        put(store, memory("lost")),
        found(store, LIVE),
        store.memories.erase(OURS, [kept.id], [], operation(kind="erase")),
        store.memories.finish_erasures(),
    ):
        with pytest.raises(StoreMoved, match=r"memory\.db or its journal was removed.*next call"):
            await call
    await store.control.close()
    again = await open_sqlite(home)
    await put(again, memory("new"))
    assert sorted(await found(again, LIVE)) == [*left, "new"]
    await again.control.close()
    if take is moved_with_its_folder:
        former = await open_sqlite(tmp_path / "elsewhere")
        assert await found(former, LIVE) == ["kept"]
        await former.control.close()


async def test_the_journal_of_a_replaced_file_is_not_played_into_the_one_in_its_place(tmp_path: Path) -> None:
    await (await open_sqlite(tmp_path / "other")).control.close()
    one, two = await open_sqlite(tmp_path / "home"), await open_sqlite(tmp_path / "home")
    await put(one, *(memory(f"former {number}") for number in range(50)))
    os.replace(tmp_path / "other" / "memory.db", tmp_path / "home" / "memory.db")
    with pytest.raises(StoreMoved):
        await found(one, LIVE)
    await one.control.close()  # while the other one still has the former file open
    new = await open_sqlite(tmp_path / "home")
    await put(new, memory("new"))
    with pytest.raises(StoreMoved):
        await put(two, memory("lost"))
    await two.control.close()
    assert await found(new, LIVE) == ["new"]
    await new.control.close()
    raw = connection.connect(tmp_path / "home" / "memory.db", writing=True, synchronous="full")
    assert raw.pragma("integrity_check") == "ok"
    assert audit.first_fault(raw, tmp_path) is None
    raw.close()


async def test_a_store_behind_a_link_is_told_when_the_link_leads_elsewhere(tmp_path: Path) -> None:
    for name in ("one", "two"):
        await (await open_sqlite(tmp_path / name)).control.close()
    (tmp_path / "home").mkdir()
    link = tmp_path / "home" / "memory.db"
    link.symlink_to(tmp_path / "one" / "memory.db")
    store = await open_sqlite(tmp_path / "home")
    await put(store, memory("kept"))
    assert await found(store, LIVE) == ["kept"]
    link.unlink()
    link.symlink_to(tmp_path / "two" / "memory.db")
    with pytest.raises(StoreMoved):
        await put(store, memory("lost"))
    await store.control.close()
