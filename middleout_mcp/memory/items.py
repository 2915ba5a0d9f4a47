"""How a memory is shown: the item of a result, its marks, and what its pointers cost to open."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from middleout_mcp.budget import count_tokens, cut
from middleout_mcp.memory.contract import Item, Pointer, TurnOut
from middleout_mcp.memory.parts import Parts
from middleout_mcp.records import Caller, Episode, Kind, Memory, Operation, Privacy, Status, TaskState, Turn
from middleout_mcp.times import session_over, to_iso

ITEM_OVERHEAD = 110
"""Prompt tokens that the other fields of one item cost beside its text, in the structured form, the longer one."""
_NAMES = 12  # of these, what is meant for thread and scope
CUT = "cut"
"""The mark of an item that shows the beginning of its text; its first pointer opens the whole."""
_SESSIONS = 1000
_IDS_NAMED = 3  # of an operation in a list; opening it lists them all
GLANCE = 60
"""Prompt tokens of a text that is listed beside something else; its id opens the rest."""


def overhead(memory: Memory) -> int:
    """What an item of this memory costs beside its text: more where its names are long."""
    return ITEM_OVERHEAD + max(0, count_tokens(memory.thread or "") + count_tokens(memory.scope or "") - _NAMES)


def marks(memory: Memory, now: datetime) -> list[str]:
    """The warnings a reader needs (DESIGN §2, §4)."""
    found = []
    if memory.disputed:
        found.append("confirm before use")
    if memory.weak:
        found.append("weak")
    if memory.status is not Status.LIVE:
        found.append(str(memory.status))
    elif memory.expires_at is not None and memory.expires_at <= now:
        found.append(str(Status.EXPIRED))
    if memory.redacted:
        found.append("redacted")
    if memory.suppressed_until is not None and memory.suppressed_until > now:
        found.append(f"suppressed until {to_iso(memory.suppressed_until)}")
    if memory.state is not None:
        due = f", due {to_iso(memory.due).removesuffix('T00:00:00Z')}" if memory.due else ""
        late = memory.due is not None and memory.due < now and memory.state is TaskState.OPEN
        found.append(f"{memory.state}{due}{', overdue' if late else ''}")
    return found


def shown_status(memory: Memory, now: datetime) -> Status:
    """The status, with what has lapsed counted as expired whether or not a job has marked it."""
    lapsed = memory.expires_at is not None and memory.expires_at <= now
    return Status.EXPIRED if lapsed and memory.status is Status.LIVE else memory.status


def item(
    memory: Memory,
    now: datetime,
    *,
    text: str | None = None,
    score: float | None = None,
    episodes: Mapping[str, Episode] | None = None,
) -> Item:
    """One memory as an item; `text` where it was cut to fit, in which case the memory itself is a pointer."""
    pointers = []
    warnings = marks(memory, now)
    if text is not None and text != memory.text:
        warnings.append(CUT)
        pointers.append(Pointer(id=memory.id, tokens=count_tokens(memory.text) + ITEM_OVERHEAD))
    elif memory.kind is Kind.SUMMARY:
        pointers.append(Pointer(id=memory.id, tokens=len(memory.parents) * (ITEM_OVERHEAD + GLANCE)))
    episode = (episodes or {}).get(memory.episode_id or "")
    if episode is not None and not episode.archived:
        pointers.append(Pointer(id=episode.id, tokens=episode.tokens))
    return Item(
        id=memory.id,
        text=memory.text if text is None else text,
        kind=memory.kind,
        status=shown_status(memory, now),
        rung=memory.rung,
        at=to_iso(memory.at),
        created_at=to_iso(memory.created_at),
        updated_at=to_iso(memory.updated_at),
        valid_from=to_iso(memory.valid_from) if memory.valid_from and memory.valid_to else None,
        valid_to=to_iso(memory.valid_to) if memory.valid_to else None,
        scope=memory.scope,
        source=memory.source,
        trust=memory.trust,
        confidence=memory.confidence,
        score=score,
        marks=warnings or None,
        thread=memory.thread,
        episode_id=memory.episode_id,
        represents=memory.copies if memory.copies > 1 or memory.kind is Kind.SUMMARY else None,
        pointers=pointers or None,
    )


def glance(memories: Sequence[Memory], now: datetime, budget: int) -> tuple[list[Item], int]:
    """As many of these memories as fit the budget in tokens, long texts cut; and how many were left out."""
    items: list[Item] = []
    for memory in memories:
        text, was_cut = cut(memory.text, GLANCE)
        budget -= overhead(memory) + count_tokens(text)
        if items and budget < 0:
            break
        items.append(item(memory, now, text=text if was_cut else None))
    return items, len(memories) - len(items)


async def episodes_of(parts: Parts, caller: Caller, memories: Sequence[Memory]) -> dict[str, Episode]:
    """The episodes that these memories were filed in, by id."""
    ids = list(dict.fromkeys(memory.episode_id for memory in memories if memory.episode_id))
    return {episode.id: episode for episode in await parts.store.threads.episode(caller.grant, ids)} if ids else {}


async def visible(parts: Parts, caller: Caller, ids: Sequence[str]) -> list[Memory]:
    """The memories with these ids that the caller may see at all: sensitive and others' private ones are left out."""
    found = await parts.store.memories.get(caller.grant, ids)
    return await marked_lapsed(parts, caller, [memory for memory in found if may_see(memory, caller)])


async def marked_lapsed(parts: Parts, caller: Caller, memories: Sequence[Memory]) -> list[Memory]:
    """The memories, those expired that were bound to a session which is over, whether or not a job has marked them."""
    if not any(memory.expires_session and memory.status is Status.LIVE for memory in memories):
        return list(memories)
    now = parts.clock.now()
    known = await parts.store.threads.sessions(caller.grant, limit=_SESSIONS)
    running = {(session.namespace, session.id) for session in known if not session_over(session, now)}
    running |= {
        (sitting.session.namespace, sitting.session.id)
        for sitting in parts.sittings.all()
        if not session_over(sitting.session, now)
    }
    return [
        replace(memory, status=Status.EXPIRED)
        if memory.status is Status.LIVE
        and memory.expires_session
        and (memory.namespace, memory.expires_session) not in running
        else memory
        for memory in memories
    ]


def may_see(memory: Memory, caller: Caller) -> bool:
    """Whether the caller may open the memory: private ones its agent or the owner, sensitive ones nobody here."""
    return memory.privacy is not Privacy.SENSITIVE and not anothers_private(memory, caller)


def anothers_private(memory: Memory, caller: Caller) -> bool:
    """Whether the memory is private to another agent, for whom it exists and for the caller does not (DESIGN §2)."""
    return memory.privacy is Privacy.PRIVATE and caller.confined_to not in (None, memory.agent)


def turn_out(turn: Turn, text: str) -> TurnOut:
    """A turn as a result shows it; `text` is the part of it on this page."""
    shown = "[erased]" if turn.erased else text
    return TurnOut(seq=turn.seq, role=turn.role, name=turn.name, at=to_iso(turn.at), text=shown)


def operation_details(operation: Operation) -> dict[str, Any]:
    """An operation as a result shows it, with whether it can be undone."""
    return {
        "id": operation.id,
        "kind": operation.kind,
        "at": to_iso(operation.at),
        "agent": operation.agent,
        **({"reason": operation.reason} if operation.reason else {}),
        **({"counts": counts} if (counts := {name: n for name, n in operation.counts.items() if n}) else {}),
        **({"ids": ids[:_IDS_NAMED]} if (ids := [*operation.memory_ids, *operation.episode_ids]) else {}),
        **({"undone_by": operation.undone_by} if operation.undone_by else {}),
        "undoable": operation.undoable and operation.undone_by is None,
    }
