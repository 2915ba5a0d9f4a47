"""What opening must not be misled by: another process that is moving the journal into the file, or died doing so."""

import shutil
import struct
from pathlib import Path

import apsw
import pytest

from middleout_mcp.adapters.sqlite import open_store
from middleout_mcp.errors import StoreTooNew
from tests.contract.builders import DIMENSION, LIVE, found, memory, open_sqlite, put

pytestmark = pytest.mark.anyio

FRAME_HEADER, JOURNAL_HEADER, PAGE = 24, 32, 4096


def first_page_of_journal(journal: bytes) -> bytes:
    """The newest first page in a write-ahead log."""
    newest = b""
    for start in range(JOURNAL_HEADER, len(journal), FRAME_HEADER + PAGE):
        (number,) = struct.unpack(">I", journal[start : start + 4])
        if number == 1:
            newest = journal[start + FRAME_HEADER : start + FRAME_HEADER + PAGE]
    return newest


async def test_a_file_whose_checkpoint_was_killed_half_way_opens_with_everything_in_it(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path)
    await put(store, memory("kept"))
    journal = (tmp_path / "memory.db-wal").read_bytes()
    await store.control.close()
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "memory.db").write_bytes(first_page_of_journal(journal))
    (tmp_path / "killed" / "memory.db-wal").write_bytes(journal)
    again = await open_sqlite(tmp_path / "killed")
    assert await found(again, LIVE) == ["kept"]
    await again.control.close()


async def test_a_newer_version_that_only_the_journal_tells_is_refused_with_file_and_journal_untouched(
    tmp_path: Path,
) -> None:
    store = await open_sqlite(tmp_path)
    await store.control.close()
    newer = apsw.Connection(str(tmp_path / "memory.db"))
    newer.pragma("user_version", 99)
    (tmp_path / "killed").mkdir()
    names = ("memory.db", "memory.db-wal")
    for name in names:
        shutil.copy(tmp_path / name, tmp_path / "killed" / name)
    newer.close()
    before = [(tmp_path / "killed" / name).read_bytes() for name in names]
    with pytest.raises(StoreTooNew, match="99"):
        await open_store(tmp_path / "killed" / "memory.db", embedder_name="fake-words", dimension=DIMENSION)
    assert [(tmp_path / "killed" / name).read_bytes() for name in names] == before
