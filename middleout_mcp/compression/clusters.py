"""Which middle memories would become one summary (pure; DESIGN §7).

A *theme* recurs: several memories over several sessions, found by their vectors. What belongs to no theme is grouped
contiguously, as one conversation filed it, or stays single. Nothing is mixed that must stay apart: scopes, privacy,
what different holders know, and values that contradict each other.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from middleout_mcp.records import Memory

LARGEST = 64
"""A group holds at most this many memories (DESIGN §7)."""

SMALLEST = 3
"""Fewer than this stay single: a summary of two is hardly shorter than the two."""

LARGEST_SHARE = 0.25
"""A theme that holds more than this share of everything says nothing about what it is about (DESIGN §7)."""

SESSIONS = 2
"""A theme occurs in at least so many sessions."""

_SHARE_COUNTS_FROM = 40  # of fewer memories, a quarter is too few to tell a theme from everything


@dataclass(frozen=True, slots=True)
class Group:
    """Memories that become one summary, in the order of time, and whether they are a theme."""

    members: tuple[Memory, ...]
    theme: bool


def groups(memories: Sequence[Memory], labels: Sequence[int]) -> list[Group]:
    """The groups of these memories; `labels` has one label a memory, −1 for none. What stays single is in no group."""
    found: list[Group] = []
    themed: set[str] = set()
    for members in _labelled(memories, labels):
        if _recurs(members, len(memories)):
            found += [Group(piece, theme=True) for piece in _pieces(members)]
            themed |= {memory.id for memory in members}
    rest = [memory for memory in memories if memory.id not in themed]
    return found + [Group(members, theme=False) for members in contiguous(rest)]


def contiguous(memories: Iterable[Memory]) -> list[tuple[Memory, ...]]:
    """Groups of one conversation: of one thread and session, in the order of time; groups below three are left out."""
    placed = [memory for memory in memories if memory.thread or memory.session]
    ordered = sorted(placed, key=lambda memory: (repr(_stretch(memory)), *_said(memory)))
    found = []
    for _, together in groupby(ordered, key=_stretch):
        found += _pieces(_agreeing(tuple(together)))
    return found


def still_together(members: Sequence[Memory]) -> tuple[Memory, ...]:
    """Those of a planned group that may still be one summary, whatever was changed in them since it was planned."""
    together: defaultdict[Hashable, list[Memory]] = defaultdict(list)
    for memory in members:
        together[_apart(memory)].append(memory)
    return _agreeing(max(together.values(), key=len, default=[]))


def _labelled(memories: Sequence[Memory], labels: Sequence[int]) -> list[tuple[Memory, ...]]:
    """The memories of each label that may be mixed, the most first."""
    together: defaultdict[Hashable, list[Memory]] = defaultdict(list)
    for memory, label in zip(memories, labels, strict=True):
        if label >= 0:
            together[label, _apart(memory)].append(memory)
    ordered = [_agreeing(sorted(members, key=_said)) for members in together.values()]
    return sorted(filter(None, ordered), key=lambda members: (-len(members), members[0].id))


def _apart(memory: Memory) -> Hashable:
    """What members of one group must share."""
    return memory.scope, memory.privacy, memory.known_by and tuple(sorted(memory.known_by))


def _said(memory: Memory) -> tuple[datetime, datetime, tuple[int, ...], str]:
    """The order in which things were said; what one call filed has one time, and then its turns tell."""
    return memory.at, memory.created_at, memory.turns, memory.id


def _stretch(memory: Memory) -> Hashable:
    return _apart(memory), memory.thread, memory.session


def _agreeing(members: Sequence[Memory]) -> tuple[Memory, ...]:
    """The members without those that give one key different values: which of them holds is not for a summary to say."""
    values: defaultdict[Hashable, set[str | None]] = defaultdict(set)
    for memory in members:
        values[memory.key].add(memory.value)
    return tuple(memory for memory in members if memory.key is None or len(values[memory.key]) == 1)


def _recurs(members: Sequence[Memory], everything: int) -> bool:
    if len(members) < SMALLEST or len({memory.session or memory.at.date() for memory in members}) < SESSIONS:
        return False
    return everything < _SHARE_COUNTS_FROM or len(members) <= LARGEST_SHARE * everything


def _pieces(members: Sequence[Memory]) -> list[tuple[Memory, ...]]:
    """Pieces of at most 64, as even as can be; none where there are fewer than three."""
    if len(members) < SMALLEST:
        return []
    count = -(-len(members) // LARGEST)
    size = -(-len(members) // count)
    pieces = [tuple(members[start : start + size]) for start in range(0, len(members), size)]
    return [piece for piece in pieces if len(piece) >= SMALLEST]
