"""The vector tables of sqlite-vec: one generation in use, and during a re-embedding the next beside it.

A table is named by its generation, `vector_1` and so on, since a virtual table cannot be renamed. sqlite-vec knows no
upsert and accepts NaN, so rows are deleted and inserted, and vectors are checked here.
"""

import math
from array import array
from dataclasses import dataclass
from typing import Any

from middleout_mcp.adapters.sqlite.connection import Connection
from middleout_mcp.errors import EmbedderMismatch, InvalidInput
from middleout_mcp.records import EmbeddingState, Status, Vector

STATUS_CODES = {status: code for code, status in enumerate(Status)}
_COMPRESSED = len(STATUS_CODES)


def code(status: Status, summary_id: str | None) -> int:
    """What lies beside a vector: the status, and of a live one whether a summary stands for it, so that a search among
    what surfaces does not meet what does not.
    """
    return _COMPRESSED if status is Status.LIVE and summary_id is not None else STATUS_CODES[status]


@dataclass(frozen=True, slots=True)
class Space:
    """What the file says about its vectors. `generation` 0: there is no table yet."""

    generation: int
    name: str | None
    dimension: int | None
    target_name: str | None
    target_dimension: int | None

    @property
    def table(self) -> str | None:
        """The table in use."""
        return f"vector_{self.generation}" if self.generation else None

    @property
    def next_table(self) -> str | None:
        """The table a re-embedding fills."""
        return f"vector_{self.generation + 1}" if self.target_name is not None else None

    @property
    def tables(self) -> tuple[str, ...]:
        """Every table there is."""
        return tuple(table for table in (self.table, self.next_table) if table)

    def require(self, embedder: str | None, length: int | None = None) -> int:
        """The dimension, if the embedder's vectors belong here. Raises EmbedderMismatch."""
        if self.name is None or self.dimension is None:
            raise EmbedderMismatch("The file has no vectors yet and was opened without an embedder; set one.")
        wrong_length = length is not None and length != 4 * self.dimension
        if wrong_length or embedder not in (None, self.name):
            given = embedder or "another model"
            size = f" ({length // 4} dimensions)" if wrong_length and length is not None else ""
            raise EmbedderMismatch(
                f"The file's vectors come from {self.name} ({self.dimension} dimensions), not from {given}{size}; "
                "set MIDDLEOUT_EMBEDDER back, or run middleout-mcp reembed."
            )
        return self.dimension


def space(connection: Connection) -> Space:
    """The state of the vectors in this transaction."""
    row: Any = connection.execute(
        "SELECT generation, name, dimension, target_name, target_dimension FROM embedding"
    ).fetchone()
    return Space(*row)


def progress(connection: Connection) -> EmbeddingState:
    """The state as the port tells it; name "" and dimension 0 where there is no model yet."""
    found = space(connection)
    done = total = 0
    if found.target_name is not None:
        row: Any = connection.execute("SELECT coalesce(sum(embedded_next), 0), count(*) FROM memory").fetchone()
        done, total = row
    return EmbeddingState(
        name=found.name or "",
        dimension=found.dimension or 0,
        target_name=found.target_name,
        target_dimension=found.target_dimension,
        done=done,
        total=total,
    )


def adoptable(connection: Connection, name: str, dimension: int) -> bool:
    """Whether the file may take this embedder: it has another one or none, but no vector yet."""
    found = space(connection)
    if (found.name, found.dimension) == (name, dimension) or found.target_name is not None:
        return False
    return not connection.execute("SELECT EXISTS (SELECT 1 FROM memory WHERE embedded = 1)").get


def adopt(connection: Connection, name: str, dimension: int) -> None:
    """Take the embedder for the file where it has no vector; else leave everything as it is."""
    if not adoptable(connection, name, dimension):
        return
    found = space(connection)
    if found.table:
        connection.execute(f"DROP TABLE {found.table}")
    create(connection, f"vector_{found.generation + 1}", dimension)
    connection.execute("UPDATE embedding SET generation = generation + 1, name = ?, dimension = ?", (name, dimension))


def create(connection: Connection, table: str, dimension: int) -> None:
    """Make a vector table."""
    connection.execute(
        f"CREATE VIRTUAL TABLE {table} USING vec0 ("
        f"embedding float[{int(dimension)}] distance_metric=cosine, namespace integer, status integer)"
    )


def checked(vector: Vector, dimension: int) -> Vector:
    """The vector, if it is fit to be stored or searched by. Raises EmbedderMismatch or InvalidInput."""
    if len(vector) != 4 * dimension:
        raise EmbedderMismatch(f"A vector has {len(vector) / 4:g} dimensions and the file's have {dimension}.")
    values = array("f", vector)
    if not all(map(math.isfinite, values)) or not any(values):
        raise InvalidInput("A vector is zero or holds a value that is not finite; the embedder is at fault.")
    return vector


def put(connection: Connection, table: str, n: int, vector: Vector, namespace: int, status_code: int) -> None:
    """Store a vector with its `code`, in place of any other of that memory."""
    connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (n,))
    connection.execute(
        f"INSERT INTO {table} (rowid, embedding, namespace, status) VALUES (?, ?, ?, ?)",
        (n, vector, namespace, status_code),
    )


def drop(connection: Connection, tables: tuple[str, ...], n: int) -> None:
    """Remove the memory's vectors; its text is pending again."""
    for table in tables:
        connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (n,))


def restatus(connection: Connection, tables: tuple[str, ...], n: int, status_code: int) -> None:
    """Keep the `code` beside the vectors in step."""
    for table in tables:
        connection.execute(f"UPDATE {table} SET status = ? WHERE rowid = ?", (status_code, n))


def begin(connection: Connection, name: str, dimension: int) -> None:
    """Start building vectors of another model, or go on with it; the model in use ends an unfinished one."""
    found = space(connection)
    if (found.name, found.dimension) == (name, dimension):
        _abandon(connection, found)
        return
    if (found.target_name, found.target_dimension) == (name, dimension):
        return
    _abandon(connection, found)
    adopt(connection, name, dimension)
    found = space(connection)
    if (found.name, found.dimension) != (name, dimension):
        create(connection, f"vector_{found.generation + 1}", dimension)
        connection.execute("UPDATE embedding SET target_name = ?, target_dimension = ?", (name, dimension))


def _abandon(connection: Connection, found: Space) -> None:
    if found.next_table is not None:
        connection.execute(f"DROP TABLE {found.next_table}")
        connection.execute("UPDATE embedding SET target_name = NULL, target_dimension = NULL")
        connection.execute("UPDATE memory SET embedded_next = 0 WHERE embedded_next = 1")


def switch(connection: Connection) -> None:
    """Put the finished vectors in use and drop the former ones."""
    found = space(connection)
    if found.table is not None:
        connection.execute(f"DROP TABLE {found.table}")
    connection.execute(
        "UPDATE embedding SET generation = generation + 1, name = target_name, dimension = target_dimension, "
        "target_name = NULL, target_dimension = NULL"
    )
    connection.execute("UPDATE memory SET embedded = embedded_next, embedded_next = 0")
