"""The journal role: operations, undo, and the use log."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from middleout_mcp.adapters.sqlite import audit, namespaces, vectors, writing
from middleout_mcp.adapters.sqlite.connection import Connection, Database
from middleout_mcp.adapters.sqlite.namespaces import readable, within
from middleout_mcp.adapters.sqlite.rows import EPISODE, MEMORY, OPERATION, bindable, from_list, to_json
from middleout_mcp.adapters.sqlite.schema import HOLDER
from middleout_mcp.errors import InvalidInput, NotFound
from middleout_mcp.records import Grant, Kind, Memory, Operation, Privacy, Status, Use

_SELECT = f"SELECT o.namespace, {OPERATION.select('o')} FROM operation o"
_READ = 100  # operations at once
_WHOLE = "coalesce(o.part_of, o.id)"  # a continuation counts as the operation that it continues


def _decoded(connection: Connection, rows: Iterable[Any], names: Mapping[int, str]) -> list[Operation]:
    """The operations of these rows, each with what its continuations touched and counted."""
    whole = []
    for namespace, *values in rows:
        operation = OPERATION.decode(values, names[namespace])
        parts = connection.execute(
            "SELECT memory_ids, episode_ids, counts FROM operation WHERE namespace = ? AND part_of = ? ORDER BY seq",
            (namespace, operation.id),
        )
        for memory_ids, episode_ids, counts in parts:
            operation = replace(
                operation,
                memory_ids=tuple(dict.fromkeys((*operation.memory_ids, *from_list(memory_ids)))),
                episode_ids=tuple(dict.fromkeys((*operation.episode_ids, *from_list(episode_ids)))),
                counts=_sum(operation.counts, json.loads(counts)),
            )
        whole.append(operation)
    return whole


def _shown(connection: Connection, namespace: Any, operation: Operation, agent: str | None) -> Operation | None:
    """The operation as the agent may know it; None where it touched only what is private to another."""
    hidden = _hidden(connection, namespace, operation.memory_ids, agent)
    if not hidden:
        return operation
    left = tuple(memory_id for memory_id in operation.memory_ids if memory_id not in hidden)
    if not left and not operation.episode_ids:
        return None
    counts = {name: len(left) if name == "memories" else count for name, count in operation.counts.items()}
    return replace(operation, memory_ids=left, counts=counts, reason=None, undoable=False)


def _hidden(connection: Connection, namespace: Any, ids: Sequence[str], agent: str | None) -> set[str]:
    """Those of the ids that are, or were when they were erased, memories private to another agent."""
    if agent is None or not ids:
        return set()
    rows = connection.execute(
        "SELECT id FROM memory WHERE namespace = ?1 AND id IN (SELECT value FROM json_each(?2))"
        " AND privacy = 'private' AND agent <> ?3 UNION ALL "
        "SELECT id FROM tombstone WHERE namespace = ?1 AND id IN (SELECT value FROM json_each(?2))"
        " AND holder NOT IN ('', ?3)",
        (namespace, to_json(list(ids)), agent),
    )
    return {memory_id for (memory_id,) in rows}


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


class Journal:
    """`ports.JournalStore` on SQLite."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def operation(self, grant: Grant, operation_id: str, *, agent: str | None = None) -> Operation | None:
        """See the port."""

        def work(connection: Connection) -> Operation | None:
            names = readable(connection, grant)
            rows = connection.execute(
                f"{_SELECT} WHERE {within('o.namespace', names)} AND o.id = ? AND o.part_of IS NULL",
                (bindable(operation_id),),
            ).fetchall()
            found = zip(rows, _decoded(connection, rows, names), strict=True)
            return next((_shown(connection, row[0], one, agent) for row, one in found), None)

        return await self._database.read(work)

    async def operations(
        self,
        grant: Grant,
        *,
        memory_id: str | None = None,
        agent: str | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> list[Operation]:
        """See the port."""

        def work(connection: Connection) -> list[Operation]:
            names = readable(connection, grant)
            touched = ""
            values: tuple[Any, ...] = ()
            if memory_id is not None:
                touched = (
                    f" AND o.id IN (SELECT {_WHOLE.replace('o.', 'p.')} FROM operation_memory t"
                    " JOIN operation p ON p.seq = t.operation WHERE t.memory_id = ? AND p.namespace = o.namespace)"
                )
                values = (bindable(memory_id),)
            query = (
                f"{_SELECT} WHERE {within('o.namespace', names)} AND o.part_of IS NULL{touched}"
                " ORDER BY o.seq DESC LIMIT ? OFFSET ?"
            )
            if agent is None:
                rows = connection.execute(query, (*values, limit, offset)).fetchall()
                return _decoded(connection, rows, names)
            shown: list[Operation] = []
            for start in count(0, _READ):  # how many are hidden is known only when they are read
                rows = connection.execute(query, (*values, _READ, start)).fetchall()
                decoded = zip(rows, _decoded(connection, rows, names), strict=True)
                told = (_shown(connection, row[0], one, agent) for row, one in decoded)
                shown += [one for one in told if one is not None]
                if len(rows) < _READ or len(shown) >= offset + limit:
                    break
            return shown[offset : offset + limit]

        return await self._database.read(work)

    async def undo(
        self, grant: Grant, operation_id: str, operation: Operation, *, agent: str | None = None
    ) -> Operation:
        """See the port."""

        def work(connection: Connection) -> writing.Applied:
            namespace = namespaces.ensure(connection, grant, [operation])
            return _Undoing(connection, namespace, operation, agent).run(operation_id)

        def after(applied: writing.Applied) -> None:
            audit.write_head(self._database.file.parent, applied.head)

        applied = await self._database.write(work, after=after)
        return applied.operation

    async def first_fault(self) -> str | None:
        """See the port."""
        return await self._database.read(lambda connection: audit.first_fault(connection, self._database.file.parent))

    async def note_uses(self, grant: Grant, uses: Sequence[Use]) -> None:
        """See the port."""

        def work(connection: Connection) -> None:
            writing.note_uses(connection, namespaces.ensure(connection, grant, []), uses)

        await self._database.write(work)


@dataclass(slots=True)
class _Undoing:
    """One undo: every record goes back to what it was before, where it is still as the operation left it."""

    connection: Connection
    namespace: int
    operation: Operation
    agent: str | None = None
    """Whose private memories may be put back; None: every agent's."""
    written: list[writing.Written] = field(default_factory=list)
    episodes: list[tuple[int, str | None, int]] = field(default_factory=list)
    episode_ids: list[str] = field(default_factory=list)
    skipped: int = 0
    gone: int = 0
    summaries: list[str] = field(default_factory=list)
    """Those that the operation made: they stand as long as it does, whatever was changed in them since."""

    def run(self, operation_id: str) -> writing.Applied:
        """Undo and record it. Raises NotFound or InvalidInput."""
        seq, undoes = self._check(operation_id)
        for part in self._parts(seq, operation_id):
            self._memories(part)
            self._episodes(part)
        self._surface()
        restored = len(self.written) + len(self.episodes)
        operation = replace(
            self.operation,
            undoes=operation_id,
            memory_ids=tuple(row.memory.id for row in self.written),
            episode_ids=tuple(self.episode_ids),
            counts={"restored": restored, "skipped": self.skipped, "gone": self.gone},
            undoable=restored > 0,
        )
        seals = [audit.seal(self.connection, row.n, row.memory) for row in self.written]
        head = audit.append(self.connection, self.namespace, operation, seals)
        writing.keep_undo(self.connection, head.seq, self.written, self.episodes)
        self._mark(operation_id, operation.id)
        if undoes is not None:  # undoing an undo: the first operation stands again
            self._mark(undoes, None)
            self._stands_again(undoes, seq)
        return writing.Applied(operation, head)

    def _parts(self, seq: int, operation_id: str) -> list[int]:
        """The numbers of the operation and of what continues it, newest first."""
        rows = self.connection.execute(
            "SELECT seq FROM operation WHERE namespace = ? AND part_of = ? ORDER BY seq DESC",
            (self.namespace, operation_id),
        )
        return [*(part for (part,) in rows), seq]

    def _check(self, operation_id: str) -> tuple[int, str | None]:
        row = self.connection.execute(
            "SELECT seq, undoable, undone_by, undoes, kind FROM operation"
            " WHERE namespace = ? AND id = ? AND part_of IS NULL",
            (self.namespace, bindable(operation_id)),
        ).fetchone()
        if row is None or _hidden(self.connection, self.namespace, self._touched(operation_id), self.agent):
            raise NotFound(f"There is no operation {operation_id[:40]!r} to undo.")
        seq, undoable, undone_by, undoes, kind = row
        if undone_by is not None:
            raise InvalidInput(f"{operation_id} was undone already, by {undone_by}; restore that one to redo it.")
        if not undoable:
            raise InvalidInput(f"{operation_id} ({kind}) cannot be undone.")
        return seq, undoes

    def _touched(self, operation_id: str) -> list[str]:
        """The memories that the operation and its continuations name."""
        rows = self.connection.execute(
            "SELECT DISTINCT t.memory_id FROM operation_memory t JOIN operation o ON o.seq = t.operation"
            " WHERE o.namespace = ?1 AND (o.id = ?2 OR o.part_of = ?2)",
            (self.namespace, bindable(operation_id)),
        )
        return [memory_id for (memory_id,) in rows]

    def _mark(self, operation_id: str, undone_by: str | None) -> None:
        self.connection.execute(
            "UPDATE operation SET undone_by = ? WHERE namespace = ? AND id = ?",
            (undone_by, self.namespace, operation_id),
        )

    def _stands_again(self, operation_id: str, undone: int) -> None:
        """The records are as that operation left them, under newer versions: it can be undone from these.

        Not those that were changed after it, and that `undone` found in another version: a later change is kept.
        """
        parts = "operation IN (SELECT seq FROM operation WHERE namespace = ? AND ? IN (id, part_of))"
        whole = (self.namespace, operation_id)
        for row in self.written:
            self.connection.execute(
                f"UPDATE undo_memory SET after = ?, use_after = ? WHERE {parts} AND memory = ? AND after = "
                "(SELECT u.before FROM undo_memory u WHERE u.operation = ? AND u.memory = undo_memory.memory)",
                (row.memory.version, row.memory.use, *whole, row.n, undone),
            )
        for n, _, revision in self.episodes:
            self.connection.execute(
                f"UPDATE undo_episode SET after = ? WHERE {parts} AND episode = ?", (revision, *whole, n)
            )

    def _memories(self, seq: int) -> None:
        kept = self.connection.execute("SELECT count(*) FROM undo_memory WHERE operation = ?", (seq,)).get
        named = self.connection.execute("SELECT count(*) FROM operation_memory WHERE operation = ?", (seq,)).get
        self.gone += max(0, named - kept)  # erased or redacted since
        rows: list[Any] = self.connection.execute(
            f"SELECT u.before, u.after, u.use_after, v.record, {MEMORY.select('m')} FROM undo_memory u "
            "JOIN memory m ON m.n = u.memory "
            "LEFT JOIN memory_version v ON v.memory = u.memory AND v.version = u.before "
            "WHERE u.operation = ? ORDER BY u.memory",
            (seq,),
        ).fetchall()
        put_back: list[tuple[Memory, Memory]] = []
        for before, after, use_after, record, *values in rows:
            current = MEMORY.decode(values, self.operation.namespace)
            made = before is None and current.kind is Kind.SUMMARY
            if made:
                self.summaries.append(current.id)
            if (current.version != after and not made) or (made and current.status is not Status.LIVE):
                self.skipped += not made
                continue
            if before is None:
                earlier = replace(current, status=Status.ARCHIVED)
            else:
                earlier = MEMORY.unpack(record, self.operation.namespace)
                since = max(0.0, current.use - use_after)
                earlier = replace(earlier, use=earlier.use + since, last_used_at=current.last_used_at)
            put_back.append((current, replace(earlier, version=current.version + 1)))
        for current, earlier in sorted(put_back, key=_put_back_order):
            if _reference(earlier) != _reference(current) and self._taken(earlier):
                self.skipped += 1
            else:
                self._write(earlier)

    def _write(self, memory: Memory) -> None:
        """Store the memory; one whose summary does not stand (any more) is not hidden behind it."""
        if memory.summary_id is not None:
            live = self.connection.execute(
                "SELECT 1 FROM memory WHERE namespace = ? AND id = ? AND status = 'live'",
                (self.namespace, memory.summary_id),
            ).get
            memory = memory if live else replace(memory, summary_id=None)
        space = vectors.space(self.connection)
        self.written.append(writing.write_memory(self.connection, space, self.namespace, memory, None))

    def _surface(self) -> None:
        """What is still hidden behind a summary that the operation made is found again, in its newer state."""
        for summary in self.summaries:
            rows: list[Any] = self.connection.execute(
                f"SELECT {MEMORY.select('m')} FROM memory m WHERE m.namespace = ? AND m.summary_id = ?",
                (self.namespace, summary),
            ).fetchall()
            for values in rows:
                hidden = MEMORY.decode(values, self.operation.namespace)
                self._write(replace(hidden, summary_id=None, version=hidden.version + 1))
                self.skipped = max(0, self.skipped - 1)  # put back in what matters here

    def _taken(self, memory: Memory) -> bool:
        """Whether its reference went to another memory meanwhile, or was erased with one."""
        ref, holder = _reference(memory)
        return bool(
            self.connection.execute(
                f"SELECT EXISTS (SELECT 1 FROM memory WHERE namespace = ?1 AND ref = ?2 AND {HOLDER} = ?3 AND id <> ?5)"
                " OR EXISTS (SELECT 1 FROM tombstone WHERE namespace = ?1 AND ref = ?2 AND holder IN ('', ?4))",
                (self.namespace, ref, holder, memory.agent, memory.id),
            ).get
        )

    def _episodes(self, seq: int) -> None:
        rows: list[Any] = self.connection.execute(
            f"SELECT u.before, u.after, e.revision, {EPISODE.select('e')} FROM undo_episode u "
            "JOIN episode e ON e.n = u.episode WHERE u.operation = ? AND e.erased_at IS NULL",
            (seq,),
        ).fetchall()
        for before, after, revision, *values in rows:
            current = EPISODE.decode(values, self.operation.namespace)
            if revision != after:
                self.skipped += 1
                continue
            earlier = (
                replace(current, archived=True) if before is None else EPISODE.unpack(before, self.operation.namespace)
            )
            self.episodes.append(writing.write_episode(self.connection, self.namespace, earlier))
            self.episode_ids.append(earlier.id)


def _put_back_order(pair: tuple[Memory, Memory]) -> tuple[bool, bool]:
    """Summaries before what they stand for, and a reference that is let go before one that is taken."""
    _, earlier = pair
    return earlier.kind is not Kind.SUMMARY, earlier.ref is not None


def _reference(memory: Memory) -> tuple[str | None, str]:
    """The caller's reference, and by whom it is taken (see `schema.HOLDER`)."""
    return memory.ref, memory.agent if memory.privacy is Privacy.PRIVATE else ""
