"""Taking words out of records for good, inside one transaction (DESIGN §10): `rewrite` of the memories role."""

from collections.abc import Sequence
from dataclasses import replace

from middleout_mcp.adapters.sqlite import audit, erasing, namespaces, vectors
from middleout_mcp.adapters.sqlite.connection import Connection
from middleout_mcp.adapters.sqlite.rows import TURN, assignments
from middleout_mcp.adapters.sqlite.writing import Applied, write_episode, write_memory
from middleout_mcp.errors import Conflict
from middleout_mcp.records import Episode, Grant, Memory, Operation, Turn


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
    dropped = [made for made in work.derived(ids) if made.id not in ids]
    for made in dropped:  # a summary repeats what its sources say; it is made anew from what they say now
        work.drop_memory(made)
    work.let_go([made.id for made in dropped])
    work.blank_episodes()
    seals = []
    for memory in memories:
        row = write_memory(connection, space, namespace, memory, None)
        if row.before is None:
            raise Conflict("A memory is gone meanwhile; nothing was redacted: read it again and retry.")
        connection.execute("DELETE FROM memory_version WHERE memory = ?", (row.n,))
        connection.execute("DELETE FROM undo_memory WHERE memory = ?", (row.n,))
        vectors.drop(connection, space.tables, row.n)
        connection.execute("UPDATE memory SET embedded = 0, embedded_next = 0 WHERE n = ?", (row.n,))
        audit.new_key(connection, row.n)  # nobody can test a guess of the former text against the log
        seals.append(audit.seal(connection, row.n, row.memory))
    for turn in turns:
        _rewrite_turn(connection, namespace, turn)
    for episode in episodes:
        n, before, _ = write_episode(connection, namespace, replace(episode, key=_key(episode)))
        if before is None:
            raise Conflict("An episode is gone meanwhile; nothing was redacted: open it again and retry.")
        connection.execute("DELETE FROM undo_episode WHERE episode = ?", (n,))
    touched = [*(memory.id for memory in memories), *(made.id for made in dropped)]
    erasing.forget_reasons(connection, namespace, touched, [episode.id for episode in episodes])
    connection.execute("INSERT OR IGNORE INTO erasure_pending VALUES (1)")
    operation = replace(operation, undoable=False)
    return Applied(operation, audit.append(connection, namespace, operation, seals))


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
