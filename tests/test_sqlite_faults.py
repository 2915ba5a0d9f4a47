"""The SQLite file in bad company: foreign bytes, full and read-only disks, cancelled callers, two stores, readers."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from middleout_mcp.adapters.sqlite import audit, ballast, connection, open_store, schema
from middleout_mcp.errors import Conflict, StoreCorrupt, StoreTooNew, StoreUnavailable
from middleout_mcp.ports import Store
from middleout_mcp.records import Filter, Memory
from tests.contract.builders import LIVE, NOW, OURS, found, memory, operation, put, turn, vector
from tests.disks import small_disk

pytestmark = pytest.mark.anyio


async def opened(folder: Path) -> Store:
    return await open_store(folder / "memory.db", embedder_name="fake-words", dimension=8)


def bare(file: Path) -> connection.Connection:
    """A connection of our own beside the store's."""
    return connection.connect(file, writing=True, synchronous="full")


def reading(file: Path) -> connection.Connection:
    """A connection in the middle of a read. Not the standard library's: two SQLites in a process undo their locks."""
    reader = connection.connect(file, writing=False, synchronous="full")
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM memory").fetchall()
    return reader


def fill_up(folder: Path) -> None:
    """Leave no free byte on the disk of a folder."""
    with open(folder / "filler", "ab", buffering=0) as filler:
        for size in (1 << 20, 4096, 1):
            try:
                while filler.write(b"x" * size):
                    pass
            except OSError:
                continue


@pytest.mark.parametrize("content", [b"short", b"no database at all " * 500, b"SQLite format 3\x00" + b"\xff" * 5000])
async def test_bytes_that_are_no_database_are_corrupt_and_stay_as_they_are(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "memory.db").write_bytes(content)
    with pytest.raises(StoreCorrupt, match="damaged"):
        await opened(tmp_path)
    assert (tmp_path / "memory.db").read_bytes() == content


async def test_a_damaged_page_is_told_when_it_is_read(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await put(store, *(memory("word " * 200) for _ in range(60)))
    await store.control.close()
    file = tmp_path / "memory.db"
    raw = bare(file)
    page, size = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'memory'").get, raw.pragma("page_size")
    raw.close()
    content = bytearray(file.read_bytes())
    content[(page - 1) * size : page * size] = b"\xee" * size
    file.write_bytes(content)
    store = await opened(tmp_path)
    with pytest.raises(StoreCorrupt, match="backup"):
        await found(store, LIVE)
    with pytest.raises(StoreCorrupt):
        await put(store, memory("x"))
    await store.control.close()


async def test_an_empty_file_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "memory.db").touch()
    store = await opened(tmp_path)
    await put(store, memory("x"))
    assert await found(store, LIVE) == ["x"]
    await store.control.close()


async def test_a_folder_in_the_place_of_the_file_or_a_file_in_that_of_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "memory.db").mkdir()
    with pytest.raises(StoreUnavailable, match="is a folder"):
        await opened(tmp_path)
    (tmp_path / "plain").write_text("x")
    with pytest.raises(StoreUnavailable, match="MIDDLEOUT_HOME"):
        await opened(tmp_path / "plain" / "home")


async def test_a_newer_file_is_refused_with_both_versions_and_without_a_journal_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    await (await opened(tmp_path)).control.close()
    with sqlite3.connect(file) as raw:
        raw.execute("PRAGMA user_version = 77")
    raw.close()
    for left in ("memory.db-wal", "memory.db-shm"):
        (tmp_path / left).unlink(missing_ok=True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(StoreTooNew, match=rf"77.*\b{len(schema.MIGRATIONS)}\b"):
        await opened(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


async def test_what_a_file_of_an_earlier_schema_holds_is_there_after_the_migration(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    file.touch()
    raw = bare(file)
    schema.migrate(raw, file)
    raw.execute("INSERT INTO namespace (name) VALUES ('ours')")
    more = (*schema.MIGRATIONS, ("9000_more", "CREATE TABLE more (x); INSERT INTO more SELECT name FROM namespace"))
    assert schema.migrate(raw, file, more) == len(more)
    assert raw.execute("SELECT x FROM more").get == "ours"
    assert raw.execute("SELECT name FROM migration ORDER BY version DESC LIMIT 1").get == "9000_more"
    raw.close()


async def test_a_read_only_disk_is_read_and_refuses_writes_in_a_sentence(tmp_path: Path) -> None:
    home = tmp_path / "disk"
    with small_disk(home, 24):
        store = await opened(home)
        kept = memory("kept", thread="t", turns=(1,))
        done = await put(store, kept, vectors={kept.id: vector(1)}, turns=(turn(1, "said"),))
        await store.control.close()
        await anyio.run_process(["mount", "-o", "remount,ro", str(home)])
        store = await opened(home)
        assert await found(store, LIVE) == ["kept"]
        assert len(await store.search.match(OURS, ["kept"], LIVE, 3)) == 1
        assert len(await store.search.nearest(OURS, vector(1), LIVE, 3)) == 1
        assert [each.text for each in await store.threads.turns(OURS, "t")] == ["said"]
        assert (await store.control.health())["read_only"]
        for write in (
            put(store, memory("new")),
            store.memories.erase(OURS, [kept.id], [], operation(kind="erase")),
            store.journal.undo(OURS, done.id, operation(kind="restore")),
            store.search.begin_reembed("other", 16),
            store.journal.note_uses(OURS, []),
        ):
            with pytest.raises(StoreUnavailable, match="writable"):
                await write
        await store.control.close()


async def test_a_read_only_disk_without_a_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    home = tmp_path / "disk"
    with small_disk(home, 1):
        await anyio.run_process(["mount", "-o", "remount,ro", str(home)])
        with pytest.raises(StoreUnavailable, match="MIDDLEOUT_HOME"):
            await opened(home)


async def test_a_full_disk_loses_nothing_refuses_in_a_sentence_and_erases(tmp_path: Path) -> None:
    home = tmp_path / "disk"
    with small_disk(home, 24):
        store = await opened(home)
        many = [memory(f"axolotl {number} " + "of a long tale " * 500) for number in range(40)]
        await put(store, *many)
        fill_up(home)
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="full"):
                await put(store, *(memory("y" * 1_000_000) for _ in range(8)))
        assert len(await found(store, LIVE)) == 40
        gone, left = many[:20], many[20:]
        erased = await store.memories.erase(OURS, [each.id for each in gone], [], operation(kind="erase"))
        assert len(erased.memory_ids) == 20
        assert sorted(await found(store, LIVE)) == sorted(each.text for each in left)
        (home / "filler").unlink()
        assert await store.memories.finish_erasures()
        await put(store, memory("room again"))
        await store.control.close()
        again = await opened(home)
        assert len(await found(again, LIVE)) == 21
        await again.control.close()
        raw = bare(home / "memory.db")
        assert audit.first_fault(raw, home) is None
        raw.close()
        words = [f"axolotl {number} of".encode() for number in range(20)]
        held = [path.name for path in home.iterdir() if any(word in path.read_bytes() for word in words)]
        assert held == []


async def test_a_disk_that_fills_up_to_the_last_byte_still_takes_an_erase(tmp_path: Path) -> None:
    home = tmp_path / "disk"
    with small_disk(home, 16):
        store = await opened(home)
        gone = memory("axolotl")
        await put(store, gone)
        fill_up(home)
        await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"))
        assert await found(store, LIVE) == []
        (home / "filler").unlink()
        assert await store.memories.finish_erasures()
        assert gone.id in (home / "tombstones.log").read_text()
        await store.control.close()


async def fits(store: Store, more: Memory) -> bool:
    """Whether a memory could be stored; what prevents it must be that the disk is full."""
    try:
        await put(store, more)
    except StoreUnavailable as error:
        if "full" in str(error):
            return False
        raise
    return True


async def test_a_full_disk_takes_memories_again_once_an_erase_made_room_in_the_file(tmp_path: Path) -> None:
    home = tmp_path / "disk"
    with small_disk(home, 24):
        store = await opened(home)
        many = [memory(f"axolotl {number} " + "of a long tale " * 500) for number in range(200)]
        await put(store, *many)
        for part in (many[:100], many[100:]):
            fill_up(home)
            with pytest.raises(StoreUnavailable, match="full"):
                await put(store, memory("y" * 8_000_000))  # which costs the ballast
            while await fits(store, memory("a tale " * 5_000)):
                pass
            fill_up(home)
            for start in range(0, len(part), 5):
                gone = [each.id for each in part[start : start + 5]]
                assert len((await store.memories.erase(OURS, gone, [], operation(kind="erase"))).memory_ids) == 5
            await put(store, memory("after"))
        assert not {each.text for each in many} & set(await found(store, LIVE))
        (home / "filler").unlink()
        await put(store, memory("room again"))
        assert (home / "memory.db.ballast").stat().st_size == ballast.SIZE
        await store.control.close()


async def test_an_erasure_that_is_pending_stays_so_on_a_medium_that_may_only_be_read(tmp_path: Path) -> None:
    home = tmp_path / "disk"
    with small_disk(home, 24):
        store = await opened(home)
        gone = memory("axolotl")
        await put(store, gone)
        reader = reading(home / "memory.db")
        assert not (await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"))).complete
        await store.control.close()
        reader.close()
        await anyio.run_process(["mount", "-o", "remount,ro", str(home)])
        store = await opened(home)
        assert not await store.memories.finish_erasures()
        await store.control.close()
        await anyio.run_process(["mount", "-o", "remount,rw", str(home)])
        store = await opened(home)
        assert await store.memories.finish_erasures()
        await store.control.close()


async def test_two_stores_write_one_file_and_conflicts_are_told(tmp_path: Path) -> None:
    one, two = await opened(tmp_path), await opened(tmp_path)
    shared = memory("first")
    await put(one, shared)
    await put(two, replace(shared, text="second", version=2))
    with pytest.raises(Conflict):
        await put(one, replace(shared, text="lost", version=2))
    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(put, one if number % 2 else two, memory(f"n{number}"))
    assert len(await found(one, LIVE)) == len(await found(two, LIVE)) == 41
    await one.search.begin_reembed("other", 16)
    assert (await two.search.embedding()).name == "other"
    await one.control.close()
    await two.control.close()
    raw = bare(tmp_path / "memory.db")
    assert audit.first_fault(raw, tmp_path) is None
    raw.close()


async def test_two_stores_that_make_the_file_together_both_open(tmp_path: Path) -> None:
    stores: list[Store] = []

    async def make() -> None:
        stores.append(await opened(tmp_path / "new"))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(make)
    for number, store in enumerate(stores):
        await put(store, memory(f"n{number}"))
    assert len(await found(stores[0], LIVE)) == 3
    for store in stores:
        await store.control.close()


async def test_a_cancelled_writer_has_written_all_or_nothing(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    written = 0
    for number in range(30):
        many = [memory(f"n{number}", tags=(str(number),)) for _ in range(20)]
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(put, store, *many)
                for _ in range(number % 6):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        stored = len(await found(store, replace(LIVE, tags=(str(number),))))
        assert stored in (0, 20)
        written += stored
    counts = await store.memories.count(OURS)
    assert counts["live"] == written
    assert len(await store.journal.operations(OURS, limit=99)) == written // 20
    await store.control.close()


async def ticks() -> None:
    """Let every task go as far as it can without waiting."""
    for _ in range(8):
        await anyio.lowlevel.checkpoint()


async def test_a_reader_that_is_cancelled_in_the_queue_disturbs_no_other(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    for start in range(0, 3000, 500):
        await put(store, *(memory(f"lake {number}") for number in range(start, start + 500)))
    results: list[int] = []

    async def read() -> None:
        results.append(len(await store.memories.find(OURS, Filter(now=NOW), limit=3000)))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(read)
            await ticks()  # so that both connections are taken
        while len(results) < 4:  # all the while that they run
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as cancelled:
                    cancelled.start_soon(read)
                    await ticks()
                    scope.cancel()
    assert results.count(3000) == len(results) >= 4
    await store.control.close()


async def test_closing_during_reads_ends_them_in_a_sentence(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await put(store, *(memory(f"lake {number}") for number in range(1000)))
    ends: list[str] = []

    async def read() -> None:
        try:
            ends.append(f"{len(await store.memories.find(OURS, LIVE, limit=1000))} read")
        except StoreUnavailable as error:
            ends.append(str(error))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(read)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        await store.control.close()
    assert len(ends) == 8
    assert all(end == "1000 read" or "closed" in end for end in ends)


async def test_a_checkpoint_that_a_reader_blocks_is_made_up_for_by_the_next_erase(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    first, second = memory("axolotl one"), memory("axolotl two")
    await put(store, first, second)
    reader = reading(tmp_path / "memory.db")
    assert not (await store.memories.erase(OURS, [first.id], [], operation(kind="erase"))).complete
    assert not await store.memories.finish_erasures()
    assert reader.execute("SELECT count(*) FROM memory").fetchall() == [(2,)]
    reader.close()
    assert (await store.memories.erase(OURS, [second.id], [], operation(kind="erase"))).complete
    assert not [path for path in tmp_path.iterdir() if b"axolotl" in path.read_bytes()]
    assert (tmp_path / "tombstones.log").read_text().split() == [first.id, second.id]
    await store.control.close()


async def test_an_erase_left_unfinished_is_finished_after_the_store_was_opened_again(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    gone = memory("axolotl")
    await put(store, gone)
    reader = reading(tmp_path / "memory.db")
    assert not (await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"))).complete
    await store.control.close()
    reader.close()
    store = await opened(tmp_path)
    assert await store.memories.finish_erasures()
    await store.control.close()
    assert not [path for path in tmp_path.iterdir() if b"axolotl" in path.read_bytes()]
