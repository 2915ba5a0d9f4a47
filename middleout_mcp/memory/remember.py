"""`remember`: file memories and messages, in one transaction.

The way of one call: read (check, clean, screen) → plan (place the turns, find what exists already, draft the new) →
embed, outside any transaction → commit. A conflict with another writer makes the plan anew; the vectors are kept.
"""

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Any

from middleout_mcp.errors import Conflict, InvalidInput
from middleout_mcp.jobs.upkeep import backfill
from middleout_mcp.memory.contract import EpisodeOut, RememberIn, RememberOut
from middleout_mcp.memory.intake import Intake, name, read
from middleout_mcp.memory.parts import Parts
from middleout_mcp.memory.plan import Plan, make_plan
from middleout_mcp.memory.sittings import Sitting
from middleout_mcp.policy import EMBED_AT_ONCE
from middleout_mcp.records import Action, Caller, Change, Episode, Operation, Vector
from middleout_mcp.times import to_iso

_ATTEMPTS = 20
"""After a conflict the calls of one process go one by one, so that what is left to meet is other processes' calls."""


async def remember(parts: Parts, caller: Caller, request: RememberIn) -> RememberOut:
    """Store what is given; see DESIGN §4. Raises InvalidInput where any part is wrong: then nothing was stored."""
    if not any((request.memories, request.messages, request.episode, request.session, request.used, request.wrong)):
        raise InvalidInput("nothing to remember: give memories, messages, an episode line, used, wrong or session")
    now = parts.clock.now()
    intake = await read(parts, request, now)
    session_name = name(parts, request.session, "session") if request.session not in (None, "end") else None
    sitting = parts.sittings.of(caller, now, session_name)
    await parts.save_ended()
    vectors: dict[str, Vector] = {}
    done: Operation | None = None
    for attempt in range(_ATTEMPTS):
        alone: AbstractAsyncContextManager[Any] = parts.filing if attempt else nullcontext()
        async with alone:
            plan = await make_plan(parts, caller, sitting, intake, request, now)
            await _embed(parts, plan, vectors)
            change = _change(caller, sitting, plan, vectors)
            if change is None:
                break
            try:
                done = await parts.store.memories.commit(caller.grant, change)
                break
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
    if change is None and not caller.owner:
        await parts.store.threads.save_session(caller.grant, sitting.session)
    await _after(parts, caller, sitting, plan, end=request.session == "end")
    return _result(intake, plan, vectors, done)


async def _embed(parts: Parts, plan: Plan, vectors: dict[str, Vector]) -> None:
    """Add the vectors that are still missing, of at most the first 256 memories, keyed by text."""
    wanted = [memory.text for memory in plan.changes.reworded()][:EMBED_AT_ONCE]
    texts = list(dict.fromkeys(text for text in wanted if text not in vectors))
    made = await parts.embed(texts)
    if made is not None:
        vectors.update(zip(texts, made, strict=True))


def _change(caller: Caller, sitting: Sitting, plan: Plan, vectors: dict[str, Vector]) -> Change | None:
    """The one write of this call, or None where nothing is new."""
    states = plan.changes.states()
    if not (states or plan.stretch.fresh or plan.episode or plan.uses):
        return None
    reworded = {memory.id: vectors[memory.text] for memory in plan.changes.reworded() if memory.text in vectors}
    session = replace(sitting.session, turns=sitting.session.turns + len(plan.stretch.fresh))
    operation = sitting.operation(
        "remember",
        plan.now,
        memory_ids=tuple(memory.id for memory in states),
        episode_ids=(plan.episode.id,) if plan.episode else (),
        counts={"memories": len(states), "turns": len(plan.stretch.fresh), "uses": len(plan.uses)},
    )
    return Change(
        operation=operation,
        memories=states,
        vectors=reworded,
        turns=plan.stretch.fresh,
        episodes=(plan.episode,) if plan.episode else (),
        uses=plan.uses,
        session=None if caller.owner else session,  # one command is no sitting, and would age the real ones
    )


async def _after(parts: Parts, caller: Caller, sitting: Sitting, plan: Plan, *, end: bool) -> None:
    """Note what the sitting has seen, end it if asked, and queue what is still without a vector."""
    turns = sitting.session.turns + len(plan.stretch.fresh)
    sitting.session = replace(sitting.session, turns=turns)
    sitting.saved_at = None if caller.owner else plan.now
    sitting.binds |= any(memory.expires_session == sitting.session.id for memory in plan.changes.states())
    sitting.thread = plan.stretch.thread or sitting.thread
    sitting.saw([result.id for result in plan.results if result.id])
    if end:
        await parts.store.threads.save_session(caller.grant, parts.sittings.end(sitting, plan.now))
    if parts.embedder is not None and plan.changes.reworded():  # what an earlier call left pending goes along
        parts.later.put(lambda: backfill(parts))


def _result(intake: Intake, plan: Plan, vectors: dict[str, Vector], operation: Operation | None) -> RememberOut:
    pending = {memory.id for memory in plan.changes.reworded() if memory.text not in vectors}
    results = [
        result.model_copy(update={"actions": [*result.actions, Action.PENDING]}) if result.id in pending else result
        for result in plan.results
    ]
    return RememberOut(
        results=results,
        episode=_episode_out(plan.episode) if plan.episode else None,
        operation_id=operation.id if operation and operation.undoable else None,
        notice=f"Removed from the messages: {', '.join(intake.removed)}." if intake.removed else None,
    )


def _episode_out(episode: Episode) -> EpisodeOut:
    return EpisodeOut(
        id=episode.id,
        line=episode.line,
        thread=episode.thread,
        start=to_iso(episode.start),
        end=to_iso(episode.end),
    )
