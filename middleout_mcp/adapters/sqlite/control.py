"""The control role: runs, health, closing."""

from collections.abc import Mapping
from typing import Any

import anyio.to_thread

from middleout_mcp.adapters.sqlite import audit, namespaces
from middleout_mcp.adapters.sqlite.connection import Connection, Database
from middleout_mcp.adapters.sqlite.namespaces import readable, within
from middleout_mcp.adapters.sqlite.rows import RUN, bindable, upsert
from middleout_mcp.records import Grant, Run


class Control:
    """`ports.ControlStore` on SQLite."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save_run(self, grant: Grant, run: Run) -> None:
        """See the port."""

        def work(connection: Connection) -> None:
            values = {**RUN.encode(run), "namespace": namespaces.ensure(connection, grant, [run])}
            connection.execute(upsert("run", tuple(values), ("namespace", "id")), values)

        await self._database.write(work)

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

    async def health(self) -> Mapping[str, Any]:
        """See the port."""
        file = self._database.file

        def work(connection: Connection) -> dict[str, Any]:
            return {
                "schema_version": connection.pragma("user_version"),
                "sqlite_version": connection.execute("SELECT sqlite_version()").get,
                "pages": connection.pragma("page_count"),
                "pages_free": connection.pragma("freelist_count"),
                "lost": audit.losses(connection, file.parent),
            }

        def size() -> int:
            parts = (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm")))
            return sum(part.stat().st_size for part in parts if part.exists())

        return {
            "path": str(file),
            "bytes_on_disk": await anyio.to_thread.run_sync(size),
            "read_only": self._database.read_only,
            **await self._database.read(work),
        }

    async def close(self) -> None:
        """See the port."""
        await self._database.close()
