"""A SQLite file that is sound, but does not have the tables that it says it has."""

from pathlib import Path

import pytest

from middleout_mcp.adapters.sqlite import connection, schema
from middleout_mcp.errors import StoreCorrupt
from tests.contract.builders import OURS, memory, open_sqlite, put

pytestmark = pytest.mark.anyio


async def altered(folder: Path, statements: str) -> None:
    """A file with one memory, changed behind our back."""
    store = await open_sqlite(folder)
    await put(store, memory("kept"))
    await store.control.close()
    raw = connection.connect(folder / "memory.db", writing=True, synchronous="full")
    raw.execute(statements)
    raw.close()


@pytest.mark.parametrize("version", [0, -5, 1, len(schema.MIGRATIONS) - 1])
async def test_a_file_that_names_a_version_which_is_not_its_own_is_told_and_left(tmp_path: Path, version: int) -> None:
    await altered(tmp_path, f"PRAGMA user_version = {version}")
    before = (tmp_path / "memory.db").read_bytes()
    for _ in range(2):
        with pytest.raises(
            StoreCorrupt, match=rf"schema version {version}\b.*version {len(schema.MIGRATIONS)};.*backup"
        ):
            await open_sqlite(tmp_path)
    assert (tmp_path / "memory.db").read_bytes() == before


async def test_a_file_without_its_list_of_migrations_is_told(tmp_path: Path) -> None:
    await altered(tmp_path, "DROP TABLE migration")
    with pytest.raises(StoreCorrupt, match=r"does not have the tables.*backup"):
        await open_sqlite(tmp_path)


async def test_a_table_or_column_that_is_missing_is_told_where_it_is_needed(tmp_path: Path) -> None:
    await altered(tmp_path, "DROP TABLE session; ALTER TABLE operation RENAME COLUMN counts TO sums")
    store = await open_sqlite(tmp_path)
    for call in (
        store.threads.sessions(OURS, limit=9),
        store.journal.operations(OURS, limit=9),
        put(store, memory("new")),
    ):
        with pytest.raises(StoreCorrupt, match=r"does not have the tables.*backup"):
            await call
    await store.control.close()
