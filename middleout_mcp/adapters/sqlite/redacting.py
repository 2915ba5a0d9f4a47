"""Taking words out of records for good, inside one transaction (DESIGN §10): `rewrite` of the memories role."""

from collections.abc import Sequence
from dataclasses import replace

from middleout_mcp.adapters.sqlite import audit, erasing, namespaces, traces, vectors
from middleout_mcp.adapters.sqlite.connection import Connection
from middleout_mcp.adapters.sqlite.rows import TURN, assignments
from middleout_mcp.adapters.sqlite.writing import Applied, write_episode, write_memory
from middleout_mcp.errors import Conflict
from middleout_mcp.records import Episode, Grant, Memory, Operation, Turn
from middleout_mcp.words import COMMON, terms

_SHORTEST = 3  # letters of a word that is looked for inside others


def rewrite(
    connection: Connection,
    grant: Grant,
    memories: Sequence[Memory],
    turns: Sequence[Turn],
    episodes: Sequence[Episode],
    operation: Operation,
) -> Applied:
    """Overwrite text in place and destroy every earlier copy of it: versions, undo content, vectors, index rows."""
    namespace = namespaces.ensure(connection, grant, [*memories, *episodes, operation])
    space = vectors.space(connection)
    work = erasing.Erasing(connection, namespace, operation)
    ids = {memory.id for memory in memories}
    said = _said(connection, namespace, work, memories, turns, episodes)
    dropped = [made for made in work.derived(ids) if made.id not in ids]
    for made in dropped:  # a summary repeats what its sources say; it is made anew from what they say now
        work.drop_memory(made)
    work.let_go([made.id for made in dropped])
    work.blank_episodes()
    seals = [_rewrite_memory(connection, space, namespace, memory) for memory in memories]
    for turn in turns:
        _rewrite_turn(connection, namespace, turn)
    for episode in episodes:
        n, before, _ = write_episode(connection, namespace, replace(episode, key=_key(episode)))
        if before is None:
            raise Conflict("An episode is gone meanwhile; nothing was redacted: open it again and retry.")
        connection.execute("DELETE FROM undo_episode WHERE episode = ?", (n,))
    touched = [*(memory.id for memory in memories), *(made.id for made in dropped)]
    traces.forget_reasons(connection, namespace, touched, [episode.id for episode in episodes])
    traces.forget_targets(connection, namespace)
    removed = said - _said(connection, namespace, work, memories, turns, episodes)
    _forget_sessions(work, removed, {each.session for each in memories} | {each.session for each in episodes})
    traces.forget_repetitions(connection, namespace, removed)
    connection.execute("INSERT OR IGNORE INTO erasure_pending VALUES (1)")
    repeated = traces.repeats(operation.reason, removed)
    operation = replace(operation, undoable=False, reason=None if repeated else operation.reason)
    return Applied(operation, audit.append(connection, namespace, operation, seals))


def _rewrite_memory(
    connection: Connection, space: vectors.Space, namespace: int, memory: Memory
) -> tuple[int, int, str]:
    """Overwrite a memory and destroy its earlier versions, undo content and vectors; what the log keeps of it."""
    row = write_memory(connection, space, namespace, memory, None)
    if row.before is None:
        raise Conflict("A memory is gone meanwhile; nothing was redacted: read it again and retry.")
    connection.execute("DELETE FROM memory_version WHERE memory = ?", (row.n,))
    connection.execute("DELETE FROM undo_memory WHERE memory = ?", (row.n,))
    vectors.drop(connection, space.tables, row.n)
    connection.execute("UPDATE memory SET embedded = 0, embedded_next = 0 WHERE n = ?", (row.n,))
    audit.new_key(connection, row.n)  # nobody can test a guess of the former text against the log
    return audit.seal(connection, row.n, row.memory)


def _rewrite_turn(connection: Connection, namespace: int, turn: Turn) -> None:
    n = connection.execute("SELECT n FROM thread WHERE namespace = ? AND id = ?", (namespace, turn.thread)).get
    values = {**TURN.encode(turn), "thread": n}
    connection.execute(
        f"UPDATE turn SET {assignments(tuple(TURN.columns))} WHERE thread = :thread AND seq = :seq", values
    )
    if not connection.changes():
        raise Conflict("A turn is gone meanwhile; nothing was redacted: open it again and retry.")


def _key(episode: Episode) -> str:
    """A key made from the turns' text would let one test what the text was."""
    return episode.key if episode.key.startswith("end:") else f"redacted:{episode.id}"


def _said(
    connection: Connection,
    namespace: int,
    work: erasing.Erasing,
    memories: Sequence[Memory],
    turns: Sequence[Turn],
    episodes: Sequence[Episode],
) -> set[str]:
    """The terms of these records as they are stored at this moment."""
    said: set[str] = set()
    for row in work.existing(memory.id for memory in memories):
        said |= traces.said_by_memory(connection, row.n)
    for turn in turns:
        n = connection.execute("SELECT n FROM thread WHERE namespace = ? AND id = ?", (namespace, turn.thread)).get
        said |= traces.said_by_turn(connection, n, turn.seq)
    for episode in episodes:
        line = connection.execute("SELECT line FROM episode WHERE namespace = ? AND id = ?", (namespace, episode.id))
        said.update(terms(line.get or ""))
    return said


def _forget_sessions(work: erasing.Erasing, removed: set[str], sessions: set[str | None]) -> None:
    """Take the names of these sessions that hold a word of what was removed."""
    words = {word for word in removed - COMMON if len(word) >= _SHORTEST or not word.isascii()}
    for session in sessions:
        query = "SELECT name FROM session WHERE namespace = ? AND id = ? AND name IS NOT NULL"
        name = work.connection.execute(query, (work.namespace, session)).get
        if name is not None and any(word in name.casefold() for word in words):
            work.forget_session(session, name)
