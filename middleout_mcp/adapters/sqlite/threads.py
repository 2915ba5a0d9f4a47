"""The threads role: threads, turns, episodes and sessions."""

from collections.abc import Sequence
from typing import Any

from middleout_mcp.adapters.sqlite import namespaces, writing
from middleout_mcp.adapters.sqlite.connection import Connection, Database
from middleout_mcp.adapters.sqlite.namespaces import chunks, readable, within, written
from middleout_mcp.adapters.sqlite.rows import EPISODE, SESSION, THREAD, TURN, bindable
from middleout_mcp.records import Episode, Grant, Session, Thread, Turn


def _thread(connection: Connection, names: dict[int, str], tail: str, values: Sequence[Any]) -> Thread | None:
    row = connection.execute(
        f"SELECT t.namespace, {THREAD.select('t')} FROM thread t WHERE {within('t.namespace', names)} AND {tail}",
        values,
    ).fetchone()
    return None if row is None else THREAD.decode(row[1:], names[row[0]])


def _number(connection: Connection, grant: Grant, thread: str) -> int | None:
    """The thread's number: the written namespace's own before one that is only read."""
    for number in readable(connection, grant):
        n: int | None = connection.execute(
            "SELECT n FROM thread WHERE namespace = ? AND id = ?", (number, bindable(thread))
        ).get
        if n is not None:
            return n
    return None


def _episodes(connection: Connection, names: dict[int, str], tail: str, values: Sequence[Any]) -> list[Episode]:
    rows = connection.execute(
        f"SELECT e.namespace, {EPISODE.select('e')} FROM episode e "
        f"WHERE {within('e.namespace', names)} AND e.erased_at IS NULL AND {tail}",
        values,
    )
    return [EPISODE.decode(row[1:], names[row[0]]) for row in rows]


_SOMETHING_LEFT = (
    "(EXISTS (SELECT 1 FROM turn u WHERE u.thread = t.n AND NOT u.erased)"
    " OR EXISTS (SELECT 1 FROM episode e WHERE e.namespace = t.namespace AND e.thread = t.id AND e.erased_at IS NULL)"
    " OR NOT EXISTS (SELECT 1 FROM episode e WHERE e.namespace = t.namespace AND e.thread = t.id))"
)
"""Of a thread that is not only what an erase left of one."""


class Threads:
    """`ports.ThreadStore` on SQLite."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def thread(self, grant: Grant, thread: str) -> Thread | None:
        """See the port."""

        def work(connection: Connection) -> Thread | None:
            n = _number(connection, grant, thread)
            return None if n is None else _thread(connection, readable(connection, grant), "t.n = ?", (n,))

        return await self._database.read(work)

    async def latest_thread(self, grant: Grant, agent: str) -> Thread | None:
        """See the port."""

        def work(connection: Connection) -> Thread | None:
            tail = f"t.agent = ? AND {_SOMETHING_LEFT} ORDER BY t.updated_at DESC, t.n DESC LIMIT 1"
            return _thread(connection, written(connection, grant), tail, (bindable(agent),))

        return await self._database.read(work)

    async def turns(
        self, grant: Grant, thread: str, *, first: int = 1, last: int | None = None, limit: int | None = None
    ) -> list[Turn]:
        """See the port."""

        def work(connection: Connection) -> list[Turn]:
            rows = connection.execute(
                f"SELECT {TURN.select('t')} FROM turn t WHERE t.thread = ? AND t.seq >= ? "
                "AND t.seq <= coalesce(?, t.seq) ORDER BY t.seq LIMIT coalesce(?, -1)",
                (_number(connection, grant, thread), first, last, limit),
            )
            return [TURN.decode(row, thread) for row in rows]

        return await self._database.read(work)

    async def tail(self, grant: Grant, thread: str, count: int) -> list[Turn]:
        """See the port."""

        def work(connection: Connection) -> list[Turn]:
            rows = connection.execute(
                f"SELECT {TURN.select('t')} FROM turn t WHERE t.thread = ? ORDER BY t.seq DESC LIMIT ?",
                (_number(connection, grant, thread), count),
            ).fetchall()
            return [TURN.decode(row, thread) for row in reversed(rows)]

        return await self._database.read(work)

    async def episode(self, grant: Grant, ids: Sequence[str]) -> list[Episode]:
        """See the port."""

        def work(connection: Connection) -> list[Episode]:
            names = readable(connection, grant)
            found: dict[str, Episode] = {}
            for part, marks in chunks(list(map(bindable, ids))):
                found |= {episode.id: episode for episode in _episodes(connection, names, f"e.id IN ({marks})", part)}
            return [found[episode_id] for episode_id in dict.fromkeys(ids) if episode_id in found]

        return await self._database.read(work)

    async def episodes(self, grant: Grant, thread: str) -> list[Episode]:
        """See the port."""

        def work(connection: Connection) -> list[Episode]:
            names = readable(connection, grant)
            tail = "e.thread = ? ORDER BY e.first_seq, e.n"
            found = _episodes(connection, names, tail, (bindable(thread),))
            own = [episode for episode in found if episode.namespace == grant.write]
            return own or found

        return await self._database.read(work)

    async def episode_by_key(self, grant: Grant, thread: str, key: str) -> Episode | None:
        """See the port."""

        def work(connection: Connection) -> Episode | None:
            values = (bindable(thread), bindable(key))
            found = _episodes(connection, written(connection, grant), "e.thread = ? AND e.key = ?", values)
            return found[0] if found else None

        return await self._database.read(work)

    async def sessions(self, grant: Grant, *, agent: str | None = None, limit: int = 20) -> list[Session]:
        """See the port."""

        def work(connection: Connection) -> list[Session]:
            names = readable(connection, grant)
            rows = connection.execute(
                f"SELECT s.namespace, {SESSION.select('s')} FROM session s WHERE {within('s.namespace', names)} "
                "AND s.agent = coalesce(?, s.agent) ORDER BY s.last_at DESC, s.started_at DESC, s.rowid DESC LIMIT ?",
                (None if agent is None else bindable(agent), limit),
            )
            return [SESSION.decode(row[1:], names[row[0]]) for row in rows]

        return await self._database.read(work)

    async def save_session(self, grant: Grant, session: Session) -> None:
        """See the port."""

        def work(connection: Connection) -> None:
            writing.write_session(connection, namespaces.ensure(connection, grant, [session]), session)

        await self._database.write(work)
