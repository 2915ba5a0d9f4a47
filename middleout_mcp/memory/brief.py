"""The brief: what matters now, for a recall without a query, a prompt, or the start of a conversation."""

from dataclasses import replace
from datetime import timedelta

from middleout_mcp.memory.parts import Parts
from middleout_mcp.records import Caller, Filter, Kind, Memory, TaskState

_DUE_SOON = timedelta(days=7)
_EACH = 20  # at most this many of each part; the token budget cuts further


async def brief(parts: Parts, caller: Caller, condition: Filter) -> list[Memory]:
    """Pins, open tasks due soon, preferences, then what is recent (DESIGN §4); each memory once, in that order."""
    kinds = condition.kinds

    async def some(narrowed: Filter, order: str) -> list[Memory]:
        return await parts.store.memories.find(caller.grant, narrowed, limit=_EACH, order=order)

    pinned = await some(replace(condition, pinned=True), "importance")
    tasks: list[Memory] = []
    preferences: list[Memory] = []
    if not kinds or Kind.TASK in kinds:
        tasks = await some(replace(condition, kinds=(Kind.TASK,), state=TaskState.OPEN), "due")
    if not kinds or Kind.PREFERENCE in kinds:
        preferences = await some(replace(condition, kinds=(Kind.PREFERENCE,)), "importance")
    recent = await some(condition, "at")
    soon = [task for task in tasks if task.due is not None and task.due <= condition.now + _DUE_SOON]
    recent = [memory for memory in recent if memory.state in (None, TaskState.OPEN)]
    ordered = [*pinned, *soon, *preferences, *tasks, *recent]
    return list({memory.id: memory for memory in ordered}.values())
