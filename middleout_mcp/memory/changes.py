"""The memories that one call changes: each gets one new version, however many changes meet in it."""

from collections.abc import Iterable
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from middleout_mcp.records import Memory

_BOOKKEEPING = frozenset({"version", "updated_at", "embedded"})

_MEANING = frozenset({"text", "key", "value", "scope", "known_by", "privacy", "expires_at", "expires_session"})
"""What a summary was made from: where one of these changes, it no longer holds, or would outlive what it says."""


class Changes:
    """New states by id. `now` becomes `updated_at` of what really changed."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._states: dict[str, Memory] = {}
        self._stored: dict[str, Memory] = {}

    def current(self, memory: Memory) -> Memory:
        """The state that this call has given the memory, else the stored one."""
        return self._states.get(memory.id, memory)

    def add(self, memory: Memory) -> None:
        """A memory that is new with this call."""
        self._states[memory.id] = memory

    def change(self, memory: Memory, **values: Any) -> Memory:
        """Change a stored (or just added) memory; nothing happens where every value is already so."""
        state = self.current(memory)
        if all(getattr(state, name) == value for name, value in values.items()):
            return state
        new = memory.id in self._states and memory.id not in self._stored
        if not new:
            self._stored.setdefault(memory.id, memory)
            values = {"updated_at": self._now, **values, "version": self._stored[memory.id].version + 1}
        if "text" in values and values["text"] != state.text:
            values["embedded"] = False
        self._states[memory.id] = replace(state, **values)
        return self._states[memory.id]

    def states(self) -> tuple[Memory, ...]:
        """All new states, in the order in which they were first touched."""
        return tuple(self._states.values())

    def corrected(self) -> list[Memory]:
        """The stored states of those whose meaning is new: a summary that was made from one no longer holds."""
        return [
            stored
            for memory_id, stored in self._stored.items()
            if not _MEANING.isdisjoint(differing(stored, self._states[memory_id]))
        ]

    def reworded(self) -> list[Memory]:
        """Those whose text is new, so that they need a vector."""
        return [
            memory
            for memory in self._states.values()
            if memory.id not in self._stored or self._stored[memory.id].text != memory.text
        ]


def differing(old: Memory, new: Memory) -> list[str]:
    """Names of the fields in which two versions differ, bookkeeping aside."""
    names: Iterable[str] = (field.name for field in fields(Memory) if field.name not in _BOOKKEEPING)
    return [name for name in names if getattr(old, name) != getattr(new, name)]
