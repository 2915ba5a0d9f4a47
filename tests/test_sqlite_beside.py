"""What lies beside the SQLite file in the place of one of its own files: named, and never waited for."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from middleout_mcp.adapters.sqlite import audit, open_store
from middleout_mcp.errors import StoreUnavailable
from tests.contract.builders import LIVE, OURS, found, memory, open_sqlite, operation, put

pytestmark = pytest.mark.anyio


def a_pipe(place: Path) -> None:
    os.mkfifo(place)


def a_device(place: Path) -> None:
    place.symlink_to("/dev/zero")


def a_long_file(place: Path) -> None:
    place.with_name("long").write_bytes(b"7 op_x 00 " * 1_000_000)
    place.symlink_to(place.with_name("long"))


@pytest.mark.parametrize("lay", [a_pipe, a_device, a_long_file])
async def test_what_is_no_head_of_the_log_is_neither_waited_for_nor_read_to_its_end(
    tmp_path: Path, lay: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    lay(tmp_path / audit.HEAD_NAME)
    lay(tmp_path / f"{audit.LOST_NAME}20260301T120000Z")
    assert audit.read_head(tmp_path) is None
    store = await open_sqlite(tmp_path)
    await put(store, memory("kept"))
    assert len((await store.control.health())["lost"]) == 1
    await store.control.close()
    assert (tmp_path / audit.HEAD_NAME).read_text().startswith("1 ")
    assert not (tmp_path / audit.HEAD_NAME).is_symlink()
    assert "cannot be read" in caplog.text


async def test_a_folder_in_the_place_of_the_ballast_is_named_and_nothing_is_stored(tmp_path: Path) -> None:
    (tmp_path / "memory.db.ballast").mkdir()
    store = await open_store(tmp_path / "memory.db", embedder_name=None, dimension=None)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"memory\.db\.ballast is in the way.*move it away"):
            await put(store, memory("x"))
    assert await found(store, LIVE) == []
    (tmp_path / "memory.db.ballast").rmdir()
    await put(store, memory("x"))
    await store.control.close()


@pytest.mark.parametrize("lay", [Path.mkdir, a_pipe])
async def test_what_is_in_the_place_of_the_tombstones_is_named_and_the_erasure_stays_pending(
    tmp_path: Path, lay: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    lay(tmp_path / "tombstones.log")
    store = await open_sqlite(tmp_path)
    gone = memory("axolotl")
    await put(store, gone)
    erasure = await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"))
    assert not erasure.complete
    assert await found(store, LIVE) == []
    (told,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "tombstones.log is in the way" in told
    (tmp_path / "tombstones.log").rmdir() if lay is Path.mkdir else (tmp_path / "tombstones.log").unlink()
    assert await store.memories.finish_erasures()
    assert gone.id in (tmp_path / "tombstones.log").read_text()
    await store.control.close()
