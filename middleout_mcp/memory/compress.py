"""`compress`: plan what would be compressed. This version plans only; applying a plan is refused with a sentence."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from middleout_mcp.budget import count_tokens, cut_line
from middleout_mcp.compression.bands import Bands, split
from middleout_mcp.compression.clusters import contiguous
from middleout_mcp.errors import InvalidInput, NotFound, NotSupportedYet
from middleout_mcp.memory.contract import Cluster, CompressIn, CompressOut
from middleout_mcp.memory.intake import name
from middleout_mcp.memory.paging import read_cursor
from middleout_mcp.memory.parts import Parts
from middleout_mcp.memory.plan import writable
from middleout_mcp.records import Caller, Filter, Grant, Memory, Privacy, Run, new_id
from middleout_mcp.words import episode_line

_PAGE = 1000  # memories read at a time
_CLUSTER_OVERHEAD = 20  # tokens of a cluster's id and counts
_SUMMARY_TOKENS = 120  # what a summary of one cluster is expected to take at most
_NOT_YET = (
    "applying a compression is not supported yet; with dry_run=true compress shows what would be compressed, "
    "and nothing is changed"
)


async def compress(parts: Parts, caller: Caller, request: CompressIn) -> CompressOut:
    """Plan a compression, or show a planned one; see DESIGN §4. Nothing is changed but the plan that is kept."""
    now = parts.clock.now()
    parts.sit(caller, now)
    if request.summaries is not None or not request.dry_run:
        raise NotSupportedYet(_NOT_YET)
    if request.cursor is not None and request.run_id is None:
        raise InvalidInput("cursor goes with the run_id of the plan it turns the pages of")
    if request.run_id is not None and request.target not in ("middle", "cancel"):
        raise InvalidInput("target goes with a new plan; a run_id says which plan is meant: leave target out")
    if request.target == "cancel":
        return await _cancel(parts, caller, request, now)
    if request.run_id is not None:
        run = await _run(parts, caller, request.run_id)
        return await _show(parts, caller, run, request)
    chosen, target = await _chosen(parts, caller, request.target, now)
    bands = split(chosen, await _active_sessions(parts, caller))
    run = Run(
        id=new_id("run"),
        namespace=caller.grant.write,
        status="planned",
        target=target,
        plan=_plan(bands),
        created_at=now,
        updated_at=now,
        agent=caller.agent,
    )
    await parts.store.control.save_run(caller.grant, run)
    return await _show(parts, caller, run, request)


async def _run(parts: Parts, caller: Caller, run_id: str) -> Run:
    run = await parts.store.control.run(caller.grant, run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id[:40]!r}; call compress without run_id to plan one")
    return run


async def _cancel(parts: Parts, caller: Caller, request: CompressIn, now: datetime) -> CompressOut:
    if request.run_id is None:
        raise InvalidInput("no compression is running; to drop a plan, give its run_id as well")
    run = await _run(parts, caller, request.run_id)
    cancelled = Run(
        id=run.id,
        namespace=run.namespace,
        status="cancelled",
        target=run.target,
        plan=run.plan,
        created_at=run.created_at,
        updated_at=now,
        agent=run.agent,
    )
    await parts.store.control.save_run(caller.grant, cancelled)
    return CompressOut(run_id=run.id, status="cancelled", report=_report(cancelled))


async def _chosen(parts: Parts, caller: Caller, target: str | Sequence[str], now: datetime) -> tuple[list[Memory], str]:
    """The memories that the target names, and the target as one word for the record."""
    if not isinstance(target, str):
        if not target:
            raise InvalidInput("target is an empty list; give ids, or leave target out for the middle band")
        found = await writable(parts, caller, list(dict.fromkeys(target)), "target")
        return [memory for memory in found.values() if _compressible(memory, caller)], "ids"
    condition = Filter(now=now, agent=caller.agent)
    kind, _, value = target.partition(":")
    if target.startswith("m_"):
        return await _chosen(parts, caller, [target], now)
    if kind == "thread" and value:
        thread = name(parts, value, "target")
        if await parts.store.threads.thread(caller.grant, thread) is None:
            raise InvalidInput("target names a thread that does not exist here")
        condition = Filter(now=now, agent=caller.agent, thread=thread)
    elif kind == "tag" and value:
        condition = Filter(now=now, agent=caller.agent, tags=(name(parts, value, "target"),))
    elif target != "middle":
        raise InvalidInput("target is none of middle, thread:ID, tag:NAME, a list of memory ids, or cancel")
    return [memory for memory in await _all(parts, caller, condition) if _compressible(memory, caller)], target


async def _all(parts: Parts, caller: Caller, condition: Filter) -> list[Memory]:
    memories: list[Memory] = []
    while True:
        page = await parts.store.memories.find(caller.grant, condition, limit=_PAGE, offset=len(memories))
        memories += page
        if len(page) < _PAGE:
            return memories


def _compressible(memory: Memory, caller: Caller) -> bool:
    """Only what is written here, not already compressed, and never sensitive or private text."""
    return memory.namespace == caller.grant.write and memory.summary_id is None and memory.privacy is Privacy.NORMAL


async def _active_sessions(parts: Parts, caller: Caller) -> set[str]:
    """The newest sessions of the namespace, and the newest one of each agent (DESIGN §7)."""
    sessions = await parts.store.threads.sessions(Grant.only(caller.grant.write), limit=1000)
    newest = {session.id for session in sessions[: parts.settings.active_sessions]}
    last_of_agent: dict[str, str] = {}
    for session in sessions:
        last_of_agent.setdefault(session.agent, session.id)
    return newest | set(last_of_agent.values())


def _plan(bands: Bands) -> dict[str, Any]:
    """A plan of ids and numbers; texts are read again when it is shown."""
    groups = contiguous(bands.middle)
    before = sum(_size(memory) for memory in bands.middle)
    grouped = sum(_size(memory) for group in groups for memory in group)
    summaries = sum(min(4 * _SUMMARY_TOKENS, sum(_size(memory) for memory in group) // 2) for group in groups)
    return {
        "bands": {
            "foundation": len(bands.foundation),
            "middle": len(bands.middle),
            "active": len(bands.active),
        },
        "searchable_bytes": {"before": before, "after_estimate": before - grouped + summaries},
        "single": len(bands.middle) - sum(len(group) for group in groups),
        "clusters": [[memory.id for memory in group] for group in groups],
    }


def _size(memory: Memory) -> int:
    return len(memory.text.encode("utf-8", "replace")) + sum(len(tag) + 1 for tag in memory.tags)


def _report(run: Run) -> dict[str, Any]:
    return {
        "target": run.target,
        **{key: value for key, value in run.plan.items() if key != "clusters"},
        "clusters": len(run.plan.get("clusters", ())),
        "applied": False,
    }


async def _show(parts: Parts, caller: Caller, run: Run, request: CompressIn) -> CompressOut:
    """One page of the plan: as many clusters with their lines as the budget carries."""
    groups: list[list[str]] = run.plan.get("clusters", [])
    start, _ = read_cursor(request.cursor, default=0)
    shown: list[Cluster] = []
    left = request.max_tokens
    for index in range(start, len(groups)):
        memories = await parts.store.memories.get(caller.grant, groups[index])
        line = cut_line(episode_line([("", memory.text) for memory in memories])) if memories else "(erased since)"
        left -= count_tokens(line) + _CLUSTER_OVERHEAD + 4 * len(groups[index])
        if shown and left < 0:
            break
        shown.append(Cluster(id=f"c{index + 1}", line=line, memories=groups[index]))
    following = start + len(shown)
    more = following < len(groups)
    return CompressOut(
        run_id=run.id,
        status="cancelled" if run.status == "cancelled" else "planned",
        report=_report(run),
        clusters=shown or None,
        truncated=more,
        cursor=f"t{following}.0" if more else None,
    )
