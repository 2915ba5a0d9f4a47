"""What `open_episode` shows without one record behind it: the buffer, a gap of it, the context of a thread, stats."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from middleout_mcp.budget import count_tokens
from middleout_mcp.conversation.buffer import LINES, TOKENS, WINDOW, Shown, select
from middleout_mcp.errors import InvalidInput
from middleout_mcp.memory.contract import BufferLine, OpenIn, OpenOut
from middleout_mcp.memory.intake import name
from middleout_mcp.memory.items import operation_details, turn_out
from middleout_mcp.memory.paging import TURN_OVERHEAD, page_turns, read_cursor, turn_cost
from middleout_mcp.memory.parts import Parts
from middleout_mcp.ports import OVERDUE, JobState, Lease
from middleout_mcp.records import Caller, Episode, Thread, Turn
from middleout_mcp.settings import JOBS
from middleout_mcp.times import parse_time, to_iso

PREFACE = (
    "Earlier stretches of this conversation, one line each. These lines are notes, not the user's words, and no "
    "evidence for a number: open an id to read what was said."
)
_NOTHING_HIDDEN = "Nothing of this conversation lies outside the view."
_NO_THREAD = "No conversation of this client was filed yet; `thread` names one of another."
_RECENT_OPERATIONS = 10
_LINE_OVERHEAD = 12  # tokens of id and date of a buffer line


async def _thread(parts: Parts, caller: Caller, wanted: str | None, now: datetime) -> Thread | None:
    """The thread asked for, else the latest of this connection, else of this agent."""
    threads = parts.store.threads
    if wanted is not None:
        thread = await threads.thread(caller.grant, name(parts, wanted, "thread"))
        if thread is None:
            raise InvalidInput("there is no such thread here; leave thread out for the latest one")
        return thread
    latest = parts.sit(caller, now).thread
    own = await threads.thread(caller.grant, latest) if latest is not None else None
    return own or await threads.latest_thread(caller.grant, caller.agent)


async def _buffer(
    parts: Parts, caller: Caller, thread: Thread, visible_from: str | None, max_tokens: int, now: datetime
) -> list[BufferLine]:
    """The lines to show for a thread: as many of them as the budget carries, never fewer than two."""
    episodes = [episode for episode in await parts.store.threads.episodes(caller.grant, thread.id) if opens(episode)]
    first_visible = _first_visible(parts, episodes, thread, visible_from, now)
    if first_visible is None:
        same_sitting = bool(episodes) and episodes[-1].session == parts.sit(caller, now).session.id
        first_visible = thread.turns - WINDOW + 1 if same_sitting else thread.turns + 2
    budget = min(max_tokens, TOKENS)
    for most in range(LINES, 1, -1):
        lines = _lines(select(episodes, first_visible, most))
        if sum(count_tokens(line.line) + _LINE_OVERHEAD for line in lines) <= budget:
            break
    return lines


def opens(episode: Episode) -> bool:
    """Whether the line of an episode may be shown: only where its pointer still opens."""
    return not episode.archived and bool(episode.tokens or episode.memory_ids)


def _first_visible(
    parts: Parts, episodes: Sequence[Episode], thread: Thread, visible_from: str | None, now: datetime
) -> int | None:
    """`visible_from` as a sequence number: given as one, or as the time of the oldest message in view."""
    if visible_from is None:
        return None
    if visible_from.strip().isdecimal():
        return int(visible_from.strip()[:12])
    time = parse_time(visible_from, now, parts.zone, what="visible_from")
    later = [episode.first_seq for episode in episodes if episode.start >= time]
    return min(later, default=thread.turns + 2)


def _lines(shown: Sequence[Shown]) -> list[BufferLine]:
    lines = []
    for entry in shown:
        if entry.gap:
            lines.append(_gap_line(entry.gap))
        lines.append(_line(entry.episode))
    return lines


def _line(episode: Episode) -> BufferLine:
    return BufferLine(
        id=episode.id, date=to_iso(episode.end)[:10], line=episode.line, tokens=episode.tokens + _LINE_OVERHEAD
    )


def _suffix(episode: Episode) -> str:
    return episode.id.partition("_")[2]


def _gap_line(gap: Sequence[Episode]) -> BufferLine:
    return BufferLine(
        id=f"g_{_suffix(gap[0])}-{_suffix(gap[-1])}",
        date=to_iso(gap[0].end)[:10],
        line=f"{len(gap)} further stretches are not listed here",
        tokens=sum(count_tokens(episode.line) + _LINE_OVERHEAD for episode in gap),
        gap=len(gap),
    )


async def open_buffer(parts: Parts, caller: Caller, request: OpenIn, now: datetime) -> OpenOut:
    """The buffer of a thread (DESIGN §8)."""
    if request.cursor is not None:
        raise InvalidInput("the buffer has one page only; leave cursor out")
    thread = await _thread(parts, caller, request.thread, now)
    if thread is None:
        return OpenOut(id="buffer", type="buffer", text=_NO_THREAD)
    lines = await _buffer(parts, caller, thread, request.visible_from, request.max_tokens, now)
    return OpenOut(
        id="buffer",
        type="buffer",
        text=PREFACE if lines else _NOTHING_HIDDEN,
        buffer=lines or None,
        details={"thread": thread.id, "turns": thread.turns},
    )


async def open_gap(parts: Parts, caller: Caller, request: OpenIn, _now: datetime) -> OpenOut | None:
    """Exactly the stretches that a gap mark stands for: its id names the first and the last of them."""
    first, _, last = (request.id or "").removeprefix("g_").partition("-")
    ends = await parts.store.threads.episode(caller.grant, [f"e_{first}", f"e_{last}"])
    if not ends or len({episode.thread for episode in ends}) > 1:
        return None
    low = ends[0].first_seq if ends[0].id == f"e_{first}" else 0
    high = ends[-1].first_seq
    thread = ends[0].thread
    episodes = await parts.store.threads.episodes(caller.grant, thread)
    left_out = [one for one in episodes if opens(one) and one.line and low <= one.first_seq <= high]
    start, _ = read_cursor(request.cursor, default=0)
    lines: list[BufferLine] = []
    budget = request.max_tokens
    for episode in left_out[start:]:
        budget -= count_tokens(episode.line) + _LINE_OVERHEAD
        if lines and budget < 0:
            break
        lines.append(_line(episode))
    following = start + len(lines)
    more = following < len(left_out)
    return OpenOut(
        id=request.id or "",
        type="gap",
        text=PREFACE,
        buffer=lines or None,
        details={"thread": thread, "stretches": len(left_out)},
        truncated=more,
        cursor=f"t{following}.0" if more else None,
    )


async def open_context(parts: Parts, caller: Caller, request: OpenIn, now: datetime) -> OpenOut:
    """What a prompt needs of a thread, within the budget: the buffer, then the newest turns verbatim (DESIGN §8)."""
    thread = await _thread(parts, caller, request.thread, now)
    if thread is None:
        return OpenOut(id="context", type="context", text=_NO_THREAD)
    lines: list[BufferLine] = []
    budget = request.max_tokens
    first, offset = read_cursor(request.cursor, default=1)
    if request.cursor is not None:
        most = budget // TURN_OVERHEAD + 1  # more than one page holds, so that a cursor follows while there are more
        turns = await parts.store.threads.turns(caller.grant, thread.id, first=first, limit=most)
        if not turns or turns[0].seq != first or offset > len(turns[0].text):
            raise InvalidInput("that cursor belongs to something else; open the context without it")
    else:
        turns = await parts.store.threads.tail(caller.grant, thread.id, WINDOW)
        window = len(turns) + 1
        while len(turns) < window:  # what the turns leave out, lines stand for, which leaves less room for turns
            window = len(turns)
            visible_from = str(turns[0].seq) if turns else None
            lines = await _buffer(parts, caller, thread, visible_from, request.max_tokens // 2, now)
            used = sum(count_tokens(line.line) + _LINE_OVERHEAD for line in lines)
            budget = max(100, request.max_tokens - used)
            turns = _newest(turns, budget)
    page = page_turns(turns, offset, budget)
    return OpenOut(
        id="context",
        type="context",
        text=PREFACE if lines else None,
        buffer=lines or None,
        turns=[turn_out(turn, page.texts[turn.seq]) for turn in page.turns] or None,
        details={"thread": thread.id, "turns": thread.turns},
        truncated=page.cursor is not None,
        cursor=page.cursor,
    )


def _newest(turns: Sequence[Turn], budget: int) -> list[Turn]:
    """The newest turns that fit, which are what a prompt needs; the last one in any case."""
    kept = list(turns)
    while len(kept) > 1 and sum(count_tokens(turn.text) + turn_cost(turn) for turn in kept) > budget:
        kept.pop(0)
    return kept


def _job(parts: Parts, job: JobState, now: datetime) -> dict[str, Any]:
    """What is known of a scheduled job. One that was due and found nothing to do is due again at its next look."""
    told: dict[str, Any] = {"job": job.name}
    if job.last_run is not None:
        told["last_run"] = to_iso(job.last_run)
    if job.last_error is not None:
        told["last_error"] = job.last_error
    if parts.settings.is_off(job.name):
        return {**told, "off": True}
    due, look = job.next_run, parts.looked.get(job.name)
    if look is not None and (due is None or due <= look.at):
        told["nothing_to_do_at"] = to_iso(look.at)
        due = look.again
    if due is not None:
        told["next_run"] = to_iso(due)
        if now - due >= OVERDUE:
            told["overdue"] = True
    return told


async def jobs(parts: Parts, now: datetime) -> list[dict[str, Any]]:
    """What is known of every scheduled job."""
    known = {job.name: job for job in await parts.store.control.jobs()}
    return [_job(parts, known.get(name) or JobState(name=name), now) for name in JOBS]


def leaders(leases: Sequence[Lease], now: datetime) -> dict[str, str]:
    """Which process does the jobs at this moment; none where nothing is due."""
    return {lease.name: lease.holder for lease in leases if lease.until > now}


async def open_stats(parts: Parts, caller: Caller, now: datetime) -> OpenOut:
    """Counts of what the caller may see, the embedder, the file, and the newest operations with whether they undo."""
    counts = await parts.store.memories.count(caller.grant)
    embedding = await parts.store.search.embedding()
    health = await parts.store.control.health()
    operations = await parts.store.journal.operations(caller.grant, agent=caller.confined_to, limit=_RECENT_OPERATIONS)
    sitting = parts.sit(caller, now)
    details: dict[str, Any] = {
        "namespace": caller.grant.write,
        "memories": dict(counts),
        "session": {"id": sitting.session.id, "name": sitting.session.name, "turns": sitting.session.turns},
        "embedder": {
            "configured": parts.embedder.name if parts.embedder else "none",
            "in_file": embedding.name or "none yet",
            "dimension": embedding.dimension,
            "loaded": bool(parts.embedder and parts.embedder.loaded),
        },
        "jobs": await jobs(parts, now),
        "leader": leaders(health["leases"], now),
        "file": {key: health[key] for key in ("path", "schema_version", "sqlite_version", "lost") if health.get(key)},
        "operations": [operation_details(operation) for operation in operations],
    }
    return OpenOut(id="stats", type="stats", details=details)
