"""`open_episode`: open any pointer; without an id, show the buffer of a thread."""

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from middleout_mcp.budget import count_tokens
from middleout_mcp.errors import InvalidInput, NotFound
from middleout_mcp.memory.contract import OpenIn, OpenOut
from middleout_mcp.memory.items import (
    GLANCE,
    ITEM_OVERHEAD,
    glance,
    operation_details,
    turn_out,
    visible,
)
from middleout_mcp.memory.overview import open_buffer, open_context, open_gap, open_stats
from middleout_mcp.memory.paging import page_turns, read_cursor
from middleout_mcp.memory.parts import Parts
from middleout_mcp.memory.record import open_memory
from middleout_mcp.records import Caller, Episode, Memory, Run, Turn
from middleout_mcp.times import to_iso

_OPERATIONS = 20  # how many operations of a memory are listed
_LISTED = 20  # tags, holders and earlier versions of a memory that are shown
_RUN_LEFT_OUT = ("attempts", "failures", "sizes", "improved", "worker")
_NO_TURN = 0  # stands for the sequence number of memories that no turn of the episode speaks of
_SOURCES = 1  # the part of a cursor that counts sources; part 0 counts characters of the text
_TURNS_READ = 1000  # no page holds more turns than this, whatever its budget


async def open_episode(parts: Parts, caller: Caller, request: OpenIn) -> OpenOut:
    """Open a pointer; see DESIGN §4. Raises NotFound in the same words for foreign, erased and unknown ids."""
    now = parts.clock.now()
    parts.sit(caller, now)
    if request.id is None:
        return await open_buffer(parts, caller, request, now)
    if request.visible_from is not None:
        raise InvalidInput("visible_from belongs to the buffer of a thread; leave id out to open that")
    if request.id == "stats" or request.id.startswith(("run_", "op_")):
        _refuse_paging(request)
    if request.id == "stats":
        return await open_stats(parts, caller, now)
    if request.id == "context":
        return await open_context(parts, caller, request, now)
    if request.thread is not None:
        raise InvalidInput("thread goes with id context or with no id; an id alone says what to open")
    openers: dict[str, Callable[[Parts, Caller, OpenIn, datetime], Awaitable[OpenOut | None]]] = {
        "e": _episode,
        "m": open_memory,
        "g": open_gap,
        "run": _run,
        "op": _operation,
    }
    opener = openers.get(request.id.partition("_")[0])
    opened = await opener(parts, caller, request, now) if opener else None
    if opened is None:
        raise NotFound(f"there is nothing {request.id[:40]!r} to open; recall and the buffer return ids that open")
    return opened


def _refuse_paging(request: OpenIn) -> None:
    if request.cursor is not None:
        raise InvalidInput(f"{(request.id or '')[:40]} has one page only; leave cursor out")
    if request.thread is not None:
        raise InvalidInput("thread goes with id context or with no id; leave it out")


async def _episode(parts: Parts, caller: Caller, request: OpenIn, now: datetime) -> OpenOut | None:
    found = await parts.store.threads.episode(caller.grant, [request.id or ""])
    if not found:
        return None
    episode = found[0]
    first, offset = read_cursor(request.cursor, default=episode.first_seq)
    if not episode.first_seq <= first <= max(episode.last_seq, episode.first_seq):
        raise InvalidInput("that cursor belongs to another episode; open this one without it")
    turns = await _turns(parts, caller, episode, first)
    filed = await _by_turn(parts, caller, episode)
    beside = {seq: len(memories) * (ITEM_OVERHEAD + GLANCE) for seq, memories in filed.items()}
    page = page_turns(turns, offset, request.max_tokens, beside)
    shown = [turn.seq for turn in page.turns if not (turn.seq == first and offset)]
    if request.cursor is None:
        shown.insert(0, _NO_TURN)
    here = [memory for seq in shown for memory in filed.get(seq, ())]
    memories, left_out = glance(here, now, request.max_tokens)
    details: dict[str, Any] = {
        "thread": episode.thread,
        "start": to_iso(episode.start),
        "end": to_iso(episode.end),
        "status": "archived" if episode.archived else "live",
    }
    data = _data(page.turns, request.max_tokens)
    if data:
        details["data"] = data
    present = {str(turn.seq): list(turn.present) for turn in page.turns if turn.present is not None}
    if present:
        details["present"] = present
    if left_out:
        details["memories_not_listed"] = left_out
    return OpenOut(
        id=episode.id,
        type="episode",
        line=episode.line or None,
        turns=[turn_out(turn, page.texts[turn.seq]) for turn in page.turns] or None,
        memories=memories or None,
        details=details,
        truncated=page.cursor is not None,
        cursor=page.cursor,
    )


def _data(turns: Sequence[Turn], max_tokens: int) -> dict[str, Any]:
    """The data of the page's turns as given; what would burst the result is named with its size instead."""
    shown: dict[str, Any] = {}
    left = max_tokens
    for turn in turns:
        if turn.data is None:
            continue
        size = count_tokens(json.dumps(turn.data, ensure_ascii=False))
        left -= size
        shown[str(turn.seq)] = turn.data if left >= 0 else f"(not shown: {size} tokens; raise max_tokens)"
    return shown


async def _turns(parts: Parts, caller: Caller, episode: Episode, first: int) -> list[Turn]:
    if episode.last_seq < first:
        return []
    return await parts.store.threads.turns(
        caller.grant, episode.thread, first=first, last=episode.last_seq, limit=_TURNS_READ
    )


async def _by_turn(parts: Parts, caller: Caller, episode: Episode) -> dict[int, list[Memory]]:
    """The episode's memories by the first of its turns that they were filed from."""
    filed: dict[int, list[Memory]] = {}
    for memory in await visible(parts, caller, episode.memory_ids):
        own = (seq for seq in memory.turns if episode.first_seq <= seq <= episode.last_seq)
        filed.setdefault(next(own, _NO_TURN), []).append(memory)
    return filed


async def _run(parts: Parts, caller: Caller, request: OpenIn, _now: datetime) -> OpenOut | None:
    run: Run | None = await parts.store.control.run(caller.grant, request.id or "")
    if run is None:
        return None
    return OpenOut(
        id=run.id,
        type="run",
        details={
            "status": run.status,
            "target": run.target,
            "created_at": to_iso(run.created_at),
            **{key: value for key, value in run.plan.items() if key not in _RUN_LEFT_OUT},
            **{key: run.plan[key][:_LISTED] for key in ("skipped", "left_out") if run.plan.get(key)},
            **{key: len(run.plan.get(key, ())) for key in ("clusters", "applied")},  # compress(run_id=…) pages them
        },
    )


async def _operation(parts: Parts, caller: Caller, request: OpenIn, now: datetime) -> OpenOut | None:
    operation = await parts.store.journal.operation(caller.grant, request.id or "", agent=caller.confined_to)
    if operation is None:
        return None
    ids = operation.memory_ids[: max(1, request.max_tokens // ITEM_OVERHEAD)]
    memories, _ = glance(await visible(parts, caller, ids), now, request.max_tokens)
    return OpenOut(
        id=operation.id,
        type="operation",
        memories=memories or None,
        details={**operation_details(operation), "counts": operation.counts, "memories": len(operation.memory_ids)},
    )
