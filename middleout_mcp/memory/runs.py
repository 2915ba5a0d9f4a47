"""Compression runs: planning one, applying it cluster by cluster, and taking better texts for its summaries.

A run is a row that holds ids and numbers only. It is applied one cluster at a time: the summary is written outside any
transaction, then one short transaction stores it and takes its members out of search, all or nothing; what changed
meanwhile is skipped. All clusters of a run are one operation, so that one undo puts everything back. Whoever finds a
run interrupted goes on with it: each attempt at a cluster is noted before it, so that one that failed twice is skipped
and named instead of tried for ever.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import anyio.to_thread

from middleout_mcp.compression.bands import Bands, split
from middleout_mcp.compression.clusters import Group, groups
from middleout_mcp.errors import ClusteringFailed, Conflict
from middleout_mcp.memory.changes import Changes
from middleout_mcp.memory.parts import Parts
from middleout_mcp.memory.writers import RATIO, Draft, extractive
from middleout_mcp.policy import compressible, trust_rank
from middleout_mcp.records import (
    Caller,
    Change,
    Filter,
    Grant,
    Kind,
    Memory,
    Operation,
    Run,
    Source,
    Status,
    new_id,
)

_PAGE = 1000  # memories read at a time
_ATTEMPTS = 2  # after so many a cluster is skipped
_TAGS = 16  # of a summary, those that most members carry


def summary_tags(members: Sequence[Memory]) -> tuple[str, ...]:
    """The tags that at least half of the members carry, the most frequent first."""
    counts: dict[str, int] = {}
    for memory in members:
        for tag in memory.tags:
            counts[tag] = counts.get(tag, 0) + 1
    shared = [tag for tag, count in counts.items() if 2 * count >= len(members)]
    return tuple(sorted(shared, key=lambda tag: (-counts[tag], tag))[:_TAGS])


def new_run(caller: Caller, target: str, now: datetime, *, automatic: bool = False) -> Run:
    """A run that is still to be planned."""
    return Run(
        id=new_id("run"),
        namespace=caller.grant.write,
        status="running",
        target=target,
        plan={"phase": "planning", "automatic": automatic},
        created_at=now,
        updated_at=now,
        agent=caller.agent,
    )


async def all_of(parts: Parts, caller: Caller, condition: Filter) -> list[Memory]:
    """Every memory of the write namespace that meets the condition."""
    memories: list[Memory] = []
    offset = 0
    while True:
        page = await parts.store.memories.find(caller.grant, condition, limit=_PAGE, offset=offset)
        memories += [memory for memory in page if memory.namespace == caller.grant.write]
        offset += len(page)
        if len(page) < _PAGE:
            return memories


async def plan(parts: Parts, caller: Caller, run: Run, chosen: Sequence[Memory]) -> Run:
    """The run with its bands and clusters; nothing but the run is changed."""
    bands = split(chosen, await _active_sessions(parts, caller))
    middle = [memory for memory in bands.middle if compressible(memory)]
    labels, notice = await _labels(parts, caller, middle)
    found = await anyio.to_thread.run_sync(groups, middle, labels)
    planned = _planned(bands, middle, found)
    if notice is not None:
        planned["notice"] = notice
    return replace(run, status="planned", plan={**planned, "automatic": run.plan.get("automatic", False)})


async def _labels(parts: Parts, caller: Caller, middle: Sequence[Memory]) -> tuple[list[int], str | None]:
    """A label a memory from its stored vector, and a sentence where no themes could be looked for."""
    none = [-1] * len(middle)
    if parts.clusterer is None:
        return none, None
    vectors = await parts.store.search.vectors(caller.grant, [memory.id for memory in middle])
    places = [index for index, memory in enumerate(middle) if memory.id in vectors]
    try:
        labels = await parts.clusterer.cluster([vectors[middle[index].id] for index in places])
    except ClusteringFailed as error:
        return none, f"{error} Only what one conversation filed together is grouped."
    for index, label in zip(places, labels, strict=True):
        none[index] = label
    return none, None


async def _active_sessions(parts: Parts, caller: Caller) -> set[str]:
    """The newest sessions of the namespace, and the newest one of each agent (DESIGN §7)."""
    sessions = await parts.store.threads.sessions(Grant.only(caller.grant.write), limit=1000)
    newest = {session.id for session in sessions[: parts.settings.active_sessions]}
    last_of_agent: dict[str, str] = {}
    for session in sessions:
        last_of_agent.setdefault(session.agent, session.id)
    return newest | set(last_of_agent.values())


def size(memory: Memory) -> int:
    """Searchable bytes: text and tags."""
    return len(memory.text.encode("utf-8", "replace")) + sum(len(tag) + 1 for tag in memory.tags)


def _planned(bands: Bands, middle: Sequence[Memory], found: Sequence[Group]) -> dict[str, Any]:
    before = sum(map(size, bands.middle))
    grouped = sum(size(memory) for group in found for memory in group.members)
    return {
        "bands": {
            "foundation": len(bands.foundation),
            "middle": len(bands.middle),
            "active": len(bands.active),
        },
        "searchable_bytes": {"before": before, "after_estimate": before - grouped + grouped // RATIO},
        "themes": sum(group.theme for group in found),
        "single": len(middle) - sum(len(group.members) for group in found),
        "kept_as_they_are": len(bands.middle) - len(middle),
        "clusters": [[memory.id for memory in group.members] for group in found],
    }


def started(run: Run, now: datetime) -> Run:
    """The planned run, under way, with the id of the operation that it will be."""
    return replace(run, status="running", updated_at=now, plan={**run.plan, "operation": new_id("op")})


def next_cluster(run: Run) -> int | None:
    """The first cluster that was neither applied nor skipped."""
    done = {*run.plan.get("applied", {}), *(entry["cluster"] for entry in run.plan.get("skipped", ()))}
    return next((at for at in range(len(run.plan.get("clusters", ()))) if cluster_id(at) not in done), None)


def cluster_id(at: int) -> str:
    """What the cluster with that index is called."""
    return f"c{at + 1}"


async def advance(parts: Parts, grant: Grant, run_id: str) -> bool:
    """Apply the next cluster of a run that is under way; whether there may be another."""
    run = await parts.store.control.run(grant, run_id)
    if run is None or run.status != "running":
        return False
    at = next_cluster(run)
    if at is None or "operation" not in run.plan:
        await _finish(parts, grant, run)
        return False
    name = cluster_id(at)
    attempts = run.plan.get("attempts", {}).get(name, 0)
    if attempts >= _ATTEMPTS:
        return await _note(parts, grant, run, skipped={"cluster": name, "reason": "it failed twice"})
    trying = {**run.plan, "attempts": {**run.plan.get("attempts", {}), name: attempts + 1}}
    run = replace(run, plan=trying, updated_at=parts.clock.now())
    if not await parts.store.control.save_run(grant, run, expect="running"):
        return False
    try:
        return await _apply(parts, grant, run, name, run.plan["clusters"][at])
    except Conflict as conflict:
        operation = await parts.store.journal.operation(grant, run.plan["operation"])
        if operation is not None and operation.undone_by is not None:
            cancelled = replace(run, status="cancelled", updated_at=parts.clock.now())
            await parts.store.control.save_run(grant, cancelled, expect="running")
            return False
        return await _note(parts, grant, run, skipped={"cluster": name, "reason": str(conflict)})


async def _finish(parts: Parts, grant: Grant, run: Run) -> None:
    """Nothing is left to apply: better texts are welcome where somebody asked for the run."""
    if "operation" not in run.plan:  # its process ended while it was being planned
        done = replace(run, status="failed", plan={**run.plan, "notice": "It was interrupted while being planned."})
    else:
        waits = bool(run.plan.get("applied")) and not run.plan.get("automatic")
        done = replace(run, status="awaiting" if waits else "done")
    await parts.store.control.save_run(grant, replace(done, updated_at=parts.clock.now()), expect="running")


async def _note(
    parts: Parts,
    grant: Grant,
    run: Run,
    *,
    applied: Mapping[str, str] | None = None,
    skipped: Mapping[str, Any] | None = None,
    left: Sequence[Mapping[str, Any]] = (),
) -> bool:
    """Keep what became of a cluster, also in a run that was cancelled meanwhile; whether the run goes on."""
    plan = {
        **run.plan,
        "applied": {**run.plan.get("applied", {}), **(applied or {})},
        "skipped": [*run.plan.get("skipped", ()), *([dict(skipped)] if skipped else ())],
        "left_out": [*run.plan.get("left_out", ()), *map(dict, left)],
    }
    for status in ("running", "cancelled"):
        noted = replace(run, status=status, plan=plan, updated_at=parts.clock.now())
        if await parts.store.control.save_run(grant, noted, expect=status):
            return status == "running"
    return False


async def _apply(parts: Parts, grant: Grant, run: Run, name: str, ids: Sequence[str]) -> bool:
    stored = await parts.store.memories.get(grant, ids)
    found = [memory.summary_id for memory in stored if memory.summary_id is not None]
    if found:
        return await _found_compressed(parts, grant, run, name, ids, found[0])
    members = [memory for memory in stored if compressible(memory)]
    draft = await anyio.to_thread.run_sync(extractive, members) if len(members) > 1 else None
    reason = _unfit(draft)
    if draft is None or reason is not None:
        return await _note(parts, grant, run, skipped={"cluster": name, "ids": list(ids), "reason": reason})
    now = parts.clock.now()
    summary = _summary(draft, grant.write, run.agent, now)
    vectors = await parts.embed([summary.text])
    operation = await _operation(parts, grant, run, len(draft.members), now)
    change = Change(
        operation=operation,
        memories=(
            summary,
            *(replace(memory, summary_id=summary.id, version=memory.version + 1) for memory in draft.members),
        ),
        vectors={summary.id: vectors[0]} if vectors else {},
    )
    await parts.store.memories.commit(grant, change)
    empty = [{"id": memory.id, "reason": "it says nothing that a summary could tell"} for memory in draft.empty]
    return await _note(parts, grant, run, applied={name: summary.id}, left=empty)


async def _found_compressed(
    parts: Parts, grant: Grant, run: Run, name: str, ids: Sequence[str], summary_id: str
) -> bool:
    """Members are compressed already: by this cluster, which was interrupted before that was noted, or by another."""
    summaries = await parts.store.memories.get(grant, [summary_id])
    if summaries and set(summaries[0].parents) <= set(ids):
        return await _note(parts, grant, run, applied={name: summary_id})
    return await _note(parts, grant, run, skipped={"cluster": name, "reason": "its memories were compressed meanwhile"})


def _unfit(draft: Draft | None) -> str | None:
    """Why a cluster is not compressed, or None."""
    if draft is None:
        return "its memories say nothing that a summary could tell, or are gone"
    if len(draft.members) < 2:
        return "fewer than two of its memories say anything that a summary could tell"
    if len(draft.text.encode("utf-8", "replace")) >= sum(map(size, draft.members)):
        return "its summary would not be smaller than its memories"
    return None


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


def _summary(draft: Draft, namespace: str, agent: str, now: datetime) -> Memory:
    """The record of a summary: as important as its most important source, as sure as its least sure one (DESIGN §9)."""
    members = draft.members
    first, last = min(memory.at for memory in members), max(memory.at for memory in members)
    threads = {memory.thread for memory in members}
    episodes = {memory.episode_id for memory in members}
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
        thread=threads.pop() if len(threads) == 1 else None,
        episode_id=episodes.pop() if len(episodes) == 1 else None,
        valid_from=first,
        parents=tuple(memory.id for memory in members),
        copies=sum(memory.copies for memory in members),
    )


async def release(parts: Parts, caller: Caller, changes: Changes) -> None:
    """Where a member of a summary is corrected, archive the summary and let all its members surface again.

    What it was made from says something else now; the next run compresses the members anew (DESIGN §7).
    """
    stale = {memory.summary_id for memory in changes.corrected() if memory.summary_id is not None}
    for summary in await parts.store.memories.get(Grant.only(caller.grant.write), sorted(stale)):
        changes.change(summary, status=Status.ARCHIVED)
        for member in await parts.store.memories.get(Grant.only(caller.grant.write), summary.parents):
            if changes.current(member).summary_id == summary.id:
                changes.change(member, summary_id=None, updated_at=changes.current(member).updated_at)
