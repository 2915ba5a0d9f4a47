"""Which middle memories would become one summary (pure). So far contiguous groups: what a thread filed together."""

from collections.abc import Sequence
from itertools import groupby

from middleout_mcp.records import Memory

LARGEST = 64
"""A group holds at most this many memories (DESIGN §7)."""

SMALLEST = 3
"""Fewer than this stay single: a summary of two is hardly shorter than the two."""


def contiguous(memories: Sequence[Memory]) -> list[tuple[Memory, ...]]:
    """Groups of one scope, privacy, thread and session, in the order of time; groups below three are left out."""
    ordered = sorted(memories, key=lambda memory: (*_place(memory), memory.at, memory.id))
    groups = []
    for _, together in groupby(ordered, key=_place):
        members = tuple(together)
        pieces = [members[start : start + LARGEST] for start in range(0, len(members), LARGEST)]
        groups += [piece for piece in pieces if len(piece) >= SMALLEST]
    return groups


def _place(memory: Memory) -> tuple[str, str, str, str, tuple[str, ...]]:
    """What members of one group must share; holders' knowledge is never mixed (DESIGN §7)."""
    return (memory.scope or "", memory.privacy, memory.thread or "", memory.session or "", memory.known_by or ())
