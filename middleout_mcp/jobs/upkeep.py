"""What the scheduler does, each in small steps: expiry, back-fill, compression, checkpoint."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from middleout_mcp.errors import Conflict, EmbedderUnavailable
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
_ADOPTED = "goes on with"  # the run that the scheduler took up; beside the names of namespaces, which have no spaces
_JOURNAL_BYTES = 256 * 1024
"""A journal up to this length is left: emptying it would save nothing, and each job's own note would fill it again."""


async def backfill(parts: Parts) -> None:
    """Give a batch of pending memories their vectors and queue the next batch, so that other work comes in between.

    Stops where the embedder cannot be loaded; the next remembered memory, or the scheduler, tries again. Nothing is
    done where the job of that name is off.
    """
    if parts.settings.is_off("backfill"):
        return
    try:
        if await fill(parts):
            parts.later.put(lambda: backfill(parts))
    except EmbedderUnavailable:
        return  # told by the call that could not embed, and by the job


async def fill(parts: Parts) -> bool:
    """Embed one batch of pending memories; whether there may be more. Without an embedder, nothing is done.

    Raises EmbedderUnavailable, or EmbedderMismatch where the vectors in the file are another model's.
    """
    if parts.embedder is None:
        return False
    rows = await parts.store.search.pending(_BATCH)
    if not rows:
        return False
    vectors = await parts.embedder.embed([row.text for row in rows])
    stored = await parts.store.search.add_vectors(list(zip(rows, vectors, strict=True)))
    return stored > 0  # if none: every row changed meanwhile or another process was faster; whoever did that goes on


async def keep_up(parts: Parts) -> None:
    """What every process does every few seconds: overwrite what a reader kept an erase from overwriting."""
    await parts.store.memories.finish_erasures()


async def _lapsed(parts: Parts, namespace: str, now: datetime, limit: int) -> list[Any]:
    condition = Filter(now=now, sensitive=True, compressed=True, lapsed=True, statuses=(Status.EXPIRED,))
    return await parts.store.memories.find(Grant.only(namespace), condition, limit=limit)


async def _expiry_waits(parts: Parts, _data: dict[str, Any], now: datetime) -> bool:
    for namespace in await parts.store.control.namespaces():
        if await _lapsed(parts, namespace, now, 1):
            return True
    return False


async def _expiry(parts: Parts, _data: dict[str, Any], now: datetime) -> bool:
    """Mark what has expired. It surfaces nowhere from its last moment on, marked or not."""
    for namespace in await parts.store.control.namespaces():
        lapsed = await _lapsed(parts, namespace, now, _EXPIRED_AT_ONCE)
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
            change = Change(operation=operation, memories=marked)
            try:
                await parts.store.memories.commit(Grant.only(namespace), change)
            except Conflict:  # one of them was changed meanwhile: look again
                return True
            return True
    return False


async def _backfill_waits(parts: Parts, _data: dict[str, Any], _now: datetime) -> bool:
    return parts.embedder is not None and bool(await parts.store.search.pending(1))


async def _backfill(parts: Parts, _data: dict[str, Any], _now: datetime) -> bool:
    return await fill(parts)


async def _checkpoint_waits(parts: Parts, _data: dict[str, Any], _now: datetime) -> bool:
    journal: int = (await parts.store.control.health()).get("journal_bytes", 0)
    return journal > _JOURNAL_BYTES


async def _checkpoint(parts: Parts, _data: dict[str, Any], _now: datetime) -> bool:
    await parts.store.control.checkpoint()
    return False


async def _compression_waits(parts: Parts, data: dict[str, Any], now: datetime) -> bool:
    namespaces = await parts.store.control.namespaces()
    if await _under_way(parts, namespaces, data, now) is not None:
        return True
    for namespace in namespaces:
        known = data.get(namespace)
        if known is None or _is_due(known, await _live(parts, namespace), now):
            return True
    return False


async def _compression(parts: Parts, data: dict[str, Any], now: datetime) -> bool:
    """One cluster of a run that is under way or was abandoned; else a plan for the next namespace that is due one."""
    namespaces = await parts.store.control.namespaces()
    run = await _under_way(parts, namespaces, data, now)
    if run is not None:
        data[_ADOPTED] = run.id
        if not await advance(parts, Grant.only(run.namespace), run.id, lead=True):
            del data[_ADOPTED]
            known = data.get(run.namespace, {"at": to_iso(now)})
            data[run.namespace] = {**known, "live": await _live(parts, run.namespace)}  # summaries are nothing new
        return True
    if await _planned_elsewhere(parts, namespaces):
        return False
    for namespace in namespaces:
        if await _begin(parts, namespace, data, now):
            return True
    return False


async def _under_way(parts: Parts, namespaces: Iterable[str], data: dict[str, Any], now: datetime) -> Run | None:
    """The first run that the scheduler goes on with: one of its own, or one that lost its process."""
    for namespace in namespaces:
        for run in await parts.store.control.runs(Grant.only(namespace), "running"):
            if run.id == data.get(_ADOPTED) or _is_ours(run, now):
                return run
    return None


async def _planned_elsewhere(parts: Parts, namespaces: Iterable[str]) -> bool:
    """Whether another process, which led before, is still planning a run."""
    running = [await parts.store.control.runs(Grant.only(namespace), "running") for namespace in namespaces]
    return any(run.plan.get("automatic") for runs in running for run in runs)


def _is_ours(run: Run, now: datetime) -> bool:
    automatic = bool(run.plan.get("automatic")) and "operation" in run.plan
    return automatic or abandoned(run, now)


async def _live(parts: Parts, namespace: str) -> int:
    return (await parts.store.memories.count(Grant.only(namespace)))[Status.LIVE]


def _is_due(known: dict[str, Any], live: int, now: datetime) -> bool:
    """Whether a day has passed (or the clock was set back) or enough was added since the last run."""
    waited = now - datetime.fromisoformat(known["at"])
    return not timedelta() <= waited < _COMPRESS_EVERY or live - known["live"] >= EVERY_NEW


async def _begin(parts: Parts, namespace: str, data: dict[str, Any], now: datetime) -> bool:
    """Plan and start a run where one is due; whether that was so."""
    live = await _live(parts, namespace)
    known = data.get(namespace)
    if known is None:
        data[namespace] = {"at": to_iso(now), "live": live}  # a day from now, or when enough was added
        return False
    if not _is_due(known, live, now):
        return False
    caller = Caller(Grant.only(namespace), SCHEDULER, SCHEDULER)
    chosen = await all_of(parts, caller, Filter(now=now, agent=SCHEDULER))
    planned = await plan(parts, caller, new_run(caller, "middle", now, automatic=True), chosen)
    if planned.plan["clusters"] or "notice" in planned.plan:  # else there is nothing to tell
        await parts.store.control.save_run(caller.grant, started(planned, parts.clock.now()))
    data[namespace] = {"at": to_iso(now), "live": live}
    return True


JOBS = (
    Job("expiry", timedelta(hours=1), _expiry_waits, _expiry),
    Job("backfill", timedelta(minutes=1), _backfill_waits, _backfill),
    Job("compression", timedelta(minutes=10), _compression_waits, _compression),
    Job("checkpoint", timedelta(hours=1), _checkpoint_waits, _checkpoint),
)
"""Every job. `compression` looks every ten minutes whether a day has passed or 200 memories are new."""
