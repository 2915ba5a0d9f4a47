"""The only importer of apsw: opening the file, transactions in worker threads, and errors as sentences.

One connection writes, two read. A connection may be used by one thread at a time, so each has a limiter (tasks queue
there, and may be cancelled while they do) and a lock (which a thread holds while it runs). The lock matters where a
read was cancelled: its task lets go of the limiter at once, while the thread runs on until the interrupt reaches it. A
write is one function run in one thread from BEGIN IMMEDIATE to COMMIT; no cancellation can stop between the two.
"""

import importlib.util
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import anyio
import anyio.to_thread
import apsw

from middleout_mcp.adapters.sqlite import faults
from middleout_mcp.adapters.sqlite.ballast import Ballast
from middleout_mcp.adapters.sqlite.place import Place
from middleout_mcp.adapters.sqlite.rows import Unreadable
from middleout_mcp.errors import Conflict, InvalidInput, MiddleoutError, StoreClosed, StoreCorrupt, StoreUnavailable

Connection: TypeAlias = apsw.Connection
T = TypeVar("T")

BUSY_MS = 5_000
_CLOSED = "The store was closed during the call; call again, or start the server again."
_CHECKPOINT_MS = 250
_JOURNAL_PAGES = 500  # 2 MiB: on a full disk the ballast must be enough to move the journal into the file
_ROOM_A_PAGE = 8192  # a page of the journal, and the same page moved into the file
_JOURNAL_LIMIT = 4 * 1024 * 1024
READERS = 2
_FULL_IO = {apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_TRUNCATE}
_TAKEN = {apsw.SQLITE_CONSTRAINT_UNIQUE, apsw.SQLITE_CONSTRAINT_PRIMARYKEY, apsw.SQLITE_CONSTRAINT_ROWID}
_DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, UnicodeDecodeError, json.JSONDecodeError, Unreadable)
# SQLite's JSON functions and sqlite-vec give a plain error for what they cannot read.
_DAMAGED_PLAIN = re.compile(r"\bchunks?\b|\bblob\b|sqlite-vec error|malformed JSON")
_MISSHAPEN = re.compile(r"no such (table|column|index)|already exists|no column named|has \d+ columns? but")
_TOO_MUCH = re.compile(r"too many|too large|too deep|stack overflow", re.IGNORECASE)
_SYNCHRONOUS = {"normal": 1, "full": 2}


@dataclass(slots=True)
class _Line:
    """A connection with its queue of tasks and the lock of the thread that uses it."""

    connection: Connection
    limiter: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    lock: threading.Lock = field(default_factory=threading.Lock)
    reading: threading.Event | None = None  # the read that runs now, by the event that abandons it
    guard: threading.Lock = field(default_factory=threading.Lock)  # of `reading`, so that no other read is interrupted

    @contextmanager
    def running(self, read: threading.Event) -> Iterator[None]:
        with self.guard:
            self.reading = read
        try:
            yield
        finally:
            with self.guard:
                self.reading = None

    def abandon(self, read: threading.Event) -> None:
        read.set()
        with self.guard:
            if self.reading is read:
                self.connection.interrupt()


class Database:
    """The open file. `work` functions get a connection inside a transaction and must not keep it."""

    def __init__(
        self, file: Path, writer: Connection | None, readers: list[Connection], ballast: Ballast, place: Place
    ) -> None:
        self.file = file
        self._place = place
        self._writer = _Line(writer) if writer else None
        self._readers = [_Line(reader) for reader in readers]
        self._ballast = ballast
        self._journal_pages = _JOURNAL_PAGES
        self._closing = anyio.CapacityLimiter(1)
        self._closed = False

    @property
    def read_only(self) -> bool:
        """Whether the file could only be opened for reading."""
        return self._writer is None

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on one snapshot of the file; a cancelled caller interrupts the query."""
        line = min(
            self._readers, key=lambda line: (line.limiter.borrowed_tokens, line.limiter.statistics().tasks_waiting)
        )
        abandoned = threading.Event()
        try:
            return await anyio.to_thread.run_sync(
                self._snapshot, line, work, abandoned, abandon_on_cancel=True, limiter=line.limiter
            )
        except anyio.get_cancelled_exc_class():
            line.abandon(abandoned)
            raise

    async def write(
        self, work: Callable[[Connection], T], *, after: Callable[[T], None] | None = None, reserve: bool = False
    ) -> T:
        """Run `work` in one immediate transaction, then `after` with its result once that is durable.

        With `reserve`, for what frees space, a full disk is met by giving up the ballast and trying once more.
        """
        return await anyio.to_thread.run_sync(self._transact, work, after, reserve, limiter=self._write_line().limiter)

    async def truncate_journal(self) -> bool:
        """Move the write-ahead log into the file and empty it; False while a reader of any process needs it."""
        line = self._write_line()
        return await anyio.to_thread.run_sync(self._checkpoint, line, limiter=line.limiter)

    async def close(self) -> None:
        """Wait for the running write, interrupt the reads, close everything. Safe to call twice."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._close, limiter=self._closing)

    def _write_line(self) -> _Line:
        if self._writer is None:
            raise StoreUnavailable(f"{self.file} is read-only; make it and its folder writable to store anything.")
        return self._writer

    def _snapshot(self, line: _Line, work: Callable[[Connection], T], abandoned: threading.Event) -> T:
        with line.lock, explained(self.file):
            if self._closed or abandoned.is_set():
                raise StoreClosed(_CLOSED)
            self._place.check()
            with line.running(abandoned), _transaction(line.connection, "BEGIN"):
                return work(line.connection)

    def _transact(self, work: Callable[[Connection], T], after: Callable[[T], None] | None, reserve: bool) -> T:
        line = self._write_line()
        with line.lock, explained(self.file):
            if self._closed:
                raise StoreClosed(_CLOSED)
            self._place.check()
            if not reserve:
                self._keep_ballast(line)
            try:
                result = _commit(line.connection, work, self._place)
            except (apsw.FullError, apsw.IOError) as error:
                if not _is_full(error):
                    raise
                self._ballast.free()
                _make_room(line.connection)
                if not reserve:
                    self._ballast.ready(_spare(line.connection))  # before anyone else takes the room
                    raise
                result = _commit(line.connection, work, self._place)
            if after is not None:
                after(result)
            return result

    def _keep_ballast(self, line: _Line) -> None:
        """See that an erase would find room: raises where there is none, and keeps the journal as small as needed."""
        if self._ballast.whole and self._journal_pages == _JOURNAL_PAGES:
            return
        if not (size := self._ballast.ready(_spare(line.connection))):
            raise StoreUnavailable(faults.full(self.file))
        if (pages := min(_JOURNAL_PAGES, size // _ROOM_A_PAGE)) != self._journal_pages:
            line.connection.wal_autocheckpoint(pages)
            self._journal_pages = pages

    def _checkpoint(self, line: _Line) -> bool:
        with line.lock, explained(self.file):
            return not self._closed and _truncate(line.connection)

    def _close(self) -> None:
        """Readers first: the last connection to close moves the journal into the file, which readers may not."""
        if self._closed:
            return
        if self._writer is not None:
            with self._writer.lock:
                self._closed = True
        self._closed = True
        for line in self._readers:
            line.connection.interrupt()
            with line.lock:
                line.connection.close()
        if self._writer is not None:
            with self._writer.lock, explained(self.file):
                self._writer.connection.set_busy_timeout(_CHECKPOINT_MS)
                if self._place.has_anothers_journal():
                    self._writer.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                self._writer.connection.close()
                self._place.leave()


def connect(file: Path, *, writing: bool, synchronous: str) -> Connection:
    """Open an existing file with sqlite-vec and every pragma set and checked. Raises apsw errors."""
    flags = apsw.SQLITE_OPEN_READWRITE if writing else apsw.SQLITE_OPEN_READONLY
    connection = apsw.Connection(str(file), flags=flags)
    try:
        prepare(connection, writing=writing, synchronous=synchronous)
    except apsw.Error:
        connection.close()
        raise
    return connection


def connect_reader(file: Path) -> Connection:
    """Open a file for reading, journal and locks included, without touching it; where the medium allows no journal,
    the file alone. The latter must stay the exception: it sees a checkpoint that is under way as damage.
    """
    try:
        return connect(file, writing=False, synchronous="full")
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        return connect_immutable(file)


def connect_immutable(file: Path) -> Connection:
    """Open the file alone, making no journal beside it; what a journal holds is not seen. Only where none is in use."""
    uri = f"{file.absolute().as_uri()}?immutable=1"
    connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        prepare(connection, writing=False, synchronous="full")
    except apsw.Error:
        connection.close()
        raise
    return connection


def prepare(connection: Connection, *, writing: bool, synchronous: str) -> None:
    """Load sqlite-vec by its path (importing the package would import numpy) and set the pragmas."""
    connection.set_busy_timeout(BUSY_MS)
    connection.enable_load_extension(True)
    connection.load_extension(_vec0())
    connection.enable_load_extension(False)
    # Temporary tables stay in memory: a sort must not leave memory text in a temporary file.
    pragmas: dict[str, Any] = {"secure_delete": 1, "foreign_keys": 1, "temp_store": 2}
    if writing:
        _set_wal(connection)
        pragmas |= {"synchronous": _SYNCHRONOUS[synchronous], "journal_size_limit": _JOURNAL_LIMIT}
        pragmas["wal_autocheckpoint"] = _JOURNAL_PAGES
    else:
        pragmas["query_only"] = 1
    for name, value in pragmas.items():
        connection.pragma(name, value)
        if (found := connection.pragma(name)) != value:
            raise StoreUnavailable(f"SQLite refused {name} = {value} (it says {found}); nothing was opened.")
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()


def _set_wal(connection: Connection) -> None:
    """Switch to the write-ahead log. Two processes that make the file together collide here; SQLite does not wait."""
    deadline = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            mode = connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        if mode != "wal":
            raise StoreUnavailable(f"SQLite refused the write-ahead log (it says {mode}); is this a network folder?")
        return


def _vec0() -> str:
    spec = importlib.util.find_spec("sqlite_vec")
    if spec is None or spec.origin is None:
        raise StoreUnavailable("The package sqlite-vec is missing; install middleout-mcp again.")
    return os.path.join(os.path.dirname(spec.origin), "vec0")


@contextmanager
def explained(file: Path) -> Iterator[None]:
    """Turn what goes wrong with the file into an error of ours: one sentence with the mend."""
    try:
        yield
    except UnicodeEncodeError:
        raise InvalidInput("A text holds half of a surrogate pair, which is no character; remove it.") from None
    except (apsw.Error, OSError, UnicodeDecodeError, json.JSONDecodeError, Unreadable) as error:
        ours = faults.of_system(error, file) if isinstance(error, OSError) else _explanation(error, file)
        if ours is None:
            raise
        raise ours from error


def _explanation(error: Exception, file: Path) -> MiddleoutError | None:
    if isinstance(error, _DAMAGED):
        return StoreCorrupt(faults.damaged(file))
    if isinstance(error, apsw.SQLError | apsw.TooBigError):
        return _of_statement(error, file)
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"Another process has been writing to {file} for {BUSY_MS // 1000} s; try again.")
        case apsw.ConstraintError() if getattr(error, "extendedresult", None) in _TAKEN:
            return Conflict("Another writer stored the same record first; read it again and retry.")
        case apsw.ReadOnlyError():
            return StoreUnavailable(f"{file} is read-only; make it and its folder writable to store anything.")
        case apsw.FullError() | apsw.IOError() if _is_full(error):
            return StoreUnavailable(faults.full(file))
        case apsw.IOError():
            return StoreUnavailable(faults.unreadable(file))
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return StoreUnavailable(faults.forbidden(file))
        case apsw.InterruptError():
            return StoreClosed(_CLOSED)
    return None


def _of_statement(error: apsw.Error, file: Path) -> MiddleoutError | None:
    """What SQLite refuses to run: our statements are right, so it is the tables, or how much is given at once."""
    message = str(error)
    if isinstance(error, apsw.TooBigError):
        return InvalidInput("A text is longer than SQLite can hold; split it.")
    if _DAMAGED_PLAIN.search(message):
        return StoreCorrupt(faults.damaged(file))
    if _MISSHAPEN.search(message):
        return StoreCorrupt(faults.misshapen(file))
    if _TOO_MUCH.search(message):
        return InvalidInput("The call names more things than one search can take; name fewer of them.")
    return None


def _is_full(error: apsw.Error) -> bool:
    return isinstance(error, apsw.FullError) or getattr(error, "extendedresult", None) in _FULL_IO


def _commit(connection: Connection, work: Callable[[Connection], T], place: Place) -> T:
    with _transaction(connection, "BEGIN IMMEDIATE"):
        result = work(connection)
        place.check()
        connection.execute("COMMIT")
        return result


@contextmanager
def _transaction(connection: Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
    finally:
        if connection.in_transaction:  # not committed: an error, or a read
            connection.execute("ROLLBACK")


def _spare(connection: Connection) -> int:
    """Bytes of the pages in the file that hold nothing."""
    pages, size = (int(connection.pragma(name)) for name in ("freelist_count", "page_size"))
    return pages * size


def _make_room(connection: Connection) -> None:
    """Empty the journal if that works; on a disk still full the next write may fit all the same."""
    try:
        _truncate(connection)
    except (apsw.FullError, apsw.IOError) as error:
        if not _is_full(error):
            raise


def _truncate(connection: Connection) -> bool:
    connection.set_busy_timeout(_CHECKPOINT_MS)
    try:
        left, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError):
        return False
    finally:
        connection.set_busy_timeout(BUSY_MS)
    return left == 0
