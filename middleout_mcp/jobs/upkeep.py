"""What the scheduler does, each in small steps: expiry, back-fill, compression, checkpoint."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from middleout_mcp.errors import EmbedderUnavailable
from middleout_mcp.jobs.scheduler import Job
from middleout_mcp.memory.applying import advance
from middleout_mcp.memory.parts import Parts
from middleout_mcp.memory.runs import abandoned, all_of, new_run, plan, started
from middleout_mcp.records import Caller, Change, Filter, Grant, Operation, Run, Status, new_id
from middleout_mcp.times import to_iso

SCHEDULER = "scheduler"
"""The agent in whose name jobs change memories."""

EVERY_NEW = 200
"""So many new memories make a compression due before its day is over (DESIGN §4)."""

_BATCH = 64
_EXPIRED_AT_ONCE = 200
_COMPRESS_EVERY = timedelta(days=1)


async def backfill(parts: Parts) -> None:
    """Give a batch of pending memories their vectors and queue the next batch, so that other work comes in between.

    Stops where the embedder cannot be loaded; the next remembered memory, or the scheduler, tries again.
    """
    if await fill(parts):
        parts.later.put(lambda: backfill(parts))


async def fill(parts: Parts) -> bool:
    """Embed one batch of pending memories; whether there may be more. Without an embedder, nothing is done."""
    if parts.embedder is None:
        return False
    rows = await parts.store.search.pending(_BATCH)
    if not rows:
        return False
    try:
        vectors = await parts.embedder.embed([row.text for row in rows])
    except EmbedderUnavailable:
        return False
    stored = await parts.store.search.add_vectors(list(zip(rows, vectors, strict=True)))
    return (
        stored > 0
    )  # none stored: every row changed meanwhile or another process was faster; whoever did that goes on


async def keep_up(parts: Parts) -> None:
    """What every process does every few seconds: overwrite what a reader kept an erase from overwriting."""
    await parts.store.memories.finish_erasures()


async def _expiry(parts: Parts, _data: dict[str, Any], now: datetime) -> bool:
    """Mark what has expired. It surfaces nowhere from its last moment on, marked or not."""
    for namespace in await parts.store.control.namespaces():
        grant = Grant.only(namespace)
        condition = Filter(now=now, sensitive=True, compressed=True, lapsed=True, statuses=(Status.EXPIRED,))
        lapsed = await parts.store.memories.find(grant, condition, limit=_EXPIRED_AT_ONCE)
        if lapsed:
            marked = tuple(
                replace(memory, status=Status.EXPIRED, version=memory.version + 1, updated_at=now) for memory in lapsed
            )
            operation = Operation(
                id=new_id("op"),
                namespace=namespace,
                kind="expire",
                at=now,
                agent=SCHEDULER,
                counts={"memories": len(marked)},
            )
            await parts.store.memories.commit(grant, Change(operation=operation, memories=marked))
            return True
    return False


async def _backfill(parts: Parts, _data: dict[str, Any], _now: datetime) -> bool:
    return await fill(parts)


async def _checkpoint(parts: Parts, _data: dict[str, Any], _now: datetime) -> bool:
    await parts.store.control.checkpoint()
    return False


async def _compression(parts: Parts, data: dict[str, Any], now: datetime) -> bool:
    """One cluster of a run that is under way or was abandoned; else a plan for the next namespace that is due one."""
    namespaces = await parts.store.control.namespaces()
    for namespace in namespaces:
        for run in await parts.store.control.runs(Grant.only(namespace), "running"):
            if _ours(run, now):
                await advance(parts, Grant.only(namespace), run.id)
                return True
    for namespace in namespaces:
        if await _begin(parts, namespace, data, now):
            return True
    return False


def _ours(run: Run, now: datetime) -> bool:
    """Whether the scheduler goes on with a run: one of its own, or one that lost its process."""
    automatic = bool(run.plan.get("automatic")) and "operation" in run.plan
    return automatic or abandoned(run, now)


async def _begin(parts: Parts, namespace: str, data: dict[str, Any], now: datetime) -> bool:
    """Plan and start a run where a day has passed or enough was added; whether that was so."""
    caller = Caller(Grant.only(namespace), SCHEDULER, SCHEDULER)
    counts = await parts.store.memories.count(caller.grant)
    live = counts[Status.LIVE]
    known = data.get(namespace)
    if known is None:
        data[namespace] = {"at": to_iso(now), "live": live}  # a day from now, or when enough was added
        return False
    waited = now - datetime.fromisoformat(known["at"])
    if timedelta() <= waited < _COMPRESS_EVERY and live - known["live"] < EVERY_NEW:
        return False
    run = new_run(caller, "middle", now, automatic=True)
    await parts.store.control.save_run(caller.grant, run)
    chosen = await all_of(parts, caller, Filter(now=now, agent=SCHEDULER))
    planned = await plan(parts, caller, run, chosen)
    await parts.store.control.save_run(caller.grant, started(planned, parts.clock.now()), expect="running")
    data[namespace] = {"at": to_iso(now), "live": live}
    return True


JOBS = (
    Job("expiry", timedelta(hours=1), _expiry),
    Job("backfill", timedelta(minutes=1), _backfill),
    Job("compression", timedelta(minutes=10), _compression),
    Job("checkpoint", timedelta(hours=1), _checkpoint),
)
"""Every job. `compression` looks every ten minutes whether a day has passed or 200 memories are new."""
