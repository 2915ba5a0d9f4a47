"""Grants to the numbers that rows carry: the isolation boundary of every query."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from middleout_mcp.adapters.sqlite.connection import Connection
from middleout_mcp.adapters.sqlite.rows import bindable, marks
from middleout_mcp.errors import InvalidInput
from middleout_mcp.records import Episode, Grant, Memory, Operation, Run, Session

T = TypeVar("T")
_Written: TypeAlias = Memory | Episode | Session | Run | Operation
_CHUNK = 500


def readable(connection: Connection, grant: Grant) -> dict[int, str]:
    """Number to name of the namespaces that may be read; the written one first, then in the order of the grant."""
    ordered = sorted(dict.fromkeys(grant.read), key=lambda name: name != grant.write)
    rows = ((_number(connection, name), name) for name in ordered)
    return {number: name for number, name in rows if number is not None}


def written(connection: Connection, grant: Grant) -> dict[int, str]:
    """Number to name of the write namespace alone; empty where nothing was ever stored in it."""
    number = _number(connection, grant.write)
    return {} if number is None else {number: grant.write}


def ensure(connection: Connection, grant: Grant, records: Iterable[_Written]) -> int:
    """The number of the write namespace, made where it is new. Raises InvalidInput for a record that lies elsewhere."""
    if any(record.namespace != grant.write for record in records):
        raise InvalidInput(f"Only the namespace {grant.write!r} may be written here.")
    number = _number(connection, grant.write)
    if number is None:
        connection.execute("INSERT INTO namespace (name) VALUES (?)", (grant.write,))
        number = connection.last_insert_rowid()
    return number


def _number(connection: Connection, name: str) -> int | None:
    found: int | None = connection.execute("SELECT n FROM namespace WHERE name = ?", (bindable(name),)).get
    return found


def within(column: str, namespaces: dict[int, str]) -> str:
    """The condition that a row lies in one of the namespaces; never true where there are none."""
    return f"{column} IN ({', '.join(map(str, namespaces))})"


def chunks(values: Sequence[T]) -> Iterator[tuple[Sequence[T], str]]:
    """Slices that fit an IN list, each with its question marks."""
    for start in range(0, len(values), _CHUNK):
        part = values[start : start + _CHUNK]
        yield part, marks(part)
