"""From messages to turns and memories (pure): what is new, what a memory was filed from, which turns become events."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from middleout_mcp.records import Kind, Source, Turn
from middleout_mcp.words import fold, is_substantive, terms

_RAREST = 3  # how many of a memory's rarest terms point at its turns

BY_RULE = "\x1f"
"""Begins the reference of an event filed by rule. A caller's own reference is cleaned and cannot hold it, so that the
two are never taken for each other.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDraft:
    """A message before it has a place in its thread; `at` is None where the caller gave none."""

    role: str
    text: str
    at: datetime | None = None
    name: str | None = None
    present: tuple[str, ...] | None = None
    data: Any = None


def align(stored: Sequence[Turn], incoming: Sequence[TurnDraft]) -> list[int | None]:
    """For each incoming turn the sequence number under which it is stored already, or None where it is new.

    `stored` is the tail of the thread. The longest end of the thread that is also a beginning of `incoming` was sent
    before; so was an `incoming` of several turns that lies whole within the tail.
    """
    for overlap in range(min(len(stored), len(incoming)), 0, -1):
        tail = stored[len(stored) - overlap :]
        if all(_same(old, new) for old, new in zip(tail, incoming, strict=False)):
            return [turn.seq for turn in tail] + [None] * (len(incoming) - overlap)
    length = len(incoming)
    if length > 1 or (length == 1 and incoming[0].at is not None):
        for start in range(len(stored) - length, -1, -1):
            window = stored[start : start + length]
            if all(_same(old, new) for old, new in zip(window, incoming, strict=True)):
                return [turn.seq for turn in window]
    return [None] * length


def _same(old: Turn, new: TurnDraft) -> bool:
    if (old.role, old.text, old.name) != (new.role, new.text, new.name):
        return False
    return new.at is None or not old.at_given or new.at == old.at


def link_turns(text: str, turns: Sequence[str]) -> list[int]:
    """Indexes of the turns that share the rarest terms of `text` among the stretch's terms; all of them if none does.

    DESIGN §4: a memory without given `turns` belongs to the turns sharing its rarest terms, else to the stretch.
    """
    turn_terms = [set(terms(turn)) for turn in turns]
    frequency = Counter(term for found in turn_terms for term in found)
    shared = sorted((frequency[term], term) for term in set(terms(text)) if term in frequency)
    if not shared or shared[0][0] > max(2, len(turns) // 4):
        return list(range(len(turns)))
    rarest = {term for count, term in shared[:_RAREST] if count <= max(2, len(turns) // 4)}
    return [index for index, found in enumerate(turn_terms) if rarest & found]


@dataclass(frozen=True, slots=True)
class EventDraft:
    """A substantive turn that becomes an `event`: the index of its turn, its text and its source."""

    index: int
    text: str
    source: Source
    kind: Kind = Kind.EVENT


def events(turns: Sequence[TurnDraft]) -> list[EventDraft]:
    """One event a substantive turn, so that a conversation is always findable (DESIGN §4)."""
    return [
        EventDraft(index, spoken(turn), Source.USER if turn.role == "user" else Source.AGENT)
        for index, turn in enumerate(turns)
        if is_substantive(turn.text)
    ]


def rule_ref(thread: str | None, seq: int) -> str:
    """The reference of the event filed by rule from that turn."""
    return f"{BY_RULE}{thread}:{seq}"


def shown_ref(ref: str | None) -> str | None:
    """A reference as a caller sees it."""
    return None if ref is None else ref.removeprefix(BY_RULE)


def is_by_rule(ref: str | None, thread: str | None, turns: Sequence[int]) -> bool:
    """Whether an event with these was filed by rule. At first its reference had no mark: it was that of its turn."""
    if ref is None:
        return False
    return ref.startswith(BY_RULE) or [ref] == [f"{thread}:{seq}" for seq in turns]


def spoken(turn: TurnDraft) -> str:
    """The turn's text with its speaker, where the speaker has a name."""
    return f"{turn.name}: {turn.text}" if turn.name else turn.text


def stretch_key(turns: Sequence[TurnDraft]) -> str:
    """What a retry of the same stretch has in common: the end time, else a hash of the turns (DESIGN §2, episodes)."""
    if turns and turns[-1].at is not None:
        return f"end:{int(turns[-1].at.timestamp() * 1000)}"
    digest = hashlib.sha256()
    for turn in turns:
        digest.update(f"{turn.role}\x00{turn.name or ''}\x00{fold(turn.text)}\x01".encode("utf-8", "replace"))
    return f"turns:{digest.hexdigest()[:24]}"
