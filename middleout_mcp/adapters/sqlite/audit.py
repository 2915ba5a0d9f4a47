"""The operation log as a hash chain, and its head outside the file.

Each operation's hash covers the hash before it, its own unchanging columns, and an HMAC of the content of every memory
version it wrote. The HMAC's key is random per memory and goes with it when it is erased: the chain then still verifies
over the stored HMACs, while nobody can test a guess of the text against them. The head, written beside the file after
every commit, shows when commits were lost that the file itself knows nothing of, as after a damaged journal. At opening
such a head is put aside, so that the next commit does not write over the only trace of what is missing.
"""

import errno
import hashlib
import hmac
import json
import logging
import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from middleout_mcp.adapters.sqlite.connection import Connection
from middleout_mcp.adapters.sqlite.rows import MEMORY, OPERATION, insert, to_json
from middleout_mcp.records import Memory, Operation

logger = logging.getLogger(__name__)

HEAD_NAME = "audit.head"
LOST_NAME = f"{HEAD_NAME}.lost-"
_HEAD_BYTES = 300  # more than a head has
_COLUMNS = ("namespace", *OPERATION.columns, "content", "hash")


@dataclass(frozen=True, slots=True)
class Head:
    """The newest operation: its number in the file, id and hash."""

    seq: int
    id: str
    hash: str


def next_seq(connection: Connection) -> int:
    """The number the next operation will have."""
    last = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'operation'").get
    return (last or 0) + 1


def new_key(connection: Connection, n: int) -> None:
    """Give a memory a fresh key for its HMACs; those made with an earlier one can no longer be checked by anyone."""
    connection.execute(
        "INSERT OR REPLACE INTO memory_key (memory, key, since) VALUES (?, ?, ?)",
        (n, secrets.token_bytes(32), next_seq(connection)),
    )


def seal(connection: Connection, n: int, memory: Memory) -> tuple[int, int, str]:
    """What the log keeps of a memory version: row number, version, HMAC of the content."""
    key = connection.execute("SELECT key FROM memory_key WHERE memory = ?", (n,)).get
    return n, memory.version, _hmac(key, memory)


def append(
    connection: Connection, namespace: int, operation: Operation, seals: Sequence[tuple[int, int, str]] = ()
) -> Head:
    """Add the operation to the chain."""
    last = connection.execute("SELECT hash FROM operation ORDER BY seq DESC LIMIT 1").get
    row = {**OPERATION.encode(operation), "namespace": namespace, "content": to_json(seals)}
    row["hash"] = _hash(last or "", _covered(row, operation.namespace))
    connection.execute(insert("operation", _COLUMNS), row)
    seq = connection.last_insert_rowid()
    connection.executemany(
        "INSERT INTO operation_memory (memory_id, operation) VALUES (?, ?)",
        [(memory_id, seq) for memory_id in dict.fromkeys(operation.memory_ids)],
    )
    return Head(seq, operation.id, row["hash"])


def write_head(folder: Path, head: Head) -> None:
    """Replace the head beside the file, unless another process has written a newer one. A failure is only logged:
    the operation is stored, and the head lags behind until the next one.
    """
    target = folder / HEAD_NAME
    draft = folder / f"{HEAD_NAME}.{os.getpid()}"
    try:
        known = read_head(folder)
        if known is not None and known.seq >= head.seq:
            return
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as stream:
            stream.write(f"{head.seq} {head.id} {head.hash}\n")
        os.replace(draft, target)
    except OSError as error:
        logger.warning("The audit head could not be written: %s", error.strerror)
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def read_head(folder: Path) -> Head | None:
    """The head beside the file; None where there is none, or none that can be read."""
    try:
        seq, operation_id, digest = _words(folder / HEAD_NAME)
        return Head(int(seq), operation_id, digest)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        logger.warning("The audit head beside the memory file cannot be read.")
        return None


def _words(file: Path) -> list[str]:
    """What stands in a head. Whatever else lies in its place is refused: a pipe would be waited for, and a device read
    without end. Raises OSError or ValueError.
    """
    with open(os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a file", str(file))
        return stream.read(_HEAD_BYTES).decode("ascii").split()


def last(connection: Connection) -> Head | None:
    """The newest operation that the file has."""
    row: Any = connection.execute("SELECT seq, id, hash FROM operation ORDER BY seq DESC LIMIT 1").fetchone()
    return None if row is None else Head(*row)


def missing(connection: Connection, folder: Path) -> Head | None:
    """The head beside the file, where it names an operation that the file does not have. The head is read first:
    another process writes it after its commit.
    """
    return _not_held(connection, read_head(folder))


def _not_held(connection: Connection, head: Head | None) -> Head | None:
    if head is None:
        return None
    found = connection.execute("SELECT hash FROM operation WHERE seq = ? AND id = ?", (head.seq, head.id)).get
    return None if found == head.hash else head


def put_lost_head_aside(connection: Connection, folder: Path) -> str | None:
    """Where operations are missing: keep the head that tells of them under another name, start anew from what the file
    has, and return a sentence about it.
    """
    lost = _lost_now(connection, folder)
    if lost is None:
        return None
    kept = f"{LOST_NAME}{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    try:
        os.replace(folder / HEAD_NAME, folder / kept)
        with open(folder / kept, "a", encoding="ascii") as stream:
            stream.write(f"{lost.held}\n")
    except FileNotFoundError:  # another process that opens the file was faster
        return lost.sentence()
    except OSError as error:
        logger.warning("The audit head could not be put aside: %s", error.strerror)
        return lost.sentence()
    if (head := last(connection)) is not None:
        write_head(folder, head)
    return replace(lost, name=kept).sentence()


def losses(connection: Connection, folder: Path) -> list[str]:
    """A sentence for each head that tells of operations which the file does not have, until its file is removed."""
    found = [_lost_now(connection, folder), *map(_lost_before, sorted(folder.glob(f"{LOST_NAME}*")))]
    return [lost.sentence() for lost in found if lost is not None]


@dataclass(frozen=True, slots=True)
class _Lost:
    """That the file ended at operation `held` when the head called `name` had `named` as the last one."""

    named: int
    held: int
    name: str

    def sentence(self) -> str:
        first, named = min(self.held + 1, self.named), self.named
        which = f"Operation {named} is" if first == named else f"Operations {first} to {named} are"
        return (
            f"{which} missing in the memory file: its journal was lost or damaged, or an older copy took its place. "
            f"{self.name} beside it is the proof; remove that when you have seen this."
        )


def _lost_now(connection: Connection, folder: Path) -> _Lost | None:
    head = missing(connection, folder)
    held = last(connection)
    return None if head is None else _Lost(head.seq, held.seq if held else 0, HEAD_NAME)


def _lost_before(kept: Path) -> _Lost | None:
    try:
        named, _, _, held = _words(kept)
        return _Lost(int(named), int(held), kept.name)
    except (OSError, ValueError):
        return _Lost(0, 0, kept.name)


def first_fault(connection: Connection, folder: Path) -> str | None:
    """Walk the whole chain; a sentence about the first thing that does not fit, or None."""
    head = read_head(folder)  # before the first read of the file: another process may be writing to both
    previous = ""
    names = dict(connection.execute("SELECT n, name FROM namespace"))
    columns = ", ".join(f'"{column}"' for column in ("seq", *_COLUMNS))
    for values in connection.execute(f"SELECT {columns} FROM operation ORDER BY seq"):
        row = dict(zip(("seq", *_COLUMNS), values, strict=True))
        if _hash(previous, _covered(row, names[row["namespace"]])) != row["hash"]:
            return f"Operation {row['id']} was changed, or one before it is missing."
        for n, version, sealed in json.loads(row["content"]):
            if _content_changed(connection, row["seq"], n, version, sealed):
                return f"The content that operation {row['id']} wrote was changed."
        previous = row["hash"]
    if _not_held(connection, head) is not None:
        return "Operations are missing at the end: the head beside the file names one that the file does not have."
    return None


def _content_changed(connection: Connection, seq: int, n: int, version: int, sealed: str) -> bool:
    key = connection.execute("SELECT key FROM memory_key WHERE memory = ? AND since <= ?", (n, seq)).get
    if key is None:  # erased, or redacted since
        return False
    current = connection.execute(
        f"SELECT {MEMORY.select('m')} FROM memory m WHERE n = ? AND version = ?", (n, version)
    ).fetchone()
    if current is not None:
        return _hmac(key, MEMORY.decode(current, "")) != sealed
    packed = connection.execute("SELECT record FROM memory_version WHERE memory = ? AND version = ?", (n, version)).get
    return packed is not None and _hmac(key, MEMORY.unpack(packed, "")) != sealed


def _hmac(key: bytes, memory: Memory) -> str:
    content = [memory.version, memory.text, memory.key, memory.value, memory.scope, memory.tags, memory.known_by]
    return hmac.new(key, to_json(content).encode(), hashlib.sha256).hexdigest()


def _covered(row: dict[str, Any], namespace: str) -> str:
    """What the hash covers: not `undone_by` and `undoable`, which change, nor the reason, which may be taken out."""
    parts = [row[name] for name in ("id", "kind", "at", "agent", "session", "memory_ids", "episode_ids", "counts")]
    more = [] if row["part_of"] is None else [row["part_of"]]  # no operation had this field at first
    return to_json([namespace, *parts, row["undoes"], row["content"], *more])


def _hash(previous: str, covered: str) -> str:
    return hashlib.sha256(f"{previous}|{covered}".encode()).hexdigest()
