"""Opening the file: making it, refusing what it cannot be, migrating it, and bundling the five roles."""

import logging
import os
from contextlib import ExitStack, closing
from pathlib import Path

import anyio.to_thread

from middleout_mcp.adapters.sqlite import audit, schema, vectors
from middleout_mcp.adapters.sqlite.ballast import Ballast
from middleout_mcp.adapters.sqlite.connection import (
    READERS,
    Connection,
    Database,
    connect,
    connect_immutable,
    connect_reader,
    explained,
)
from middleout_mcp.adapters.sqlite.control import Control
from middleout_mcp.adapters.sqlite.journal import Journal
from middleout_mcp.adapters.sqlite.memories import Memories
from middleout_mcp.adapters.sqlite.place import Place
from middleout_mcp.adapters.sqlite.search import Search
from middleout_mcp.adapters.sqlite.threads import Threads
from middleout_mcp.errors import StoreCorrupt, StoreUnavailable
from middleout_mcp.ports import Store

logger = logging.getLogger(__name__)


async def open_store(
    file: Path, *, embedder_name: str | None, dimension: int | None, synchronous: str = "full"
) -> Store:
    """Open the file, creating it and its folder. `dimension` None or 0: not known yet.

    Raises StoreCorrupt, StoreTooNew (the file is untouched then) or StoreUnavailable. A file that may only be read is
    opened for reading. Vectors of another model are no reason not to open: what needs them raises EmbedderMismatch.
    """
    database = await anyio.to_thread.run_sync(_open, file, synchronous)
    if embedder_name is not None and dimension and not database.read_only:
        name, length = embedder_name, dimension
        if await database.read(lambda connection: vectors.adoptable(connection, name, length)):
            await database.write(lambda connection: vectors.adopt(connection, name, length))
    return Store(
        Memories(database, embedder_name),
        Threads(database),
        Search(database, embedder_name),
        Journal(database),
        Control(database),
    )


def _open(file: Path, synchronous: str) -> Database:
    writable = _prepared(file)
    place = Place(file)
    ballast = Ballast(file.with_name(file.name + ".ballast"))
    if not writable:
        return Database(file, None, _readers(file, complete=True), ballast, place)
    with explained(file), ExitStack() as opened:
        _look_before_writing(file)
        writer = connect(file, writing=True, synchronous=synchronous)
        opened.callback(writer.close)
        schema.migrate(writer, file)
        _tell_of_losses(writer, file)
        readers = _readers(file)
        place.has_journal(Path(writer.filename_wal))
        opened.pop_all()  # all went well: nothing is closed here
    return Database(file, writer, readers, ballast, place)


def _readers(file: Path, *, complete: bool = False) -> list[Connection]:
    readers: list[Connection] = []
    with explained(file), ExitStack() as opened:
        for _ in range(READERS):
            readers.append(connect_reader(file))
            opened.callback(readers[-1].close)
        if complete:
            _check_complete(readers[0], file)
        opened.pop_all()
    return readers


def _tell_of_losses(writer: Connection, file: Path) -> None:
    try:
        with explained(file):
            lost = audit.put_lost_head_aside(writer, file.parent)
    except StoreCorrupt as error:  # what can still be read is worth opening for
        lost = str(error)
    if lost is not None:
        logger.warning("%s", lost)


def _check_complete(reader: Connection, file: Path) -> None:
    if schema.check(reader, file) < len(schema.MIGRATIONS):
        raise StoreUnavailable(f"{file} is read-only and empty or of an older version; make it writable once.")


def _look_before_writing(file: Path) -> None:
    """Refuse a newer file before a pragma could touch it, and without leaving a journal beside it.

    Where there is a journal, someone may be moving it into the file: only a connection that knows of it sees no damage.
    """
    if not file.stat().st_size:
        return
    journal = file.with_name(file.name + "-wal")
    if not journal.exists():
        try:
            with explained(file):
                _check(connect_immutable(file), file)
            return
        except StoreCorrupt:
            if not journal.exists():  # else another process has opened it meanwhile: look again, with its journal
                raise
    _check(connect_reader(file), file)


def _check(reader: Connection, file: Path) -> None:
    with closing(reader):
        schema.check(reader, file)


def _prepared(file: Path) -> bool:
    """Make the folder and the file, for this user alone. False where the file is there but cannot be written."""
    try:
        if file.is_dir():
            raise StoreUnavailable(f"{file} is a folder; set MIDDLEOUT_HOME to a folder without one of that name.")
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        if os.access(file, os.R_OK):
            return False
        raise StoreUnavailable(
            f"{file} cannot be made or read ({error.strerror}); set MIDDLEOUT_HOME to a folder that can be written."
        ) from None
    return os.access(file.parent, os.W_OK)
