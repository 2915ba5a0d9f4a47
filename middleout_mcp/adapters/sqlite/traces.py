"""What is said of records elsewhere than in them: reasons, what runs are about, and which words repeat a record."""

import json
from collections.abc import Sequence, Set
from typing import Any

from middleout_mcp.adapters.sqlite.connection import Connection
from middleout_mcp.adapters.sqlite.rows import to_json
from middleout_mcp.words import COMMON, terms

_FIELDS = ("text", "key", "value", "scope", "tags", "known_by")
_OF_VERSION = ", ".join(f"record ->> '{field}'" for field in _FIELDS)
_SAID_BY_MEMORY = (
    f"SELECT concat_ws(' ', {', '.join(_FIELDS)}) FROM memory WHERE n = ?1 "
    f"UNION ALL SELECT concat_ws(' ', {_OF_VERSION}) FROM memory_version WHERE memory = ?1"
)
OWN_ROLE = "role NOT IN ('user', 'assistant', 'system', 'tool')"
"""Whether the role of a turn is the caller's own word."""
_SAID_BY_TURN = (
    f"SELECT concat_ws(' ', text, name, present, CASE WHEN {OWN_ROLE} THEN role END), data "
    "FROM turn WHERE thread = ? AND seq = ?"
)


def said_by_memory(connection: Connection, n: int) -> set[str]:
    """The terms of a memory, in every field that a caller fills, and of its earlier versions."""
    return {term for (words,) in connection.execute(_SAID_BY_MEMORY, (n,)) for term in terms(words)}


def said_by_turn(connection: Connection, thread: Any, seq: int) -> set[str]:
    """The terms of a turn, its data included."""
    said: set[str] = set()
    for words, data in connection.execute(_SAID_BY_TURN, (thread, seq)):
        said.update(terms(f"{words} {to_json(json.loads(data or 'null'))}"))
    return said


def repeats(reason: str | None, said: Set[str]) -> bool:
    """Whether a reason has one of the terms, and not a common one."""
    return reason is not None and not (said - COMMON).isdisjoint(terms(reason))


def forget_repetitions(connection: Connection, namespace: int, said: Set[str]) -> None:
    """Drop every reason of the namespace that repeats what was said in what is gone."""
    for table in ("operation", "tombstone"):
        reasons: list[Any] = connection.execute(
            f"SELECT rowid, reason FROM {table} WHERE namespace = ? AND reason IS NOT NULL", (namespace,)
        ).fetchall()
        repeating = [(n,) for n, reason in reasons if repeats(reason, said)]
        connection.executemany(f"UPDATE {table} SET reason = NULL WHERE rowid = ?", repeating)


def forget_reasons(
    connection: Connection, namespace: int, memory_ids: Sequence[str], episode_ids: Sequence[str]
) -> None:
    """Drop the reasons of what was done earlier to these ids: they may repeat what is erased now.

    The hash of the audit chain does not cover reasons.
    """
    for memory_id in memory_ids:
        connection.execute(
            "UPDATE operation SET reason = NULL WHERE namespace = ? AND reason IS NOT NULL "
            "AND seq IN (SELECT operation FROM operation_memory WHERE memory_id = ?)",
            (namespace, memory_id),
        )
    if episode_ids:
        connection.execute(
            "UPDATE operation SET reason = NULL WHERE namespace = ? AND reason IS NOT NULL AND EXISTS "
            "(SELECT 1 FROM json_each(episode_ids) e WHERE e.value IN (SELECT value FROM json_each(?)))",
            (namespace, to_json(list(episode_ids))),
        )


def forget_targets(connection: Connection, namespace: int) -> None:
    """Take tags that no memory carries any more out of the runs that were about them: a tag is content."""
    connection.execute(
        "UPDATE run SET target = 'erased' WHERE namespace = ?1 AND substr(target, 1, 4) = 'tag:' AND NOT EXISTS "
        "(SELECT 1 FROM memory m, json_each(m.tags) t WHERE m.namespace = ?1 AND t.value = substr(run.target, 5))",
        (namespace,),
    )
