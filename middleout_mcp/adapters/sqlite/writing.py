"""A `Change`, applied inside one transaction: memories with versions, indexes, turns, episodes, and the operation."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from middleout_mcp.adapters.sqlite import audit, fulltext, namespaces, vectors
from middleout_mcp.adapters.sqlite.connection import Connection
from middleout_mcp.adapters.sqlite.rows import (
    EPISODE,
    MEMORY,
    SESSION,
    TURN,
    assignments,
    from_ms,
    insert,
    to_ms,
    upsert,
)
from middleout_mcp.errors import Conflict, InvalidInput
from middleout_mcp.records import Change, Episode, Grant, Memory, Operation, Session, Turn, Use, Vector
from middleout_mcp.words import fold

_MEMORY_COLUMNS = ("namespace", *MEMORY.columns, "embedded_next", "text_hash")
_INSERT_MEMORY = insert("memory", _MEMORY_COLUMNS)
_UPDATE_MEMORY = f"UPDATE memory SET {assignments(_MEMORY_COLUMNS)} WHERE n = :n"


@dataclass(frozen=True, slots=True)
class Written:
    """A memory as it was stored, and the version it replaced."""

    n: int
    memory: Memory
    before: int | None


@dataclass(frozen=True, slots=True)
class Applied:
    """What a transaction left: the operation as stored, and the new head of the log."""

    operation: Operation
    head: audit.Head


def apply(connection: Connection, grant: Grant, change: Change, embedder: str | None) -> Applied:
    """Write everything. Raises as `MemoryStore.commit` tells."""
    operation = change.operation
    sessions = [] if change.session is None else [change.session]
    namespace = namespaces.ensure(connection, grant, [*change.memories, *change.episodes, *sessions, operation])
    if not change.vectors.keys() <= {memory.id for memory in change.memories}:
        raise InvalidInput("A vector was given for a memory that is not part of the change.")
    _check_whole(connection, namespace, operation)
    if embedder is not None and change.vectors and vectors.space(connection).name is None:
        vectors.adopt(connection, embedder, len(next(iter(change.vectors.values()))) // 4)
    space = vectors.space(connection)
    for vector in change.vectors.values():
        vectors.checked(vector, space.require(embedder, len(vector)))
    written = [
        write_memory(connection, space, namespace, memory, change.vectors.get(memory.id)) for memory in change.memories
    ]
    append_turns(connection, namespace, operation, change.turns)
    named = [episode.thread for episode in change.episodes] + [memory.thread for memory in change.memories]
    for thread in dict.fromkeys(filter(None, named)):
        ensure_thread(connection, namespace, thread, operation)
    episodes = [write_episode(connection, namespace, episode) for episode in change.episodes]
    if change.session is not None:
        write_session(connection, namespace, change.session)
    note_uses(connection, namespace, change.uses)
    operation = replace(
        operation,
        memory_ids=_union(operation.memory_ids, (memory.id for memory in change.memories)),
        episode_ids=_union(operation.episode_ids, (episode.id for episode in change.episodes)),
        undoable=undo_is_kept(change),
    )
    seals = [audit.seal(connection, row.n, row.memory) for row in written]
    head = audit.append(connection, namespace, operation, seals)
    if operation.undoable:
        keep_undo(connection, head.seq, written, episodes)
    return Applied(operation, head)


def undo_is_kept(change: Change) -> bool:
    """Whether there is anything to put back: turns and uses alone stay."""
    return change.operation.undoable and bool(change.memories or change.episodes)


def _union(given: Iterable[str], touched: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*given, *touched]))


def _check_whole(connection: Connection, namespace: int, operation: Operation) -> None:
    """Raise Conflict where the operation continues one that does not stand (any more)."""
    if operation.part_of is None:
        return
    stands = connection.execute(
        "SELECT 1 FROM operation WHERE namespace = ? AND id = ? AND part_of IS NULL AND undone_by IS NULL",
        (namespace, operation.part_of),
    ).get
    if not stands:
        raise Conflict("The operation was undone meanwhile; nothing more of it is done.")


def write_memory(
    connection: Connection, space: vectors.Space, namespace: int, memory: Memory, vector: Vector | None
) -> Written:
    """Insert the memory, or replace the version before it and keep that one."""
    row = connection.execute(
        f"SELECT m.n, m.embedded_next, {MEMORY.select('m')} FROM memory m WHERE m.namespace = ? AND m.id = ?",
        (namespace, memory.id),
    ).fetchone()
    if row is None:
        refuse_erased(connection, namespace, memory)
        return _insert(connection, space, namespace, memory, vector)
    n, embedded_next = row[:2]
    old = MEMORY.decode(row[2:], memory.namespace)
    if old.version != memory.version - 1:
        raise Conflict(f"Memory {memory.id} was changed by another writer meanwhile; read it again and retry.")
    if memory.ref != old.ref:
        refuse_erased(connection, namespace, memory)
    connection.execute("INSERT INTO memory_version VALUES (?, ?, ?)", (n, old.version, MEMORY.pack(old)))
    return _update(connection, space, namespace, (n, old, embedded_next), memory, vector)


def _insert(
    connection: Connection, space: vectors.Space, namespace: int, memory: Memory, vector: Vector | None
) -> Written:
    memory = replace(memory, embedded=vector is not None)
    connection.execute(_INSERT_MEMORY, _row(namespace, memory, 0))
    n = connection.last_insert_rowid()
    audit.new_key(connection, n)
    fulltext.put(connection, n, memory)
    _put_vector(connection, space, n, namespace, memory, vector)
    _write_parents(connection, n, memory)
    return Written(n, memory, None)


def _update(
    connection: Connection,
    space: vectors.Space,
    namespace: int,
    stored: tuple[int, Memory, int],
    memory: Memory,
    vector: Vector | None,
) -> Written:
    n, old, embedded_next = stored
    same_text = memory.text == old.text
    times = [time for time in (memory.last_used_at, old.last_used_at) if time is not None]
    memory = replace(  # uses are noted without a new version, so the caller may not have seen the last ones
        memory,
        summary_id=_standing(connection, namespace, memory.summary_id, old.summary_id),
        use=max(memory.use, old.use),
        last_used_at=max(times, default=None),
        embedded=vector is not None or (same_text and old.embedded),
    )
    row = _row(namespace, memory, embedded_next if same_text else 0)
    connection.execute(_UPDATE_MEMORY, {**row, "n": n})
    if fulltext.searchable(memory) != fulltext.searchable(old):
        fulltext.put(connection, n, memory)
    if not same_text:
        vectors.drop(connection, space.tables, n)
    elif (code := _code(memory)) != _code(old):
        vectors.restatus(connection, space.tables, n, code)
    _put_vector(connection, space, n, namespace, memory, vector)
    if memory.parents != old.parents:
        _write_parents(connection, n, memory)
    return Written(n, memory, old.version)


def _standing(connection: Connection, namespace: int, summary_id: str | None, stored: str | None) -> str | None:
    """The summary's id where there is one: an erase lets go of it without a new version of what it stood for."""
    if summary_id in (None, stored):
        return summary_id
    found = "SELECT id FROM memory WHERE namespace = ? AND id = ?"
    standing: str | None = connection.execute(found, (namespace, summary_id)).get
    return standing


def _row(namespace: int, memory: Memory, embedded_next: int) -> dict[str, object]:
    return {
        **MEMORY.encode(memory),
        "namespace": namespace,
        "embedded_next": embedded_next,
        "text_hash": text_hash(memory.text),
    }


def _code(memory: Memory) -> int:
    return vectors.code(memory.status, memory.summary_id)


def _put_vector(
    connection: Connection, space: vectors.Space, n: int, namespace: int, memory: Memory, vector: Vector | None
) -> None:
    if vector is not None and space.table is not None:
        vectors.put(connection, space.table, n, vector, namespace, _code(memory))


def _write_parents(connection: Connection, n: int, memory: Memory) -> None:
    connection.execute("DELETE FROM derivation WHERE memory = ?", (n,))
    connection.executemany(
        "INSERT OR IGNORE INTO derivation (parent, memory) VALUES (?, ?)", [(parent, n) for parent in memory.parents]
    )


def refuse_erased(connection: Connection, namespace: int, memory: Memory) -> None:
    """Raise InvalidInput where a tombstone stands for the id or the caller's own reference."""
    at = connection.execute(
        "SELECT at FROM tombstone WHERE namespace = ? AND (id = ? OR (ref = ? AND holder IN ('', ?))) LIMIT 1",
        (namespace, memory.id, memory.ref, memory.agent),
    ).get
    if at is not None:
        raise InvalidInput(
            f"This memory was erased on {from_ms(at):%Y-%m-%d} and cannot come back; store it under another id or ref."
        )


def text_hash(text: str) -> int:
    """63 bits of a hash of the normalized text, to look it up by."""
    digest = hashlib.sha256(fold(text).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def ensure_thread(connection: Connection, namespace: int, thread: str, operation: Operation) -> int:
    """The number of a thread, which an episode without turns makes as well."""
    connection.execute(
        "INSERT INTO thread (namespace, id, agent, turns, created_at, updated_at) VALUES (?, ?, ?, 0, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (namespace, thread, operation.agent, to_ms(operation.at), to_ms(operation.at)),
    )
    n: int = connection.execute("SELECT n FROM thread WHERE namespace = ? AND id = ?", (namespace, thread)).get
    return n


def append_turns(connection: Connection, namespace: int, operation: Operation, turns: Sequence[Turn]) -> None:
    """Append to their threads. Raises Conflict where they do not start right after the last stored turn."""
    for thread, run in groupby(turns, key=lambda turn: turn.thread):
        given = list(run)
        n = ensure_thread(connection, namespace, thread, operation)
        last = connection.execute("SELECT turns FROM thread WHERE n = ?", (n,)).get
        if [turn.seq for turn in given] != list(range(last + 1, last + 1 + len(given))):
            raise Conflict("The thread has grown, or turns of it are missing; read its last turn again and retry.")
        connection.execute(
            "UPDATE thread SET turns = ?, updated_at = ?, agent = ? WHERE n = ?",
            (given[-1].seq, to_ms(operation.at), operation.agent, n),
        )
        connection.executemany(
            insert("turn", ("thread", *TURN.columns)), [{**TURN.encode(turn), "thread": n} for turn in given]
        )


def write_episode(connection: Connection, namespace: int, episode: Episode) -> tuple[int, str | None, int]:
    """Insert or overwrite the episode: its number, what it was before, and its new revision."""
    row = connection.execute(
        f"SELECT e.n, e.revision, {EPISODE.select('e')} FROM episode e WHERE e.namespace = ? AND e.id = ?",
        (namespace, episode.id),
    ).fetchone()
    values = {**EPISODE.encode(episode), "namespace": namespace}
    if row is None:
        connection.execute(insert("episode", tuple(values)), values)
        return connection.last_insert_rowid(), None, 1
    old = EPISODE.decode(row[2:], episode.namespace)
    if old.erased_at is not None:
        raise InvalidInput(f"This episode was erased on {old.erased_at:%Y-%m-%d} and cannot come back.")
    connection.execute(
        f"UPDATE episode SET {assignments(tuple(values))}, revision = revision + 1 WHERE n = :n",
        {**values, "n": row[0]},
    )
    return row[0], EPISODE.pack(old), row[1] + 1


def write_session(connection: Connection, namespace: int, session: Session) -> None:
    """Insert the session, or overwrite it by id. A name that an erase took away does not come back, what ended stays
    ended, and a state that was saved late takes no turn and no call away.
    """
    values = {**SESSION.encode(session), "namespace": namespace}
    grows = {
        "ended_at": "coalesce(session.ended_at, excluded.ended_at)",
        "last_at": "max(session.last_at, excluded.last_at)",
        "turns": "max(session.turns, excluded.turns)",
        "name": "session.name",
    }
    connection.execute(upsert("session", tuple(values), ("namespace", "id"), otherwise=grows), values)


def note_uses(connection: Connection, namespace: int, uses: Sequence[Use]) -> None:
    """Count each use once a memory and session, at its greatest weight; unknown memories are passed over."""
    for use in uses:
        found = connection.execute(
            "SELECT m.n, u.weight FROM memory m LEFT JOIN use u ON u.memory = m.n AND u.session = ?"
            " WHERE m.namespace = ? AND m.id = ?",
            (use.session, namespace, use.memory_id),
        ).fetchone()
        if found is None:
            continue
        n, counted = found
        more = max(0.0, use.weight - (counted or 0.0))
        connection.execute(
            "INSERT INTO use (memory, session, weight, at) VALUES (?, ?, ?, ?) ON CONFLICT (memory, session)"
            " DO UPDATE SET weight = max(weight, excluded.weight), at = max(at, excluded.at)",
            (n, use.session, use.weight, to_ms(use.at)),
        )
        connection.execute(
            "UPDATE memory SET use = use + ?, last_used_at = max(coalesce(last_used_at, 0), ?) WHERE n = ?",
            (more, to_ms(use.at), n),
        )


def keep_undo(
    connection: Connection, seq: int, written: Sequence[Written], episodes: Sequence[tuple[int, str | None, int]]
) -> None:
    """Keep what undoing needs: the versions before and after of memories, and episodes as they were."""
    for row in written:
        connection.execute(
            "INSERT INTO undo_memory (operation, memory, before, after, use_after) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (operation, memory) DO UPDATE SET after = excluded.after, use_after = excluded.use_after",
            (seq, row.n, row.before, row.memory.version, row.memory.use),
        )
    for n, before, after in episodes:
        connection.execute(
            "INSERT INTO undo_episode (operation, episode, before, after) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (operation, episode) DO UPDATE SET after = excluded.after",
            (seq, n, before, after),
        )
