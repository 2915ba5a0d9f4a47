"""Records to rows and back: one codec a table, driven by the fields of the record."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from middleout_mcp.ports import JobState, Lease
from middleout_mcp.records import (
    Episode,
    Kind,
    Memory,
    Operation,
    Privacy,
    Run,
    Session,
    Source,
    Status,
    TaskState,
    Thread,
    Trust,
    Turn,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_ms(time: datetime) -> int:
    """An aware time as milliseconds since 1970 UTC."""
    return (time - _EPOCH) // _MILLISECOND


def from_ms(value: int) -> datetime:
    """The aware UTC time of so many milliseconds since 1970."""
    return _EPOCH + value * _MILLISECOND


def to_json(value: Any) -> str:
    """Compact JSON; characters as they are, so that text can be searched for in the file."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def from_list(value: str) -> tuple[Any, ...]:
    """The tuple of a JSON list."""
    return tuple(json.loads(value))


class Unreadable(Exception):
    """A row holds what no record can be made of, as after damage to the file."""


class Codec(Generic[R]):
    """How one record lies in its table. `outside` is the field that the row replaces by a number.

    `times`, `lists`, `flags` and `data` name fields (blank-separated) that need converting; `data` is any JSON.
    """

    def __init__(
        self,
        record: type[R],
        *,
        outside: str,
        times: str = "",
        lists: str = "",
        flags: str = "",
        data: str = "",
        enums: Mapping[str, type[StrEnum]] | None = None,
    ) -> None:
        self._record = record
        self._outside = outside
        self.columns = tuple(field.name for field in fields(record) if field.name != outside)
        self._encoders: dict[str, Callable[[Any], Any]] = {
            **dict.fromkeys(times.split(), to_ms),
            **dict.fromkeys(lists.split(), lambda value: to_json(list(value))),
            **dict.fromkeys(flags.split(), int),
            **dict.fromkeys(data.split(), json.dumps),  # escaped, since it may hold lone surrogates
            **dict.fromkeys(enums or {}, str),
        }
        self._decoders: dict[str, Callable[[Any], Any]] = {
            **dict.fromkeys(times.split(), from_ms),
            **dict.fromkeys(lists.split(), from_list),
            **dict.fromkeys(flags.split(), bool),
            **dict.fromkeys(data.split(), json.loads),
            **(enums or {}),
        }

    def select(self, alias: str) -> str:
        """The columns for a SELECT, in the order that `decode` takes them."""
        return ", ".join(f'{alias}."{name}"' for name in self.columns)

    def encode(self, record: R) -> dict[str, Any]:
        """Column to SQL value."""
        values = {name: getattr(record, name) for name in self.columns}
        for name, encoder in self._encoders.items():
            if values[name] is not None:
                values[name] = encoder(values[name])
        return values

    def decode(self, values: Sequence[Any], outside: str) -> R:
        """The record of a row; `outside` is the value of the field that the table does not hold."""
        return self._built(dict(zip(self.columns, values, strict=True)), outside)

    def pack(self, record: R) -> str:
        """The whole record as JSON, for earlier versions and undo."""
        return to_json(self.encode(record))

    def unpack(self, packed: str, outside: str) -> R:
        """The record that `pack` made; fields that did not exist yet take their defaults."""
        values = json.loads(packed)
        return self._built({name: values[name] for name in self.columns if name in values}, outside)

    def _built(self, values: dict[str, Any], outside: str) -> R:
        try:
            for name, decoder in self._decoders.items():
                if values.get(name) is not None:
                    values[name] = decoder(values[name])
            return self._record(**values, **{self._outside: outside})
        except (ValueError, TypeError, OverflowError) as error:
            raise Unreadable(self._record.__name__) from error


MEMORY = Codec(
    Memory,
    outside="namespace",
    times="at created_at updated_at due valid_from valid_to expires_at suppressed_until last_used_at",
    lists="tags known_by turns parents",
    flags="pinned demoted disputed redacted embedded",
    enums={
        "kind": Kind,
        "source": Source,
        "trust": Trust,
        "privacy": Privacy,
        "status": Status,
        "state": TaskState,
    },
)
TURN = Codec(Turn, outside="thread", times="at", lists="present", flags="at_given erased", data="data")
THREAD = Codec(Thread, outside="namespace", times="created_at updated_at")
SESSION = Codec(Session, outside="namespace", times="started_at last_at ended_at")
EPISODE = Codec(
    Episode, outside="namespace", times="start end created_at erased_at", lists="memory_ids", flags="archived"
)
OPERATION = Codec(
    Operation, outside="namespace", times="at", lists="memory_ids episode_ids", flags="undoable", data="counts"
)
RUN = Codec(Run, outside="namespace", times="created_at updated_at", data="plan")
LEASE = Codec(Lease, outside="name", times="since until")
JOB = Codec(JobState, outside="name", times="last_run next_run", data="data")


def insert(table: str, columns: Sequence[str]) -> str:
    """An INSERT with named values."""
    names, values = ", ".join(f'"{name}"' for name in columns), ", ".join(f":{name}" for name in columns)
    return f"INSERT INTO {table} ({names}) VALUES ({values})"


def upsert(
    table: str, columns: Sequence[str], keys: Sequence[str], *, otherwise: Mapping[str, str] | None = None
) -> str:
    """An INSERT with named values that overwrites the row of the same keys; `otherwise` has columns that get another
    expression than the new value.
    """
    other = otherwise or {}
    changed = ", ".join(f'"{name}" = ' + other.get(name, f'excluded."{name}"') for name in columns if name not in keys)
    return f"{insert(table, columns)} ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changed}"


def assignments(columns: Sequence[str]) -> str:
    """The SET part of an UPDATE with named values."""
    return ", ".join(f'"{name}" = :{name}' for name in columns)


def marks(values: Sequence[Any]) -> str:
    """As many question marks as values, for an IN list."""
    return ", ".join("?" * len(values))


def bindable(text: str) -> str | bytes:
    """A text to look up by. One that cannot be stored (half a surrogate pair) becomes bytes, which equal no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text
