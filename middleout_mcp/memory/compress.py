"""`compress`: plan a run, start it, tell how far it is, take better texts for its summaries, or cancel it.

A call answers at once: planning and applying go on in the background, and the call waits a moment for a plan, which is
usually there by then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import anyio

from middleout_mcp.budget import count_tokens, cut, cut_line, pack
from middleout_mcp.errors import InvalidInput, MiddleoutError, NotFound, StoreUnavailable
from middleout_mcp.jobs.upkeep import backfill
from middleout_mcp.memory.applying import advance
from middleout_mcp.memory.contract import Cluster, CompressIn, CompressOut, SummaryIn
from middleout_mcp.memory.intake import name, screened_text
from middleout_mcp.memory.items import visible
from middleout_mcp.memory.paging import read_cursor
from middleout_mcp.memory.parts import Parts
from middleout_mcp.memory.plan import writable
from middleout_mcp.memory.runs import abandoned, all_of, change_run, cluster_id, new_run, plan, started
from middleout_mcp.memory.sittings import Sitting
from middleout_mcp.memory.writers import grounded, size
from middleout_mcp.records import Caller, Change, Filter, Grant, Memory, Operation, Run, Status
from middleout_mcp.words import episode_line

_WAIT_SECONDS = 4.0  # so long a call waits for a plan; what takes longer is asked for again by its run_id
_CLUSTER_OVERHEAD = 20  # tokens of a cluster's id and counts
_ID_TOKENS = 4
_SHORTEST = 20  # tokens of a text below which it says too little
_OVER = ("done", "awaiting", "failed", "cancelled")
_NAMED = 5  # clusters and memories that were not compressed and are named; opening the run names more


async def compress(parts: Parts, caller: Caller, request: CompressIn) -> CompressOut:
    """Carry out one call; see DESIGN §4. Raises InvalidInput or NotFound before anything was changed."""
    now = parts.clock.now()
    sitting = parts.sit(caller, now)
    if request.cursor is not None and request.run_id is None:
        raise InvalidInput("cursor goes with the run_id of the plan it turns the pages of")
    if request.summaries is not None and request.run_id is None:
        raise InvalidInput("summaries go with the run_id of the run whose clusters they are for")
    if request.run_id is not None and request.target not in ("middle", "cancel"):
        raise InvalidInput("target goes with a new plan; a run_id says which plan is meant: leave target out")
    if request.target == "cancel":
        return await _cancel(parts, caller, request)
    if request.run_id is None:
        return await _begin(parts, caller, request, now)
    run = await _run(parts, caller, request.run_id)
    if request.summaries is not None:
        run = await _improve(parts, caller, sitting, run, request.summaries, now)
    elif not request.dry_run:
        run = await _go(parts, caller, run, now)
    return await _show(parts, caller, run, request)


async def _begin(parts: Parts, caller: Caller, request: CompressIn, now: datetime) -> CompressOut:
    """Plan a new run in the background, and start it where it is no dry run."""
    chosen, target = await _chosen(parts, caller, request.target, now)
    run = new_run(caller, target, now)
    await parts.store.control.save_run(caller.grant, run)
    there = anyio.Event()

    async def work() -> None:
        try:
            planned = replace(await plan(parts, caller, run, chosen), updated_at=parts.clock.now())
            planned = planned if request.dry_run else started(planned, planned.updated_at)
            if await parts.store.control.save_run(caller.grant, planned, expect="running") and not request.dry_run:
                parts.runs.put(partial(_step, parts, caller.grant, run.id))
        except MiddleoutError as error:
            failed = replace(run, status="failed", plan={**run.plan, "notice": str(error)})
            await parts.store.control.save_run(caller.grant, failed, expect="running")
            raise
        finally:
            there.set()

    parts.runs.put(work)
    with anyio.move_on_after(_WAIT_SECONDS):
        await there.wait()
    return await _show(parts, caller, await _run(parts, caller, run.id), request)


async def _go(parts: Parts, caller: Caller, run: Run, now: datetime) -> Run:
    """Start a planned run, or go on with one that lost its process; any other is left as it is."""

    def begun(stored: Run) -> Run | None:
        if stored.status == "planned":
            return started(stored, now)
        if "operation" not in stored.plan or not abandoned(stored, now):
            return None
        return replace(stored, plan={**stored.plan, "worker": parts.worker})

    changed = await change_run(parts, caller.grant, run.id, begun)
    if changed is None:
        return await _run(parts, caller, run.id)
    parts.runs.put(partial(_step, parts, caller.grant, run.id))
    return changed


async def _step(parts: Parts, grant: Grant, run_id: str) -> None:
    """One cluster, then the next one, so that other work comes in between. An attempt that fails is not the last one,
    unless the file cannot be used.
    """
    more = True
    try:
        more = await advance(parts, grant, run_id)
    except StoreUnavailable:
        more = False
        raise
    finally:
        if more:
            parts.runs.put(partial(_step, parts, grant, run_id))


async def _run(parts: Parts, caller: Caller, run_id: str) -> Run:
    run = await parts.store.control.run(Grant.only(caller.grant.write), run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id[:40]!r}; call compress without run_id to plan one")
    return run


async def _cancel(parts: Parts, caller: Caller, request: CompressIn) -> CompressOut:
    """Stop what is planned or under way; what was applied stays until its operation is restored."""
    if request.run_id is not None:
        run = await _run(parts, caller, request.run_id)
        if run.status in _OVER:
            raise InvalidInput(f"{run.id} is {run.status}; forget with restore and its operation_id takes it back")
        runs = [run]
    else:
        runs = await parts.store.control.runs(caller.grant, "running")
        if not runs:
            raise InvalidInput("no compression is running; to drop a plan, give its run_id as well")
    for run in runs:
        await change_run(
            parts, caller.grant, run.id, lambda run: None if run.status in _OVER else replace(run, status="cancelled")
        )
    run = await _run(parts, caller, runs[0].id)
    operation = await _operation(parts, caller, run)
    return CompressOut(run_id=run.id, status=_shown_status(run, operation), report=_report(run, operation))


async def _chosen(parts: Parts, caller: Caller, target: str | Sequence[str], now: datetime) -> tuple[list[Memory], str]:
    """The memories that the target names, and the target as one word for the record."""
    if not isinstance(target, str):
        if not target:
            raise InvalidInput("target is an empty list; give ids, or leave target out for the middle band")
        found = await writable(parts, caller, list(dict.fromkeys(target)), "target")
        return list(found.values()), "ids"
    condition = Filter(now=now, agent=caller.agent)
    kind, _, value = target.partition(":")
    if target.startswith("m_"):
        return await _chosen(parts, caller, [target], now)
    if kind == "thread" and value:
        thread = name(parts, value, "target")
        if await parts.store.threads.thread(Grant.only(caller.grant.write), thread) is None:
            raise InvalidInput("target names a thread that does not exist here")
        condition = replace(condition, thread=thread)
    elif kind == "tag" and value:
        condition = replace(condition, tags=(name(parts, value, "target"),))
    elif target != "middle":
        raise InvalidInput("target is none of middle, thread:ID, tag:NAME, a list of memory ids, or cancel")
    return await all_of(parts, caller, condition), target


async def _improve(
    parts: Parts, caller: Caller, sitting: Sitting, run: Run, given: Sequence[SummaryIn], now: datetime
) -> Run:
    """Store better texts as new versions of the run's summaries, all or none; they must say what their sources say."""
    applied: dict[str, str] = run.plan.get("applied", {})
    if not given:
        raise InvalidInput("summaries is empty; give a text for at least one cluster")
    if not applied:
        raise InvalidInput(f"{run.id} has no summaries yet; start it with dry_run=false first")
    if len({summary.cluster for summary in given}) < len(given):
        raise InvalidInput("summaries names a cluster twice; give one text a cluster")
    better = []
    for index, summary in enumerate(given):
        what = f"summaries[{index}]"
        if summary.cluster not in applied:
            raise InvalidInput(f"{what}: {run.id} has no summary {summary.cluster[:40]!r}; its clusters name them")
        better.append(await _better(parts, caller, applied[summary.cluster], summary.text, what, now))
    vectors = await parts.embed([memory.text for memory in better])
    operation = sitting.operation("summarize", now, counts={"summaries": len(better)})
    change = Change(
        operation=operation,
        memories=tuple(better),
        vectors={memory.id: vector for memory, vector in zip(better, vectors or (), strict=vectors is not None)},
    )
    await parts.store.memories.commit(caller.grant, change)
    if vectors is None and parts.embedder is not None:
        parts.later.put(lambda: backfill(parts))
    after = {summary.cluster: size(memory) for summary, memory in zip(given, better, strict=True)}
    return await change_run(parts, caller.grant, run.id, partial(_improved, after=after)) or run


def _improved(run: Run, after: Mapping[str, int]) -> Run:
    """The run with those clusters noted as having better texts, of that size; done when all of them have."""
    improved = list(dict.fromkeys((*run.plan.get("improved", ()), *after)))
    told = run.status == "awaiting" and set(improved) >= set(run.plan.get("applied", {}))
    sizes = {
        cluster: [members, before, after.get(cluster, left)]
        for cluster, (members, before, left) in run.plan.get("sizes", {}).items()
    }
    return replace(run, status="done" if told else run.status, plan={**run.plan, "improved": improved, "sizes": sizes})


async def _better(parts: Parts, caller: Caller, summary_id: str, text: str, what: str, now: datetime) -> Memory:
    """The summary with the text given for it, in its next version."""
    found = await parts.store.memories.get(Grant.only(caller.grant.write), [summary_id])
    if not found or found[0].status is not Status.LIVE:
        raise InvalidInput(f"{what}: that summary is gone meanwhile; leave it out")
    summary = found[0]
    members = await parts.store.memories.get(Grant.only(caller.grant.write), summary.parents)
    clean = await screened_text(parts, text, f"{what}.text")
    written = await anyio.to_thread.run_sync(grounded, clean, members, what)
    better = replace(summary, text=written, version=summary.version + 1, updated_at=now, embedded=False)
    if size(better) >= sum(map(size, members)):
        raise InvalidInput(f"{what}.text is not shorter than what it stands for; say it in fewer words")
    return better


async def _operation(parts: Parts, caller: Caller, run: Run) -> Operation | None:
    """The operation of a run that applied something."""
    return await parts.store.journal.operation(caller.grant, run.plan["operation"]) if run.plan.get("applied") else None


def _shown_status(run: Run, operation: Operation | None) -> Any:
    """The status; a run whose operation was restored counts as cancelled."""
    return "cancelled" if operation is not None and operation.undone_by is not None else run.status


def _report(run: Run, operation: Operation | None) -> dict[str, Any]:
    """The numbers of a run: its bands, its bytes, what was applied, and by name what was not."""
    shown = ("bands", "searchable_bytes", "themes", "single", "kept_as_they_are", "phase", "notice")
    applied: dict[str, str] = run.plan.get("applied", {})
    report = {
        "target": run.target,
        **{key: run.plan[key] for key in shown if run.plan.get(key)},
        "clusters": len(run.plan.get("clusters", ())),
        "applied": len(applied),
    }
    for key in ("skipped", "left_out"):
        if entries := run.plan.get(key):
            report[key] = entries[:_NAMED]
            report[f"{key}_in_all"] = len(entries)
    if run.plan.get("improved"):
        report["improved"] = len(run.plan["improved"])
    if not applied:
        return report
    members, before, after = (sum(column) for column in zip(*run.plan["sizes"].values(), strict=True))
    report["memories"] = members
    report["compressed_bytes"] = {"before": before, "after": after}
    report["operation_id"] = run.plan["operation"]
    if operation is not None and operation.undone_by is not None:
        report["undone_by"] = operation.undone_by
    return report


async def _show(parts: Parts, caller: Caller, run: Run, request: CompressIn) -> CompressOut:
    """One page of the run: as many clusters with their lines as the budget carries, those of a started one with texts.

    A started run offers its members' texts, so that a better summary can be written; a text too long for the page is
    cut, which its ellipsis shows, and its id opens the rest.
    """
    clusters: list[list[str]] = run.plan.get("clusters", [])
    operation = await _operation(parts, caller, run)
    status = _shown_status(run, operation)
    applied: dict[str, str] = {} if status == "cancelled" else run.plan.get("applied", {})
    start, _ = read_cursor(request.cursor, default=0)
    shown: list[Cluster] = []
    left = request.max_tokens
    for at in range(start, len(clusters)):
        memories = await visible(parts, caller, clusters[at])
        offered = cluster_id(at) in applied
        cluster = await _cluster(parts, caller, at, memories, applied, request.max_tokens)
        left -= _cost(cluster)
        if shown and left < 0:
            break
        shown.append(cluster)
        if offered and left < request.max_tokens // 4:
            break
    following = start + len(shown)
    more = following < len(clusters)
    return CompressOut(
        run_id=run.id,
        status=status,
        report=_report(run, operation),
        clusters=shown or None,
        truncated=more,
        cursor=f"t{following}.0" if more else None,
    )


def _cost(cluster: Cluster) -> int:
    texts = sum(count_tokens(text) for text in cluster.texts or ())
    return count_tokens(cluster.line) + texts + _CLUSTER_OVERHEAD + _ID_TOKENS * len(cluster.memories)


async def _cluster(
    parts: Parts, caller: Caller, at: int, memories: Sequence[Memory], applied: dict[str, str], max_tokens: int
) -> Cluster:
    ids = [memory.id for memory in memories]
    summary = await visible(parts, caller, [applied[cluster_id(at)]]) if cluster_id(at) in applied else []
    if not summary:
        line = cut_line(episode_line([("", memory.text) for memory in memories])) if memories else "(erased since)"
        return Cluster(id=cluster_id(at), line=line, memories=ids)
    line = cut_line(episode_line([("", summary[0].text)])) or "(no line)"
    budget = max_tokens - _CLUSTER_OVERHEAD - count_tokens(line) - _ID_TOKENS * len(ids)
    costs = [count_tokens(memory.text) for memory in memories]
    shares = pack(costs, max(budget, _SHORTEST * len(ids)), minimum=_SHORTEST)
    texts = [cut(memory.text, max(share, _SHORTEST))[0] for memory, share in zip(memories, shares, strict=True)]
    return Cluster(id=cluster_id(at), line=line, memories=ids, texts=texts)
