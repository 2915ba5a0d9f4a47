"""Compression runs: what a run is, planning one, and changing its row.

A run is a row that holds ids and numbers only. Several processes may read and change it: each change is made to what is
stored at that moment, so that none undoes another one's.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import anyio.to_thread

from middleout_mcp.compression.bands import Bands, split
from middleout_mcp.compression.clusters import Group, groups
from middleout_mcp.errors import ClusteringFailed
from middleout_mcp.memory.parts import Parts
from middleout_mcp.memory.writers import RATIO, size
from middleout_mcp.policy import compressible
from middleout_mcp.records import Caller, Filter, Grant, Memory, Run, new_id

_PAGE = 1000  # memories read at a time
_UNHEARD = timedelta(minutes=1)
_PLANNING = timedelta(minutes=15)  # clustering a large memory takes a while, and may take ten minutes


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
    memories: dict[str, Memory] = {}  # by id: what is written meanwhile moves the pages
    offset = 0
    while True:
        page = await parts.store.memories.find(Grant.only(caller.grant.write), condition, limit=_PAGE, offset=offset)
        memories |= {memory.id: memory for memory in page}
        offset += len(page)
        if len(page) < _PAGE:
            return list(memories.values())


async def plan(parts: Parts, caller: Caller, run: Run, chosen: Sequence[Memory]) -> Run:
    """The run with its bands and clusters; nothing but the run is changed."""
    bands = split(chosen, await _active_sessions(parts, caller))
    middle = [memory for memory in bands.middle if compressible(memory)]
    labels, notice = await _labels(parts, caller, middle)

    def work() -> dict[str, Any]:
        return _planned(bands, middle, groups(middle, labels))

    planned = await anyio.to_thread.run_sync(work)
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
    """The newest sessions of the namespace, and the newest one of each agent (DESIGN §7); none where none is kept."""
    if not parts.settings.active_sessions:
        return set()
    sessions = await parts.store.threads.sessions(Grant.only(caller.grant.write), limit=1000)
    newest = {session.id for session in sessions[: parts.settings.active_sessions]}
    last_of_agent: dict[str, str] = {}
    for session in sessions:
        last_of_agent.setdefault(session.agent, session.id)
    return newest | set(last_of_agent.values())


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


def abandoned(run: Run, now: datetime) -> bool:
    """Whether a run that is under way was not heard of for so long that its process must be gone."""
    limit = _UNHEARD if "operation" in run.plan else _PLANNING
    return run.status == "running" and not run.updated_at <= now < run.updated_at + limit


def may_work(run: Run, worker: str, now: datetime) -> bool:
    """Whether a process may go on with the run: nobody else does, or whoever did is gone."""
    return run.plan.get("worker") in (None, worker) or abandoned(run, now)


def next_cluster(run: Run) -> int | None:
    """The first cluster that was neither applied nor skipped."""
    done = {*run.plan.get("applied", {}), *(entry["cluster"] for entry in run.plan.get("skipped", ()))}
    return next((at for at in range(len(run.plan.get("clusters", ()))) if cluster_id(at) not in done), None)


def cluster_id(at: int) -> str:
    """What the cluster with that index is called."""
    return f"c{at + 1}"


async def change_run(parts: Parts, grant: Grant, run_id: str, change: Callable[[Run], Run | None]) -> Run | None:
    """The stored run after `change`, which is done anew where another process was faster. None where it says so, or
    where the run is gone.
    """
    while True:
        stored = await parts.store.control.run(grant, run_id)
        changed = None if stored is None else change(stored)
        if changed is None:
            return None
        changed = replace(changed, updated_at=parts.clock.now())
        if await parts.store.control.save_run(grant, changed, expect=stored):
            return changed
