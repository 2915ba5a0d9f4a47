"""Applying a compression run, cluster by cluster.

The summary is written outside any transaction, then one short transaction stores it and takes its members out of
search, all or nothing; what changed meanwhile is read again, and left out where it no longer fits. All clusters of a
run are one operation, so that one undo puts everything back. Whoever finds a run interrupted goes on with it: each
attempt at a cluster is noted before it, so that one that failed twice is skipped and named instead of tried for ever.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import anyio.to_thread

from middleout_mcp.compression.bands import split
from middleout_mcp.compression.clusters import still_together
from middleout_mcp.errors import Conflict, InvalidInput
from middleout_mcp.memory.changes import Changes
from middleout_mcp.memory.parts import Parts
from middleout_mcp.memory.runs import change_run, cluster_id, may_work, next_cluster
from middleout_mcp.memory.writers import Draft, extractive, size
from middleout_mcp.policy import compressible, trust_rank
from middleout_mcp.records import (
    Caller,
    Change,
    Grant,
    Kind,
    Memory,
    Operation,
    Privacy,
    Run,
    Source,
    Status,
    new_id,
)

_ATTEMPTS = 2  # after so many a cluster is skipped
_TAGS = 16  # of a summary, those that most members carry
_CHANGED = "it was changed meanwhile"
_SAYS_NOTHING = "it says nothing that a summary could tell"


@dataclass(frozen=True, slots=True)
class _Fate:
    """What became of a cluster: the summary that stands for it and its sizes, or why there is none, and who is left."""

    summary: Memory | None = None
    sizes: tuple[int, int, int] = (0, 0, 0)
    """Members, their searchable bytes, those of the summary."""
    reason: str | None = None
    left: tuple[Mapping[str, str], ...] = ()


async def advance(parts: Parts, grant: Grant, run_id: str, *, lead: bool = False) -> bool:
    """Apply the next cluster of a run that is under way; whether there may be another one to apply here.

    A run that another process works on is left to it, unless this one has the `lead` (holds the lease of the jobs).
    """
    run = await parts.store.control.run(grant, run_id)
    if run is None or run.status != "running" or not (lead or may_work(run, parts.worker, parts.clock.now())):
        return False
    at = next_cluster(run)
    if at is None or "operation" not in run.plan:
        return not await _finish(parts, grant, run)
    name = cluster_id(at)
    attempts = run.plan.get("attempts", {}).get(name, 0)
    ids = run.plan["clusters"][at]
    if attempts >= _ATTEMPTS:
        why = run.plan.get("failures", {}).get(name)
        fate = await _found_compressed(parts, grant, run, ids)  # the last attempt may have been killed after its commit
        fate = fate or _Fate(reason=f"it failed twice: {why}" if why else "it failed twice")
        return await _note(parts, grant, run, name, fate)
    trying = {**run.plan, "attempts": {**run.plan.get("attempts", {}), name: attempts + 1}, "worker": parts.worker}
    claimed = replace(run, plan=trying, updated_at=parts.clock.now())
    if not await parts.store.control.save_run(grant, claimed, expect=run):
        return True  # another process was faster: what is next now?
    try:
        fate = await _found_compressed(parts, grant, run, ids) or await _apply(parts, grant, claimed, ids)
    except (Conflict, InvalidInput) as error:  # changed or erased under it: read again
        return await _failed(parts, grant, claimed, name, str(error))
    return await _note(parts, grant, claimed, name, fate)


async def _finish(parts: Parts, grant: Grant, run: Run) -> bool:
    """Nothing is left to apply: better texts are welcome where somebody asked for the run. Whether it was ended."""
    if "operation" not in run.plan:  # its process ended while it was being planned
        done = replace(run, status="failed", plan={**run.plan, "notice": "It was interrupted while being planned."})
    else:
        waits = bool(run.plan.get("applied")) and not run.plan.get("automatic")
        done = replace(run, status="awaiting" if waits else "done")
    return await parts.store.control.save_run(grant, replace(done, updated_at=parts.clock.now()), expect=run)


async def _failed(parts: Parts, grant: Grant, run: Run, name: str, sentence: str) -> bool:
    """Keep why a cluster could not be applied; a run whose operation was undone has ended. Whether it goes on."""
    operation = await parts.store.journal.operation(grant, run.plan["operation"])
    undone = operation is not None and operation.undone_by is not None

    def noted(stored: Run) -> Run | None:
        if stored.status != "running":
            return None
        failures = {**stored.plan.get("failures", {}), name: sentence}
        return replace(stored, status="cancelled" if undone else "running", plan={**stored.plan, "failures": failures})

    return await change_run(parts, grant, run.id, noted) is not None and not undone


async def _note(parts: Parts, grant: Grant, run: Run, name: str, fate: _Fate) -> bool:
    """Keep what became of a cluster, also in a run that was cancelled, or ended by another process, meanwhile; whether
    the run goes on.
    """

    def noted(stored: Run) -> Run | None:
        plan = stored.plan
        if stored.status not in ("running", "cancelled", "awaiting", "done"):
            return None
        if name in plan.get("applied", {}):  # another process that works on the run knows better
            return stored
        skipped = [entry for entry in plan.get("skipped", ()) if entry["cluster"] != name]
        more: dict[str, Any] = {"attempts": {key: n for key, n in plan.get("attempts", {}).items() if key != name}}
        if fate.summary is not None:
            more["applied"] = {**plan.get("applied", {}), name: fate.summary.id}
            more["sizes"] = {**plan.get("sizes", {}), name: list(fate.sizes)}
        else:
            skipped.append({"cluster": name, "reason": fate.reason})
        more["left_out"] = [*plan.get("left_out", ()), *map(dict, fate.left)]
        return replace(stored, plan={**plan, **more, "skipped": skipped})

    kept = await change_run(parts, grant, run.id, noted)
    return kept is not None and kept.status == "running"


async def _apply(parts: Parts, grant: Grant, run: Run, ids: Sequence[str]) -> _Fate:
    """Write and store the summary of one cluster. Raises Conflict or InvalidInput where something changed under it."""
    stored = await parts.store.memories.get(Grant.only(grant.write), ids)
    members = still_together([memory for memory in split(stored, ()).middle if compressible(memory)])
    kept = {memory.id for memory in members}
    changed = tuple({"id": memory.id, "reason": _CHANGED} for memory in stored if memory.id not in kept)
    draft = await anyio.to_thread.run_sync(extractive, members, abandon_on_cancel=True) if len(members) > 1 else None
    if draft is None:
        empty = tuple({"id": memory.id, "reason": _SAYS_NOTHING} for memory in members)
        return _Fate(reason="its memories say nothing that a summary could tell, or are gone", left=(*changed, *empty))
    empty = tuple({"id": memory.id, "reason": _SAYS_NOTHING} for memory in draft.empty)
    now = parts.clock.now()
    summary = _summary(draft, grant.write, run.agent, now)
    sizes = len(draft.members), sum(map(size, draft.members)), size(summary)
    if (reason := _unfit(draft, sizes)) is not None:
        return _Fate(reason=reason, left=(*changed, *empty))
    vectors = await parts.embed([summary.text])
    hidden = (replace(memory, summary_id=summary.id, version=memory.version + 1) for memory in draft.members)
    change = Change(
        operation=await _operation(parts, grant, run, len(draft.members), now),
        memories=(summary, *hidden),
        vectors={summary.id: vectors[0]} if vectors else {},
    )
    await parts.store.memories.commit(grant, change)
    return _Fate(summary=summary, sizes=sizes, left=(*changed, *empty))


async def _found_compressed(parts: Parts, grant: Grant, run: Run, ids: Sequence[str]) -> _Fate | None:
    """What members that are compressed already mean: this run was interrupted before that was noted, or another one
    was faster. None where there are none.
    """
    stored = await parts.store.memories.get(Grant.only(grant.write), ids)
    summary_id = next((memory.summary_id for memory in stored if memory.summary_id is not None), None)
    if summary_id is None:
        return None
    summaries = await parts.store.memories.get(grant, [summary_id])
    operations = await parts.store.journal.operations(grant, memory_id=summary_id, limit=100)
    if summaries and any(operation.id == run.plan["operation"] for operation in operations):
        members = await parts.store.memories.get(grant, summaries[0].parents)
        sizes = len(members), sum(map(size, members)), size(summaries[0])
        return _Fate(summary=summaries[0], sizes=sizes)
    return _Fate(reason="its memories were compressed meanwhile")


def _unfit(draft: Draft, sizes: tuple[int, int, int]) -> str | None:
    """Why a cluster is not compressed, or None."""
    members, before, after = sizes
    if members < 2:
        return "fewer than two of its memories say anything that a summary could tell"
    if draft.invented:
        return "a summary cut from its memories would say what none of them says"
    return "its summary would not be smaller than its memories" if after >= before else None


async def _operation(parts: Parts, grant: Grant, run: Run, members: int, now: datetime) -> Operation:
    """The operation of the run for its first cluster, else a part of it."""
    whole: str = run.plan["operation"]
    begun = await parts.store.journal.operation(grant, whole) is not None
    return Operation(
        id=new_id("op") if begun else whole,
        namespace=grant.write,
        kind="compress",
        at=now,
        agent=run.agent,
        counts={"summaries": 1, "memories": members},
        part_of=whole if begun else None,
    )


def summary_tags(members: Sequence[Memory]) -> tuple[str, ...]:
    """The tags that at least half of the members carry, the most frequent first."""
    counts: dict[str, int] = {}
    for memory in members:
        for tag in memory.tags:
            counts[tag] = counts.get(tag, 0) + 1
    shared = [tag for tag, count in counts.items() if 2 * count >= len(members)]
    return tuple(sorted(shared, key=lambda tag: (-counts[tag], tag))[:_TAGS])


def _common(values: Sequence[str | None]) -> str | None:
    return values[0] if len(set(values)) == 1 else None


def _summary(draft: Draft, namespace: str, agent: str, now: datetime) -> Memory:
    """The record of a summary: as important as its most important source, as sure as its least sure one (DESIGN §9)."""
    members = draft.members
    last = max(memory.at for memory in members)
    return Memory(
        id=new_id("m"),
        namespace=namespace,
        kind=Kind.SUMMARY,
        text=draft.text,
        at=last,
        created_at=now,
        updated_at=now,
        agent=agent,
        source=Source.SUMMARY,
        trust=min((memory.trust for memory in members), key=trust_rank),
        confidence=min(memory.confidence for memory in members),
        importance=max(memory.importance for memory in members),
        emotional_weight=max(memory.emotional_weight for memory in members),
        tags=summary_tags(members),
        scope=members[0].scope,
        known_by=members[0].known_by,
        privacy=members[0].privacy,
        session=_common([memory.session for memory in members]),
        thread=_common([memory.thread for memory in members]),
        episode_id=_common([memory.episode_id for memory in members]),
        valid_from=last,  # before that, part of what it says was not known
        parents=tuple(memory.id for memory in members),
        copies=sum(memory.copies for memory in members),
    )


async def release(parts: Parts, caller: Caller, changes: Changes) -> None:
    """Where a member of a summary is corrected, archive the summary and let all its members surface again.

    What it was made from says something else now; the next run compresses the members anew (DESIGN §7). A summary that
    told what is private or sensitive now is as private.
    """
    stale: dict[str, list[Memory]] = {}
    for memory in changes.corrected():
        if memory.summary_id is not None:
            stale.setdefault(memory.summary_id, []).append(changes.current(memory))
    grant = Grant.only(caller.grant.write)
    for summary in await parts.store.memories.get(grant, sorted(stale)):
        changes.change(summary, status=Status.ARCHIVED, **_privacy(stale[summary.id]))
        for member in await parts.store.memories.get(grant, summary.parents):
            if changes.current(member).summary_id == summary.id:
                changes.change(member, summary_id=None, updated_at=changes.current(member).updated_at)


def _privacy(corrected: Sequence[Memory]) -> dict[str, Any]:
    """What a summary takes over of members that may not be seen by all any more."""
    if any(memory.privacy is Privacy.SENSITIVE for memory in corrected):
        return {"privacy": Privacy.SENSITIVE}
    agents = [memory.agent for memory in corrected if memory.privacy is Privacy.PRIVATE]
    return {"privacy": Privacy.PRIVATE, "agent": agents[0]} if agents else {}
