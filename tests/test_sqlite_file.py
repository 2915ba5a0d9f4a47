"""What holds of the SQLite file alone: migrations, pragmas, the audit chain, readers in the way of an erase."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from middleout_mcp.adapters.sqlite import audit, connection, open_store, schema
from middleout_mcp.errors import StoreTooNew, StoreUnavailable
from middleout_mcp.ports import Store
from middleout_mcp.records import Change, Run
from tests.contract.builders import LIVE, NOW, OURS, found, memory, operation, put, turn

pytestmark = pytest.mark.anyio


async def opened(folder: Path) -> Store:
    return await open_store(folder / "memory.db", embedder_name=None, dimension=None)


def bare(file: Path) -> connection.Connection:
    """A connection of our own beside the store's."""
    file.touch()
    return connection.connect(file, writing=True, synchronous="full")


async def test_a_file_of_every_earlier_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    for version in range(len(schema.MIGRATIONS)):
        folder = tmp_path / str(version)
        folder.mkdir()
        early = bare(folder / "memory.db")
        assert schema.migrate(early, folder, schema.MIGRATIONS[:version]) == version
        early.close()
        store = await opened(folder)
        assert (await store.control.health())["schema_version"] == len(schema.MIGRATIONS)
        await put(store, memory("after the migration"))
        await store.control.close()


def made_older(file: Path) -> None:
    """Take away what the newest migration added, as if an earlier version had written the file."""
    early = bare(file)
    early.execute(
        "DROP INDEX operation_part; ALTER TABLE operation DROP COLUMN part_of; DROP INDEX run_status;"
        "DROP TABLE lease; DROP TABLE job; DELETE FROM migration WHERE name = '0006_jobs'; PRAGMA user_version = 5"
    )
    early.close()


async def test_a_file_with_memories_from_before_there_were_jobs_keeps_all_and_its_log_verifies(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    first = await put(store, memory("from before", id="m_1"))
    await put(store, memory("also from before"))
    undone = await store.journal.undo(OURS, first.id, operation(kind="restore"))
    run = Run(id="run_1", namespace="ours", status="planned", target="x", plan={}, created_at=NOW, updated_at=NOW)
    await store.control.save_run(OURS, run)
    before = await store.journal.operations(OURS)
    await store.control.close()
    made_older(tmp_path / "memory.db")
    store = await opened(tmp_path)
    assert await store.journal.operations(OURS) == before
    assert await store.control.run(OURS, "run_1") == run
    assert await found(store, LIVE) == ["also from before"]
    await store.journal.undo(OURS, undone.id, operation(kind="restore"))
    whole = await put(store, memory("after"))
    await store.memories.commit(
        OURS, Change(operation=operation(part_of=whole.id), memories=(memory("in a second part"),))
    )
    assert sorted(await found(store, LIVE)) == ["after", "also from before", "from before", "in a second part"]
    await store.control.close()
    plain = bare(tmp_path / "memory.db")
    assert audit.first_fault(plain, tmp_path) is None
    plain.execute("UPDATE operation SET part_of = NULL")
    assert audit.first_fault(plain, tmp_path) is not None  # the log covers what continues what
    plain.close()


def test_a_migration_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    raw = bare(file)
    schema.migrate(raw, file)
    broken = (*schema.MIGRATIONS, ("0099_broken", "CREATE TABLE half (x); SELECT no_such_function();"))
    with pytest.raises(Exception, match="no_such_function"):
        schema.migrate(raw, file, broken)
    assert schema.check(raw, file) == len(schema.MIGRATIONS)
    assert raw.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'half'").get == 0
    raw.close()


async def test_a_newer_file_and_one_of_another_program_are_refused_untouched(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE recipes (name)")
    other.close()
    before = file.read_bytes()
    with pytest.raises(StoreUnavailable, match="another program"):
        await opened(tmp_path)
    assert file.read_bytes() == before
    file.unlink()
    raw = bare(file)
    schema.migrate(raw, file, (*schema.MIGRATIONS, ("9999_future", "CREATE TABLE future (x)")))
    raw.close()
    before = file.read_bytes()
    with pytest.raises(StoreTooNew, match="untouched"):
        await opened(tmp_path)
    assert file.read_bytes() == before


async def test_folder_and_files_are_for_this_user_alone(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    store = await opened(home)
    await put(store, memory("x"))
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
    assert set(modes.values()) == {0o600}, modes
    await store.control.close()


def test_pragmas_are_set_on_writers_and_readers(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    writer = bare(file)
    schema.migrate(writer, file)
    reader = connection.connect(file, writing=False, synchronous="full")
    for each in (writer, reader):
        assert [each.pragma(name) for name in ("journal_mode", "secure_delete", "foreign_keys")] == ["wal", 1, 1]
        assert each.pragma("busy_timeout") == 5_000
    assert writer.pragma("synchronous") == 2
    assert reader.pragma("query_only") == 1
    options = dict(writer.execute("SELECT k, v FROM full_text_config").fetchall())
    assert options["secure-delete"] == 1
    reader.close()
    writer.close()


async def test_the_audit_chain_holds_after_work_and_erase_and_shows_a_changed_row(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    kept, gone = memory("kept"), memory("gone")
    await put(store, kept, gone)
    await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"))
    raw = bare(tmp_path / "memory.db")
    assert audit.first_fault(raw, tmp_path) is None
    raw.execute("UPDATE memory SET text = 'forged' WHERE id = ?", (kept.id,))
    assert "was changed" in (audit.first_fault(raw, tmp_path) or "")
    raw.execute("UPDATE memory SET text = 'kept' WHERE id = ?", (kept.id,))
    assert audit.first_fault(raw, tmp_path) is None
    raw.execute("UPDATE operation SET agent = 'mallory' WHERE seq = 1")
    assert "was changed" in (audit.first_fault(raw, tmp_path) or "")
    raw.close()
    await store.control.close()


async def test_operations_lost_at_the_end_are_shown_by_the_head_outside_the_file(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await put(store, memory("first"))
    await store.control.close()
    copy = (tmp_path / "memory.db").read_bytes()
    store = await opened(tmp_path)
    await put(store, memory("second"))
    await store.control.close()
    (tmp_path / "memory.db").write_bytes(copy)  # as after a journal that was lost
    raw = bare(tmp_path / "memory.db")
    assert "missing at the end" in (audit.first_fault(raw, tmp_path) or "")
    raw.close()


async def test_a_reader_makes_an_erase_pending_and_it_is_finished_when_the_reader_ends(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    gone = memory("The word is axolotl9.")
    await put(store, gone, turns=(turn(1, "axolotl9"),))
    other = bare(tmp_path / "memory.db")
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM memory").fetchall()
    erased = await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"))
    assert not erased.complete
    assert await store.memories.get(OURS, [gone.id]) == []
    other.execute("COMMIT")
    other.close()
    assert await store.memories.finish_erasures()
    await store.control.close()
    held = [path.name for path in tmp_path.iterdir() if b"The word is axolotl9" in path.read_bytes()]
    assert held == []
    assert gone.id in (tmp_path / "tombstones.log").read_text()


async def test_two_stores_on_one_file_see_each_others_writes_at_once(tmp_path: Path) -> None:
    one, two = await opened(tmp_path), await opened(tmp_path)
    for number in range(20):
        await put(one if number % 2 else two, memory(f"n{number}"))
        assert len(await found(two if number % 2 else one, LIVE)) == number + 1
    await one.control.close()
    assert len(await found(two, LIVE)) == 20
    await two.control.close()


async def test_a_python_that_cannot_load_extensions_is_no_hindrance(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    health = await store.control.health()
    assert tuple(map(int, health["sqlite_version"].split("."))) >= (3, 51, 3)
    assert os.path.samefile(health["path"], tmp_path / "memory.db")
    await store.control.close()
