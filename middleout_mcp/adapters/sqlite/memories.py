"""The memories role: committing changes, and look-ups by id, reference, text and condition."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from middleout_mcp.adapters.sqlite import audit, erasing, redacting, writing
from middleout_mcp.adapters.sqlite.condition import where
from middleout_mcp.adapters.sqlite.connection import Connection, Database
from middleout_mcp.adapters.sqlite.namespaces import chunks, readable, within, written
from middleout_mcp.adapters.sqlite.rows import MEMORY, bindable
from middleout_mcp.errors import StoreClosed, StoreUnavailable
from middleout_mcp.records import Change, Episode, Erasure, Filter, Grant, Memory, Operation, Status, Turn
from middleout_mcp.words import fold

logger = logging.getLogger(__name__)

_SELECT = f"SELECT m.namespace, {MEMORY.select('m')} FROM memory m"
_ORDERS = {
    "at": "m.at DESC, m.id",
    "updated": "m.updated_at DESC, m.id",
    "importance": "m.importance DESC, m.at DESC, m.id",
    "due": "m.due IS NULL, m.due, m.at DESC, m.id",
}


def select(connection: Connection, names: Mapping[int, str], tail: str, values: Sequence[Any]) -> list[Memory]:
    """The memories of `SELECT … FROM memory m` with this tail; `names` has the namespaces that may occur."""
    return [MEMORY.decode(row[1:], names[row[0]]) for row in connection.execute(f"{_SELECT} {tail}", values)]


class Memories:
    """`ports.MemoryStore` on SQLite."""

    def __init__(self, database: Database, embedder: str | None) -> None:
        self._database = database
        self._embedder = embedder

    async def commit(self, grant: Grant, change: Change) -> Operation:
        """See the port."""
        return await self._write(lambda connection: writing.apply(connection, grant, change, self._embedder))

    async def _write(self, work: Callable[[Connection], writing.Applied], *, reserve: bool = False) -> Operation:
        applied = await self._database.write(work, after=self._note_head, reserve=reserve)
        return applied.operation

    def _note_head(self, applied: writing.Applied) -> None:
        audit.write_head(self._database.file.parent, applied.head)

    async def get(self, grant: Grant, ids: Sequence[str]) -> list[Memory]:
        """See the port."""

        def work(connection: Connection) -> list[Memory]:
            names = readable(connection, grant)
            found: dict[str, Memory] = {}
            for part, marks in chunks(list(map(bindable, ids))):
                tail = f"WHERE {within('m.namespace', names)} AND m.id IN ({marks})"
                found |= {memory.id: memory for memory in select(connection, names, tail, part)}
            return [found[memory_id] for memory_id in dict.fromkeys(ids) if memory_id in found]

        return await self._database.read(work)

    async def by_ref(self, grant: Grant, refs: Sequence[str], *, agent: str) -> dict[str, Memory]:
        """See the port."""

        def work(connection: Connection) -> dict[str, Memory]:
            names = written(connection, grant)
            found: dict[str, Memory] = {}
            for part, marks in chunks(list(map(bindable, refs))):
                tail = (
                    f"WHERE {within('m.namespace', names)} AND m.ref IN ({marks}) AND (m.privacy <> 'private' OR "
                    "m.agent = ?) ORDER BY m.privacy = 'private'"  # the agent's own takes the place of the other
                )
                rows = select(connection, names, tail, (*part, bindable(agent)))
                found |= {memory.ref or "": memory for memory in rows}
            return found

        return await self._database.read(work)

    async def same_text(self, grant: Grant, texts: Sequence[str]) -> dict[str, list[Memory]]:
        """See the port."""

        def work(connection: Connection) -> dict[str, list[Memory]]:
            names = written(connection, grant)
            live = "m.status = 'live' AND m.summary_id IS NULL"
            tail = f"WHERE {within('m.namespace', names)} AND m.text_hash = ? AND {live} ORDER BY m.n"
            found = {}
            for text in dict.fromkeys(texts):
                same = select(connection, names, tail, (writing.text_hash(text),))
                found[text] = [memory for memory in same if fold(memory.text) == fold(text)]
            return {text: memories for text, memories in found.items() if memories}

        return await self._database.read(work)

    async def find(
        self, grant: Grant, condition: Filter, *, limit: int, offset: int = 0, order: str = "at"
    ) -> list[Memory]:
        """See the port."""

        def work(connection: Connection) -> list[Memory]:
            names = readable(connection, grant)
            clause = where(condition, names)
            tail = f"WHERE {clause.sql} ORDER BY {_ORDERS[order]} LIMIT ? OFFSET ?"
            return select(connection, names, tail, (*clause.values, limit, offset))

        return await self._database.read(work)

    async def versions(self, grant: Grant, memory_id: str) -> list[Memory]:
        """See the port."""

        def work(connection: Connection) -> list[Memory]:
            names = readable(connection, grant)
            row = connection.execute(
                f"SELECT m.n, m.namespace, {MEMORY.select('m')} FROM memory m "
                f"WHERE {within('m.namespace', names)} AND m.id = ?",
                (bindable(memory_id),),
            ).fetchone()
            if row is None:
                return []
            name = names[row[1]]
            earlier = connection.execute(
                "SELECT record FROM memory_version WHERE memory = ? ORDER BY version", (row[0],)
            )
            return [*(MEMORY.unpack(record, name) for (record,) in earlier), MEMORY.decode(row[2:], name)]

        return await self._database.read(work)

    async def count(self, grant: Grant) -> Mapping[str, int]:
        """See the port."""

        def work(connection: Connection) -> dict[str, int]:
            place = within("namespace", readable(connection, grant))
            counts = {str(status): 0 for status in Status}
            counts |= dict(connection.execute(f"SELECT status, count(*) FROM memory WHERE {place} GROUP BY status"))
            queries = {
                "pending": f"SELECT count(*) FROM memory WHERE embedded = 0 AND {place}",
                "threads": f"SELECT count(*) FROM thread WHERE {place}",
                "turns": "SELECT count(*) FROM turn u JOIN thread t ON t.n = u.thread "
                f"WHERE u.erased = 0 AND {place.replace('namespace', 't.namespace')}",
                "episodes": f"SELECT count(*) FROM episode WHERE erased_at IS NULL AND {place}",
            }
            return counts | {name: connection.execute(query).get for name, query in queries.items()}

        return await self._database.read(work)

    async def rewrite(
        self,
        grant: Grant,
        memories: Sequence[Memory],
        turns: Sequence[Turn],
        episodes: Sequence[Episode],
        operation: Operation,
    ) -> Operation:
        """See the port."""
        done = await self._write(
            lambda connection: redacting.rewrite(connection, grant, memories, turns, episodes, operation), reserve=True
        )
        await self._finished()
        return done

    async def erase(
        self,
        grant: Grant,
        memory_ids: Sequence[str],
        episode_ids: Sequence[str],
        operation: Operation,
        *,
        agent: str | None = None,
    ) -> Erasure:
        """See the port."""

        def work(connection: Connection) -> erasing.Erased:
            return erasing.erase(connection, grant, memory_ids, episode_ids, operation, agent)

        def after(erased: erasing.Erased) -> None:
            self._note_head(erased.applied)

        done = await self._database.write(work, after=after, reserve=True)
        return Erasure(
            operation=done.applied.operation,
            memory_ids=done.memory_ids,
            dropped_summaries=done.dropped,
            complete=await self._finished(),
        )

    async def _finished(self) -> bool:
        """`finish_erasures` after a removal that stands: what hinders it (a full disk, damage) makes it pending."""
        try:
            return await self.finish_erasures()
        except StoreUnavailable as error:
            level = logging.INFO if isinstance(error, StoreClosed) else logging.WARNING
            logger.log(level, "Erased; the last bytes are still to be overwritten: %s", error)
            return False

    async def finish_erasures(self) -> bool:
        """See the port."""
        if not await self._database.read(erasing.is_pending):
            return True
        if self._database.read_only:
            return False
        folder = self._database.file.parent
        await self._database.write(lambda connection: erasing.log_tombstones(connection, folder), reserve=True)
        if not await self._database.truncate_journal():
            return False
        await self._database.write(erasing.settle, reserve=True)
        return True
