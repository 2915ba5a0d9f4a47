"""The search role: candidates by vector and by text, filtered before the cut, and the vectors behind them."""

from collections.abc import Sequence
from typing import Any

from middleout_mcp.adapters.sqlite import fulltext, vectors
from middleout_mcp.adapters.sqlite.condition import Clause, where
from middleout_mcp.adapters.sqlite.connection import Connection, Database
from middleout_mcp.adapters.sqlite.namespaces import chunks, readable, within
from middleout_mcp.adapters.sqlite.rows import bindable
from middleout_mcp.errors import EmbedderMismatch
from middleout_mcp.records import EmbeddingState, Filter, Grant, Hit, Status, Vector

_DEEPEST = 4096  # more neighbours than this sqlite-vec does not give


class Search:
    """`ports.SearchStore` on SQLite."""

    def __init__(self, database: Database, embedder: str | None) -> None:
        self._database = database
        self._embedder = embedder

    async def nearest(self, grant: Grant, vector: Vector, condition: Filter, k: int) -> list[Hit]:
        """See the port."""

        def work(connection: Connection) -> list[Hit]:
            space = vectors.space(connection)
            if space.table is None:
                return []
            vectors.checked(vector, space.require(self._embedder, len(vector)))
            clause = where(condition, readable(connection, grant))
            return _neighbours(connection, space.table, vector, clause, k)

        return await self._database.read(work)

    async def match(self, grant: Grant, terms: Sequence[str], condition: Filter, k: int) -> list[Hit]:
        """See the port."""
        query = fulltext.expression(terms)
        if query is None:
            return []

        def work(connection: Connection) -> list[Hit]:
            clause = where(condition, readable(connection, grant))
            rows = connection.execute(
                "SELECT m.id, f.score FROM (SELECT rowid, bm25(full_text) AS score FROM full_text "
                "WHERE full_text MATCH ?) f JOIN memory m ON m.n = f.rowid "
                f"WHERE {clause.sql} ORDER BY f.score, m.id LIMIT ?",
                (query, *clause.values, k),
            )
            return [Hit(memory_id, -score) for memory_id, score in rows]

        return await self._database.read(work)

    async def vectors(self, grant: Grant, ids: Sequence[str]) -> dict[str, Vector]:
        """See the port."""

        def work(connection: Connection) -> dict[str, Vector]:
            table = vectors.space(connection).table
            place = within("m.namespace", readable(connection, grant))
            found: dict[str, Vector] = {}
            for part, marks in chunks(list(map(bindable, ids))):
                if table is not None:
                    found |= dict(
                        connection.execute(
                            f"SELECT m.id, v.embedding FROM memory m JOIN {table} v ON v.rowid = m.n "
                            f"WHERE {place} AND m.id IN ({marks})",
                            part,
                        )
                    )
            return found

        return await self._database.read(work)

    async def embedding(self) -> EmbeddingState:
        """See the port."""
        return await self._database.read(vectors.progress)

    async def pending(self, limit: int) -> list[tuple[str, int, str]]:
        """See the port."""
        return await self._database.read(lambda connection: _without(connection, "embedded", limit))

    async def add_vectors(self, rows: Sequence[tuple[str, int, Vector]]) -> int:
        """See the port."""

        def work(connection: Connection) -> int:
            if self._embedder is not None and rows and vectors.space(connection).name is None:
                vectors.adopt(connection, self._embedder, len(rows[0][2]) // 4)
            space = vectors.space(connection)
            stored = 0
            for memory_id, version, vector in rows:
                vectors.checked(vector, space.require(self._embedder, len(vector)))
                stored += _embed(connection, space.table or "", "embedded", memory_id, version, vector)
            return stored

        return await self._database.write(work)

    async def begin_reembed(self, name: str, dimension: int) -> EmbeddingState:
        """See the port."""

        def work(connection: Connection) -> EmbeddingState:
            vectors.begin(connection, name, dimension)
            return vectors.progress(connection)

        return await self._database.write(work)

    async def reembed_batch(self, limit: int) -> list[tuple[str, int, str]]:
        """See the port."""

        def work(connection: Connection) -> list[tuple[str, int, str]]:
            under_way = vectors.space(connection).next_table is not None
            return _without(connection, "embedded_next", limit) if under_way else []

        return await self._database.read(work)

    async def add_reembedded(self, rows: Sequence[tuple[str, int, Vector]]) -> EmbeddingState:
        """See the port."""

        def work(connection: Connection) -> EmbeddingState:
            space = vectors.space(connection)
            if space.next_table is None or space.target_dimension is None:
                raise EmbedderMismatch("No re-embedding is under way; run middleout-mcp reembed.")
            for memory_id, version, vector in rows:
                vectors.checked(vector, space.target_dimension)
                _embed(connection, space.next_table, "embedded_next", memory_id, version, vector)
            if not _without(connection, "embedded_next", 1):
                vectors.switch(connection)
            return vectors.progress(connection)

        return await self._database.write(work)


def _neighbours(connection: Connection, table: str, vector: Vector, clause: Clause, k: int) -> list[Hit]:
    """The k nearest, ties by id. Of equals at its cut sqlite-vec gives any: the cut is made below all equals."""
    depth = min(k + 1, _DEEPEST)
    while k > 0:
        rows: list[Any] = connection.execute(
            f"SELECT m.id, v.distance FROM (SELECT rowid, distance FROM {table} "
            f"WHERE embedding MATCH ? AND k = ? AND rowid IN (SELECT m.n FROM memory m WHERE {clause.sql})) v "
            "JOIN memory m ON m.n = v.rowid ORDER BY v.distance, m.id",
            (vector, depth, *clause.values),
        ).fetchall()
        if len(rows) < depth or depth == _DEEPEST or rows[k - 1][1] < rows[-1][1]:
            return [Hit(memory_id, 1.0 - distance) for memory_id, distance in rows[:k]]
        depth = min(4 * depth, _DEEPEST)
    return []


def _without(connection: Connection, column: str, limit: int) -> list[tuple[str, int, str]]:
    # Where an id occurs in two namespaces, one after the other: the vectors come back by id.
    first = f"NOT EXISTS (SELECT 1 FROM memory o WHERE o.id = m.id AND o.n < m.n AND o.{column} = 0)"
    rows = connection.execute(
        f"SELECT id, version, text FROM memory m WHERE {column} = 0 AND {first} ORDER BY n LIMIT ?", (limit,)
    )
    return [(memory_id, version, text) for memory_id, version, text in rows]


def _embed(connection: Connection, table: str, column: str, memory_id: str, version: int, vector: Vector) -> int:
    """Store a vector where the memory still has that version and none; how many that were."""
    row: Any = connection.execute(
        f"SELECT n, namespace, status, version FROM memory WHERE id = ? AND {column} = 0 ORDER BY n LIMIT 1",
        (memory_id,),
    ).fetchone()
    if row is None or row[3] != version:
        return 0
    n, namespace, status, _ = row
    vectors.put(connection, table, n, vector, namespace, Status(status))
    connection.execute(f"UPDATE memory SET {column} = 1 WHERE n = ?", (n,))
    return 1
