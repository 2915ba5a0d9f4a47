"""Records for the contract suite, with a clock that stands still, and the stores that must pass it."""

from array import array
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from middleout_mcp.adapters.sqlite import open_store
from middleout_mcp.ports import Store
from middleout_mcp.records import (
    Change,
    Episode,
    Filter,
    Grant,
    Kind,
    Memory,
    Operation,
    Session,
    Turn,
    Unembedded,
    Vector,
    new_id,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OURS, THEIRS = Grant.only("ours"), Grant.only("theirs")
LIVE = Filter(now=NOW)
DIMENSION = 8


async def open_sqlite(folder: Path) -> Store:
    return await open_store(folder / "memory.db", embedder_name="fake-words", dimension=DIMENSION)


STORES: dict[str, Callable[[Path], Awaitable[Store]]] = {"sqlite": open_sqlite}


def vector(*values: float) -> Vector:
    """A unit vector with these first values."""
    filled = [*values, *[0.0] * (DIMENSION - len(values))]
    length = sum(value * value for value in filled) ** 0.5
    return array("f", (value / length for value in filled)).tobytes()


def memory(text: str, grant: Grant = OURS, **fields: Any) -> Memory:
    given = {"id": new_id("m"), "kind": Kind.FACT, "at": NOW, "created_at": NOW, "updated_at": NOW, "agent": "ann"}
    return Memory(**{**given, "text": text, "namespace": grant.write, **fields})


def turn(seq: int, text: str, thread: str = "t", **fields: Any) -> Turn:
    return Turn(**{"thread": thread, "seq": seq, "role": "user", "text": text, "at": NOW, **fields})


def episode(first: int, last: int, grant: Grant = OURS, **fields: Any) -> Episode:
    given = {"id": new_id("e"), "thread": "t", "key": f"turns:{first}-{last}", "line": f"Turns {first} to {last}."}
    times = {"start": NOW, "end": NOW, "created_at": NOW}
    return Episode(
        **{**given, **times, "namespace": grant.write, "first_seq": first, "last_seq": last, "tokens": 9, **fields}
    )


def session(grant: Grant = OURS, **fields: Any) -> Session:
    given = {"id": new_id("s"), "agent": "ann", "key": "k", "name": None, "started_at": NOW, "last_at": NOW}
    return Session(**{**given, "namespace": grant.write, **fields})


def operation(grant: Grant = OURS, **fields: Any) -> Operation:
    given = {"id": new_id("op"), "namespace": grant.write, "kind": "remember", "at": NOW, "agent": "ann"}
    return Operation(**{**given, **fields})


def unembedded(waiting: Memory) -> Unembedded:
    """What a memory without a vector is told as."""
    return Unembedded(waiting.namespace, waiting.id, waiting.version, waiting.text)


def change(*memories: Memory, grant: Grant = OURS, **fields: Any) -> Change:
    return Change(operation=operation(grant), memories=memories, **fields)


async def put(store: Store, *memories: Memory, grant: Grant = OURS, **fields: Any) -> Operation:
    return await store.memories.commit(grant, change(*memories, grant=grant, **fields))


async def found(store: Store, condition: Filter, grant: Grant = OURS) -> list[str]:
    """Texts of a listing."""
    return [each.text for each in await store.memories.find(grant, condition, limit=100)]


def later(**parts: float) -> datetime:
    return NOW + timedelta(**parts)
