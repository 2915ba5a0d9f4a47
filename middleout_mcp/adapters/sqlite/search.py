"""The search role: candidates by vector and by text, filtered before the cut, and the vectors behind them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from middleout_mcp.adapters.sqlite import fulltext, vectors
from middleout_mcp.adapters.sqlite.condition import Clause, where
from middleout_mcp.adapters.sqlite.connection import Connection, Database
from middleout_mcp.adapters.sqlite.namespaces import chunks, readable, within
from middleout_mcp.adapters.sqlite.rows import bindable
from middleout_mcp.errors import EmbedderMismatch
from middleout_mcp.records import EmbeddingState, Filter, Grant, Hit, Status, Unembedded, Vector

_DEEPEST = 4096  # more neighbours than this sqlite-vec does not give
_MARGIN = 32


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
            names = readable(connection, grant)
            if k <= 0 or not names:
                return []
            search = _Nearest(connection, space.table, vector, where(condition, names), k)
            hits = search.among_all(names) if _is_common(condition) else None
            return hits if hits is not None else search.among_chosen()

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

    async def pending(self, limit: int) -> list[Unembedded]:
        """See the port."""
        return await self._database.read(lambda connection: _without(connection, "embedded", limit))

    async def add_vectors(self, rows: Sequence[tuple[Unembedded, Vector]]) -> int:
        """See the port."""

        def work(connection: Connection) -> int:
            if self._embedder is not None and rows and vectors.space(connection).name is None:
                vectors.adopt(connection, self._embedder, len(rows[0][1]) // 4)
            space = vectors.space(connection)
            stored = 0
            for row, vector in rows:
                vectors.checked(vector, space.require(self._embedder, len(vector)))
                stored += _embed(connection, space.table or "", "embedded", row, vector)
            return stored

        return await self._database.write(work)

    async def begin_reembed(self, name: str, dimension: int) -> EmbeddingState:
        """See the port."""

        def work(connection: Connection) -> EmbeddingState:
            vectors.begin(connection, name, dimension)
            return vectors.progress(connection)

        return await self._database.write(work)

    async def reembed_batch(self, limit: int) -> list[Unembedded]:
        """See the port."""

        def work(connection: Connection) -> list[Unembedded]:
            under_way = vectors.space(connection).next_table is not None
            return _without(connection, "embedded_next", limit) if under_way else []

        return await self._database.read(work)

    async def add_reembedded(self, rows: Sequence[tuple[Unembedded, Vector]]) -> EmbeddingState:
        """See the port."""

        def work(connection: Connection) -> EmbeddingState:
            space = vectors.space(connection)
            if space.next_table is None or space.target_dimension is None:
                raise EmbedderMismatch("No re-embedding is under way; run middleout-mcp reembed.")
            for row, vector in rows:
                vectors.checked(vector, space.target_dimension)
                _embed(connection, space.next_table, "embedded_next", row, vector)
            if not _without(connection, "embedded_next", 1):
                vectors.switch(connection)
            return vectors.progress(connection)

        return await self._database.write(work)


@dataclass(frozen=True, slots=True)
class _Nearest:
    """One search by vector. Of equals at its cut sqlite-vec gives any, so a cut counts only above all equals."""

    connection: Connection
    table: str
    vector: Vector
    clause: Clause
    k: int

    def among_all(self, namespaces: Iterable[int]) -> list[Hit] | None:
        """Among the live ones by what lies beside the vectors alone, the rest of the condition after the cut. None
        where that left too few of those found: a crowd that is hidden stands nearer.
        """
        depth = min(2 * self.k + _MARGIN, _DEEPEST)
        place = f"namespace IN ({', '.join(map(str, namespaces))})"
        rows: list[Any] = self.connection.execute(
            f"SELECT m.id, v.distance FROM (SELECT rowid, distance FROM {self.table} "
            f"WHERE embedding MATCH ? AND k = ? AND {place} AND status = ?) v "
            f"LEFT JOIN memory m ON m.n = v.rowid AND {self.clause.sql} ORDER BY v.distance, m.id",
            (self.vector, depth, vectors.STATUS_CODES[Status.LIVE], *self.clause.values),
        ).fetchall()
        found = [row for row in rows if row[0] is not None]
        if len(rows) == depth and (len(found) < self.k or found[self.k - 1][1] >= rows[-1][1]):
            return None
        return self._hits(found)

    def among_chosen(self) -> list[Hit]:
        """Among those that meet the condition, which are looked up first."""
        depth = self.k + 1
        while depth <= _DEEPEST:
            rows: list[Any] = self.connection.execute(
                f"SELECT m.id, v.distance FROM (SELECT rowid, distance FROM {self.table} "
                f"WHERE embedding MATCH ? AND k = ? AND rowid IN (SELECT m.n FROM memory m WHERE {self.clause.sql})) v "
                "JOIN memory m ON m.n = v.rowid ORDER BY v.distance, m.id",
                (self.vector, depth, *self.clause.values),
            ).fetchall()
            if len(rows) < depth or rows[self.k - 1][1] < rows[-1][1]:
                return self._hits(rows)
            depth *= 4
        return self._measured()

    def _measured(self) -> list[Hit]:
        """By measuring every distance, for more neighbours, or more equals, than sqlite-vec finds."""
        return self._hits(
            self.connection.execute(
                f"SELECT m.id, vec_distance_cosine(v.embedding, ?) AS distance FROM {self.table} v "
                f"CROSS JOIN memory m ON m.n = v.rowid WHERE {self.clause.sql} ORDER BY distance, m.id LIMIT ?",
                (self.vector, *self.clause.values, self.k),
            )
        )

    def _hits(self, rows: Iterable[Any]) -> list[Hit]:
        return [Hit(memory_id, 1.0 - distance) for memory_id, distance in rows][: self.k]


def _is_common(condition: Filter) -> bool:
    """Whether nothing is asked but what is live: hardly any of the nearest is then hidden by the rest of it."""
    asked = replace(condition, agent=None, suppressed_in=(), ended_sessions=True, sensitive=False)  # what hides few
    return asked == Filter(now=condition.now)


def _without(connection: Connection, column: str, limit: int) -> list[Unembedded]:
    rows = connection.execute(
        "SELECT s.name, m.id, m.version, m.text FROM memory m JOIN namespace s ON s.n = m.namespace "
        f"WHERE m.{column} = 0 ORDER BY m.n LIMIT ?",
        (limit,),
    )
    return [Unembedded(*row) for row in rows]


def _embed(connection: Connection, table: str, column: str, row: Unembedded, vector: Vector) -> int:
    """Store a vector where the memory still has that version and none; how many that were."""
    found: Any = connection.execute(
        "SELECT m.n, m.namespace, m.status, m.summary_id FROM memory m JOIN namespace s ON s.n = m.namespace "
        f"WHERE s.name = ? AND m.id = ? AND m.version = ? AND m.{column} = 0",
        (bindable(row.namespace), bindable(row.memory_id), row.version),
    ).fetchone()
    if found is None:
        return 0
    n, namespace, status, summary_id = found
    vectors.put(connection, table, n, vector, namespace, vectors.code(Status(status), summary_id))
    connection.execute(f"UPDATE memory SET {column} = 1 WHERE n = ?", (n,))
    return 1
