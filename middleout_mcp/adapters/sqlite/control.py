"""The control role: runs, leases and jobs, health, closing."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio.to_thread

from middleout_mcp.adapters.sqlite import audit, namespaces
from middleout_mcp.adapters.sqlite.connection import Connection, Database
from middleout_mcp.adapters.sqlite.namespaces import readable, within, written
from middleout_mcp.adapters.sqlite.rows import JOB, LEASE, RUN, assignments, bindable, upsert
from middleout_mcp.ports import JobState, Lease
from middleout_mcp.records import Grant, Run


class Control:
    """`ports.ControlStore` on SQLite."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save_run(self, grant: Grant, run: Run, *, expect: str | Run | None = None) -> bool:
        """See the port."""

        def work(connection: Connection) -> bool:
            values = {**RUN.encode(run), "namespace": namespaces.ensure(connection, grant, [run])}
            if expect is None:
                connection.execute(upsert("run", tuple(values), ("namespace", "id")), values)
                return True
            row = connection.execute(
                f"SELECT {RUN.select('r')} FROM run r WHERE r.namespace = :namespace AND r.id = :id", values
            ).fetchone()
            stored = None if row is None else RUN.decode(row, grant.write)
            if stored is None or expect not in (stored.status, stored):
                return False
            stands = "namespace = :namespace AND id = :id"
            connection.execute(f"UPDATE run SET {assignments(tuple(values))} WHERE {stands}", values)
            return True

        return await self._database.write(work)

    async def run(self, grant: Grant, run_id: str) -> Run | None:
        """See the port."""

        def work(connection: Connection) -> Run | None:
            names = readable(connection, grant)
            row = connection.execute(
                f"SELECT r.namespace, {RUN.select('r')} FROM run r WHERE {within('r.namespace', names)} AND r.id = ?",
                (bindable(run_id),),
            ).fetchone()
            return None if row is None else RUN.decode(row[1:], names[row[0]])

        return await self._database.read(work)

    async def runs(self, grant: Grant, status: str) -> list[Run]:
        """See the port."""

        def work(connection: Connection) -> list[Run]:
            place = within("r.namespace", written(connection, grant))
            rows = connection.execute(
                f"SELECT {RUN.select('r')} FROM run r WHERE {place} AND r.status = ? ORDER BY r.created_at, r.id",
                (bindable(status),),
            )
            return [RUN.decode(row, grant.write) for row in rows]

        return await self._database.read(work)

    async def lease(self, name: str, holder: str, now: datetime, until: datetime) -> Lease:
        """See the port."""

        def held(connection: Connection) -> Lease | None:
            row = connection.execute(f"SELECT {LEASE.select('l')} FROM lease l WHERE l.name = ?", (name,)).fetchone()
            return None if row is None else LEASE.decode(row, name)

        def work(connection: Connection) -> Lease:
            lease = held(connection)
            if lease is not None and _is_anothers(lease, holder, now, until):
                return lease
            since = lease.since if lease is not None and lease.holder == holder and lease.until > now else now
            taken = Lease(name=name, holder=holder, since=since, until=until)
            if until <= now:
                connection.execute("DELETE FROM lease WHERE name = ? AND holder = ?", (name, holder))
            else:
                values = {**LEASE.encode(taken), "name": name}
                connection.execute(upsert("lease", tuple(values), ("name",)), values)
            return taken

        seen = await self._database.read(held)
        if seen is not None and _is_anothers(seen, holder, now, until):
            return seen  # the usual answer of a process that does not lead: nothing is written
        return await self._database.write(work)

    async def jobs(self) -> list[JobState]:
        """See the port."""

        def work(connection: Connection) -> list[JobState]:
            rows = connection.execute(f"SELECT j.name, {JOB.select('j')} FROM job j ORDER BY j.name")
            return [JOB.decode(row[1:], row[0]) for row in rows]

        return await self._database.read(work)

    async def save_job(self, job: JobState) -> None:
        """See the port."""

        def work(connection: Connection) -> None:
            values = {**JOB.encode(job), "name": job.name}
            connection.execute(upsert("job", tuple(values), ("name",)), values)

        await self._database.write(work)

    async def checkpoint(self) -> bool:
        """See the port."""
        return await self._database.truncate_journal()

    async def health(self, *, thorough: bool = False) -> Mapping[str, Any]:
        """See the port."""
        file = self._database.file
        leases = f"SELECT l.name, {LEASE.select('l')} FROM lease l ORDER BY l.name"

        def work(connection: Connection) -> dict[str, Any]:
            return {
                "schema_version": connection.pragma("user_version"),
                "sqlite_version": connection.execute("SELECT sqlite_version()").get,
                "pages": connection.pragma("page_count"),
                "pages_free": connection.pragma("freelist_count"),
                "lost": audit.losses(connection, file.parent),
                "leases": [LEASE.decode(row[1:], row[0]) for row in connection.execute(leases)],
                **({"damage": damage(connection)} if thorough else {}),
            }

        def damage(connection: Connection) -> str | None:
            found = connection.pragma("quick_check", 1)
            return None if found == "ok" else f"{file} is damaged: {found}."

        def sizes() -> dict[str, int]:
            found = {end: _size(file.with_name(file.name + end)) for end in ("", "-wal", "-shm")}
            return {"bytes_on_disk": sum(found.values()), "journal_bytes": found["-wal"]}

        return {
            "path": str(file),
            **await anyio.to_thread.run_sync(sizes),
            "read_only": self._database.read_only,
            **await self._database.read(work),
        }

    async def namespaces(self) -> Mapping[str, int]:
        """See the port."""
        query = "SELECT s.name, count(m.n) FROM namespace s LEFT JOIN memory m ON m.namespace = s.n GROUP BY s.n"
        return await self._database.read(lambda connection: dict(connection.execute(f"{query} ORDER BY s.name")))

    async def close(self) -> None:
        """See the port."""
        await self._database.close()


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _is_anothers(lease: Lease, holder: str, now: datetime, until: datetime) -> bool:
    """Whether someone else holds it still. All ask for the same length of time: what ends much later is an error. A
    little later is none: who asks may have read the clock a while before its turn came.
    """
    return lease.holder != holder and now < lease.until and (until <= now or lease.until <= until + (until - now))
