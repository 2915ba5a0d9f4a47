"""`forget`: hide, demote, expire, merge, archive, redact, erase or restore; without ids, offer candidates."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from middleout_mcp.budget import cut
from middleout_mcp.errors import InvalidInput, NotFound
from middleout_mcp.memory.applying import release
from middleout_mcp.memory.changes import Changes
from middleout_mcp.memory.contract import Candidate, ForgetIn, ForgetOut
from middleout_mcp.memory.erase import erase, redact
from middleout_mcp.memory.intake import name
from middleout_mcp.memory.items import anothers_private
from middleout_mcp.memory.parts import Parts
from middleout_mcp.memory.plan import refuse_read_only
from middleout_mcp.memory.recall import search
from middleout_mcp.memory.sittings import Sitting
from middleout_mcp.policy import trust_rank
from middleout_mcp.records import Caller, Change, Episode, Filter, Grant, Kind, Memory, Operation, Privacy, Status
from middleout_mcp.retention.duplicates import merged_fields
from middleout_mcp.times import parse_time, to_iso

_REMEMBERED = tuple(kind for kind in Kind if kind is not Kind.SUMMARY)
"""What a summary says is forgotten by forgetting what it was made from."""
_CANDIDATES = 5
_CANDIDATE_TOKENS = 60


@dataclass(frozen=True, slots=True)
class Targets:
    """What the given ids name in the write namespace."""

    memories: tuple[Memory, ...]
    episodes: tuple[Episode, ...]


async def forget(parts: Parts, caller: Caller, request: ForgetIn) -> ForgetOut:
    """Carry out one action; see DESIGN §4. Raises InvalidInput or NotFound before anything was changed."""
    now = parts.clock.now()
    sitting = parts.sit(caller, now)
    _check_arguments(request)
    if request.ids is None or request.query is not None:
        return await _candidates(parts, caller, sitting, request, now)
    reason = None if request.reason is None else name(parts, request.reason, "reason")
    operations = [target for target in request.ids if target.startswith("op_")]
    if operations:
        return await _undo(parts, caller, sitting, request, operations, reason, now)
    targets = await _targets(parts, caller, list(dict.fromkeys(request.ids)))
    operation = sitting.operation(
        request.action,
        now,
        reason=reason,
        memory_ids=tuple(memory.id for memory in targets.memories),
        episode_ids=tuple(episode.id for episode in targets.episodes),
    )
    if request.action == "erase":
        return await erase(parts, caller, targets.memories, targets.episodes, operation)
    if request.action == "redact":
        memories = await _with_memories(parts, caller, targets)
        return await redact(parts, caller, memories, targets.episodes, request.spans, operation)
    return await _commit(parts, caller, sitting, request, targets, operation)


def _check_arguments(request: ForgetIn) -> None:
    if request.ids is not None and request.query is not None:
        raise InvalidInput("give ids or a query, not both: a query only looks for candidates")
    if request.ids is not None and not request.ids:
        raise InvalidInput("ids is empty; name what to forget, or leave ids out to get candidates")
    if request.query is not None and not request.query.strip():
        raise InvalidInput("query is empty; describe what to forget, or leave it out for the last memories seen")
    if request.spans is not None and request.action != "redact":
        raise InvalidInput("spans belongs to action redact; leave it out")
    if request.spans is not None and not all(span.strip() for span in request.spans):
        raise InvalidInput("spans holds an empty text; give the words to remove, verbatim")
    if request.until is not None and request.action != "suppress":
        raise InvalidInput("until belongs to action suppress; leave it out")
    if request.ids is None and (request.spans is not None or request.until is not None):
        raise InvalidInput("spans and until need ids: without ids, forget only offers candidates")
    if request.action == "merge" and request.ids is not None and len(set(request.ids)) < 2:
        raise InvalidInput("merge needs at least two ids")


async def _targets(parts: Parts, caller: Caller, ids: Sequence[str]) -> Targets:
    grant = caller.grant
    every = await parts.store.memories.get(grant, ids)
    found = [memory for memory in every if not anothers_private(memory, caller)]
    refuse_read_only(found, grant, "ids")
    episodes = [
        episode for episode in await parts.store.threads.episode(grant, ids) if episode.namespace == grant.write
    ]
    known = {memory.id for memory in found} | {episode.id for episode in episodes}
    for target in ids:
        if target not in known:
            raise NotFound(f"there is no {target[:40]!r} to forget; recall returns the ids that exist")
    return Targets(tuple(found), tuple(episodes))


def may_forget(memory: Memory, caller: Caller) -> bool:
    """Whether the caller may change the memory: one of the write namespace, and no other agent's private one."""
    return memory.namespace == caller.grant.write and not anothers_private(memory, caller)


async def _candidates(parts: Parts, caller: Caller, sitting: Sitting, request: ForgetIn, now: datetime) -> ForgetOut:
    """What could be meant: hits of the query, else the last memories stored or recalled in this session."""
    if request.query is not None:
        statuses = (Status.LIVE, Status.ARCHIVED, Status.EXPIRED, Status.SUPERSEDED)
        condition = Filter(
            now=now,
            agent=caller.confined_to,
            statuses=statuses,
            kinds=_REMEMBERED,
            compressed=True,
            sensitive=True,
            hidden=True,
        )
        ranked, _ = await search(parts, caller, request.query, condition, now)
        found = [hit.memory for hit in ranked if hit.relevant]
    else:
        found = await parts.store.memories.get(caller.grant, sitting.recent[::-1])
    meant = [memory for memory in found if may_forget(memory, caller)]
    offered = [Candidate(id=memory.id, text=_glimpse(memory), kind=memory.kind) for memory in meant[:_CANDIDATES]]
    notice = "Nothing was changed. Call forget again with the ids that are meant."
    if len(meant) > len(offered):
        notice += f" {len(meant) - len(offered)} more could be meant: a narrower query shows them."
    if not offered:
        notice = "Nothing was changed, and nothing was found that could be meant."
    return ForgetOut(action=request.action, candidates=offered, notice=notice)


def _glimpse(memory: Memory) -> str:
    """What a candidate is recognised by. A sensitive one may be forgotten by its id, and is not shown for that."""
    if memory.privacy is Privacy.SENSITIVE:
        return f"(sensitive, not shown; stored on {memory.created_at:%Y-%m-%d})"
    return cut(memory.text, _CANDIDATE_TOKENS)[0]


async def _undo(
    parts: Parts,
    caller: Caller,
    sitting: Sitting,
    request: ForgetIn,
    operations: Sequence[str],
    reason: str | None,
    now: datetime,
) -> ForgetOut:
    if request.action != "restore":
        raise InvalidInput(f"{request.action} works on memories and episodes; an operation can only be restored")
    if len(request.ids or ()) > 1:
        raise InvalidInput("undo one operation a call: give a single op_ id")
    undo = sitting.operation("restore", now, reason=reason, undoes=operations[0])
    done = await parts.store.journal.undo(caller.grant, operations[0], undo, agent=caller.confined_to)
    left = {
        "{} changed again since and left alone.": done.counts.get("skipped", 0),
        "{} erased or redacted since and cannot come back.": done.counts.get("gone", 0),
    }
    said = [sentence.format("1 was" if n == 1 else f"{n} were") for sentence, n in left.items() if n]
    return ForgetOut(
        action="restore",
        affected=[*done.memory_ids, *done.episode_ids],
        operation_id=done.id,
        notice=" ".join(said) or None,
    )


async def _commit(
    parts: Parts, caller: Caller, sitting: Sitting, request: ForgetIn, targets: Targets, operation: Operation
) -> ForgetOut:
    """The actions that only change fields; all of them can be undone."""
    if targets.episodes and request.action not in ("archive", "restore"):
        raise InvalidInput(f"{request.action} works on memories; for an episode use archive, erase or restore")
    with_episodes = await _with_memories(parts, caller, targets)
    changes = Changes(operation.at)
    work = _Work(parts, Grant.only(caller.grant.write), sitting, request, operation.at, changes)
    await _ACTIONS[request.action](work, with_episodes)
    await release(parts, caller, changes)  # what expires is not told by a summary either
    archived = request.action == "archive"
    episodes = tuple(
        replace(episode, archived=archived) for episode in targets.episodes if episode.archived != archived
    )
    states = changes.states()
    affected = [memory.id for memory in states] + [episode.id for episode in episodes]
    if not affected:
        return ForgetOut(action=request.action, notice="Nothing had to be changed.")
    operation = replace(
        operation,
        memory_ids=tuple(memory.id for memory in states),
        episode_ids=tuple(episode.id for episode in episodes),
        counts={"memories": len(states), "episodes": len(episodes)},
    )
    change = Change(operation=operation, memories=states, episodes=episodes)
    await parts.store.memories.commit(caller.grant, change)
    notice = _hidden_until(request, states) if request.action == "suppress" else None
    return ForgetOut(action=request.action, affected=affected, operation_id=operation.id, notice=notice)


def _hidden_until(request: ForgetIn, states: Sequence[Memory]) -> str:
    """When what was suppressed comes back."""
    until = max((memory.suppressed_until for memory in states if memory.suppressed_until), default=None)
    if until is not None:
        return f"Hidden until {to_iso(until)}."
    return "Hidden until the next recall." if request.until else "Hidden until this session ends."


async def _with_memories(parts: Parts, caller: Caller, targets: Targets) -> tuple[Memory, ...]:
    """The given memories, and those filed in the given episodes."""
    ids = [memory_id for episode in targets.episodes for memory_id in episode.memory_ids]
    filed = await parts.store.memories.get(caller.grant, ids) if ids else []
    every = (*targets.memories, *(memory for memory in filed if may_forget(memory, caller)))
    return tuple({memory.id: memory for memory in every}.values())


@dataclass(frozen=True, slots=True)
class _Work:
    """What an action needs beside its targets."""

    parts: Parts
    grant: Grant
    sitting: Sitting
    request: ForgetIn
    now: datetime
    changes: Changes


async def _suppress(work: _Work, memories: Sequence[Memory]) -> None:
    until = work.request.until
    fields: dict[str, Any]
    if until is None:
        fields = {"suppressed_in": work.sitting.session.id, "suppressed_until": None}
    elif until.strip().casefold() == "step":
        step = work.sitting.step(work.now)
        if step is None:
            raise InvalidInput("no step is running: a step begins with a recall; leave until out for the session")
        fields = {"suppressed_in": step, "suppressed_until": None}
    else:
        time = parse_time(until, work.now, work.parts.zone, what="until", prefer="future")
        if time <= work.now:
            raise InvalidInput("until is in the past; give a later time, step, or leave it out for the session")
        fields = {"suppressed_in": None, "suppressed_until": time}
    for memory in memories:
        work.changes.change(memory, **fields)


async def _demote(work: _Work, memories: Sequence[Memory]) -> None:
    for memory in memories:
        work.changes.change(memory, demoted=True)


async def _expire(work: _Work, memories: Sequence[Memory]) -> None:
    for memory in memories:
        if memory.status is not Status.EXPIRED:
            work.changes.change(memory, status=Status.EXPIRED, expires_at=work.now)


async def _archive(work: _Work, memories: Sequence[Memory]) -> None:
    for memory in memories:
        if memory.status is Status.LIVE:
            work.changes.change(memory, status=Status.ARCHIVED)


async def _merge(work: _Work, memories: Sequence[Memory]) -> None:
    """Into the best source: the most trusted, then the most confident, then the newest, then the smallest id."""
    settled = [memory.id for memory in memories if memory.status is not Status.LIVE]
    if settled:
        raise InvalidInput(f"{settled[0]} is not live; restore it first, or leave it out of the merge")
    best = max(
        sorted(memories, key=lambda memory: memory.id),
        key=lambda memory: (trust_rank(memory.trust), memory.confidence, memory.updated_at),
    )
    for memory in memories:
        if memory.id == best.id:
            continue
        state = work.changes.current(best)
        work.changes.change(best, **merged_fields(state, memory))
        work.changes.change(
            memory, status=Status.SUPERSEDED, merged_into=best.id, superseded_by=best.id, valid_to=work.now
        )


async def _restore(work: _Work, memories: Sequence[Memory]) -> None:
    for memory in memories:
        if memory.status is Status.REDACTED:
            raise InvalidInput(f"{memory.id} was redacted; its former text is gone and cannot be restored")
    for memory in memories:
        lapsed = memory.expires_at is not None and memory.expires_at <= work.now
        work.changes.change(
            memory,
            status=Status.LIVE,
            expires_at=None if lapsed else memory.expires_at,
            expires_session=None,
            suppressed_in=None,
            suppressed_until=None,
            demoted=False,
            merged_into=None,
            superseded_by=None,
            valid_to=None if memory.status is Status.SUPERSEDED else memory.valid_to,
        )
        if memory.merged_into is not None:
            for winner in await work.parts.store.memories.get(work.grant, [memory.merged_into]):
                work.changes.change(winner, copies=max(1, work.changes.current(winner).copies - memory.copies))


_ACTIONS: dict[str, Callable[[_Work, Sequence[Memory]], Awaitable[None]]] = {
    "suppress": _suppress,
    "demote": _demote,
    "expire": _expire,
    "archive": _archive,
    "merge": _merge,
    "restore": _restore,
}
