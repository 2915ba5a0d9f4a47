"""One memory, opened: its text, what it was made from, its earlier versions, its fields and its operations.

The pages of a long one follow each other in that order; a cursor names the part and the place in it: part 0 counts the
characters of the text, part 1 the sources, and part 10 + n the characters of version n.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from middleout_mcp.budget import count_tokens, cut
from middleout_mcp.conversation.capture import shown_ref
from middleout_mcp.errors import InvalidInput
from middleout_mcp.memory.contract import OpenIn, OpenOut
from middleout_mcp.memory.items import (
    GLANCE,
    anothers_private,
    episodes_of,
    glance,
    item,
    operation_details,
    visible,
)
from middleout_mcp.memory.paging import page_turns, read_cursor
from middleout_mcp.memory.parts import Parts
from middleout_mcp.policy import USED
from middleout_mcp.records import Caller, Kind, Memory, Turn, Use
from middleout_mcp.times import to_iso

_OPERATIONS = 20  # read at most; the budget lists fewer
_TEXT, _SOURCES, _VERSIONS = 0, 1, 10
_LEAST = 300  # tokens that the fields beside a text may always take


async def open_memory(parts: Parts, caller: Caller, request: OpenIn, now: datetime) -> OpenOut | None:
    """A page of one memory; None where the caller knows of none. Raises InvalidInput for a cursor of something else."""
    found = await visible(parts, caller, [request.id or ""])
    if not found:
        await _refuse_sensitive(parts, caller, request.id or "")
        return None
    memory = found[0]
    earlier = (await parts.store.memories.versions(caller.grant, memory.id))[:-1]
    part, offset = read_cursor(request.cursor, default=_TEXT)
    if part == _TEXT and offset <= len(memory.text):
        opened = await _text_page(parts, caller, request, memory, earlier, offset, now)
    elif part == _SOURCES and offset <= len(memory.parents):
        opened = await _sources(parts, caller, memory, offset, request.max_tokens, now)
    elif part - _VERSIONS in {old.version for old in earlier}:
        return _version_page(memory, earlier, part - _VERSIONS, offset, request.max_tokens)
    else:
        raise InvalidInput("that cursor belongs to something else; open this memory without it")
    if opened.cursor is None and any(_was_cut(old) for old in earlier):
        following = f"t{_VERSIONS + earlier[0].version}.0"
        return opened.model_copy(update={"truncated": True, "cursor": following})
    return opened


async def _refuse_sensitive(parts: Parts, caller: Caller, memory_id: str) -> None:
    """Raise InvalidInput for a sensitive memory that the caller may know of: its text takes a purpose."""
    for memory in await parts.store.memories.get(caller.grant, [memory_id]):
        if not anothers_private(memory, caller):
            raise InvalidInput(
                f"{memory_id} is sensitive and is not opened; recall with a purpose shows it where "
                "MIDDLEOUT_SENSITIVE_RECALL allows that, and forget takes its id"
            )


async def _text_page(
    parts: Parts,
    caller: Caller,
    request: OpenIn,
    memory: Memory,
    earlier: Sequence[Memory],
    offset: int,
    now: datetime,
) -> OpenOut:
    """The text from a character on; with its end come the sources, with its beginning everything about the record."""
    page = page_turns([_as_turn(memory, _TEXT)], offset, request.max_tokens)
    left = request.max_tokens - count_tokens(page.texts[_TEXT])
    sources = await _sources(parts, caller, memory, 0, left, now)
    use = Use(memory_id=memory.id, session=parts.sit(caller, now).session.id, at=now, weight=USED)
    if memory.namespace == caller.grant.write and not caller.owner:  # the owner looks from outside
        parts.later.put(lambda: parts.store.journal.note_uses(caller.grant, [use]))
    details = None
    if not offset:
        shown = item(memory, now, episodes=await episodes_of(parts, caller, [memory]))
        details = {
            "record": shown.model_dump(exclude={"text", "pointers"}, exclude_none=True),
            **await _details(parts, caller, memory, earlier, max(_LEAST, left)),
        }
    return OpenOut(
        id=memory.id,
        type=_type(memory),
        text=page.texts[_TEXT],
        memories=None if page.cursor else sources.memories,
        details=details,
        truncated=(page.cursor or sources.cursor) is not None,
        cursor=page.cursor or sources.cursor,
    )


async def _sources(parts: Parts, caller: Caller, memory: Memory, start: int, max_tokens: int, now: datetime) -> OpenOut:
    """A page of what a memory was made from, from the one with index `start` on; each in full where it fits."""
    found = await visible(parts, caller, memory.parents)
    shown, left_out = glance(found[start:], now, max_tokens) if found[start:] else ([], 0)
    more = f"t{_SOURCES}.{start + len(shown)}" if left_out else None
    return OpenOut(id=memory.id, type=_type(memory), memories=shown or None, truncated=more is not None, cursor=more)


def _version_page(memory: Memory, earlier: Sequence[Memory], first: int, offset: int, max_tokens: int) -> OpenOut:
    """A page of earlier versions, word for word, from one of them on."""
    following = [_as_turn(old, _VERSIONS + old.version) for old in earlier if old.version >= first]
    page = page_turns(following, offset, max_tokens)
    dates = {_VERSIONS + old.version: old.updated_at for old in earlier}
    versions = [
        {"version": turn.seq - _VERSIONS, "updated_at": to_iso(dates[turn.seq]), "text": page.texts[turn.seq]}
        for turn in page.turns
    ]
    return OpenOut(
        id=memory.id,
        type=_type(memory),
        details={"versions": versions},
        truncated=page.cursor is not None,
        cursor=page.cursor,
    )


def _type(memory: Memory) -> Any:
    return "summary" if memory.kind is Kind.SUMMARY else "memory"


def _as_turn(memory: Memory, part: int) -> Turn:
    """A text as a turn, so that long texts are paged by the same rule."""
    return Turn(thread="", seq=part, role="", text=memory.text, at=memory.at)


def _was_cut(old: Memory) -> bool:
    return cut(old.text, GLANCE)[1]


async def _details(
    parts: Parts, caller: Caller, memory: Memory, earlier: Sequence[Memory], budget: int
) -> dict[str, Any]:
    """What the record holds beside the item: fields, versions, operations; what does not fit is counted by name."""
    operations = await parts.store.journal.operations(
        caller.grant, memory_id=memory.id, agent=caller.confined_to, limit=_OPERATIONS
    )
    given = {
        "key": memory.key,
        "value": memory.value,
        "privacy": memory.privacy,
        "importance": memory.importance,
        "emotional_weight": memory.emotional_weight,
        "state": memory.state,
        "due": to_iso(memory.due) if memory.due else None,
        "pinned": memory.pinned or None,
        "ref": shown_ref(memory.ref),
        "agent": memory.agent,
        "expires": to_iso(memory.expires_at) if memory.expires_at else memory.expires_session and "session",
        "copies": memory.copies,
        "use": round(memory.use, 3),
        "last_used_at": to_iso(memory.last_used_at) if memory.last_used_at else None,
        "merged_into": memory.merged_into,
        "superseded_by": memory.superseded_by,
        "summary_id": memory.summary_id,
    }
    lists: dict[str, Sequence[Any]] = {
        "tags": memory.tags,
        "known_by": memory.known_by or (),
        "turns": memory.turns,
        "versions": [
            {"version": old.version, "updated_at": to_iso(old.updated_at), "text": cut(old.text, GLANCE)[0]}
            for old in reversed(earlier)
        ],
        "operations": [operation_details(operation) for operation in operations],
    }
    fields: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if memory.known_by == ():
        fields["known_by"] = []  # nobody else knows, which is not the same as no list
    return {**fields, **_listed(lists, budget - _size(fields))}


def _listed(lists: Mapping[str, Sequence[Any]], budget: int) -> dict[str, Any]:
    """Of each list as much as its share of the budget carries, at least one entry, and how many are left out."""
    shown: dict[str, Any] = {}
    remaining = [name for name, entries in lists.items() if entries]
    for place, name in enumerate(remaining):
        share = budget // (len(remaining) - place)
        entries: list[Any] = []
        for entry in lists[name]:
            size = _size(entry)
            if entries and size > share:
                break
            entries.append(entry)
            share, budget = share - size, budget - size
        shown[name] = entries
        if len(entries) < len(lists[name]):
            shown[f"{name}_not_listed"] = len(lists[name]) - len(entries)
    return shown


def _size(value: Any) -> int:
    return count_tokens(json.dumps(value, ensure_ascii=False))
