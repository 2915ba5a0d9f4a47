"""What only the owner of the file asks for: listings, the log of operations, an examination of the whole file."""

from dataclasses import replace

from middleout_mcp.errors import EmbedderUnavailable
from middleout_mcp.memory.contract import RecallIn, Withheld
from middleout_mcp.memory.items import episodes_of, item
from middleout_mcp.memory.overview import jobs, leaders
from middleout_mcp.memory.owner_contract import AuditIn, AuditOut, ChainOut, HealthOut, ListIn, ListOut, OperationOut
from middleout_mcp.memory.parts import Parts
from middleout_mcp.memory.recall import condition_of
from middleout_mcp.records import Caller, Operation, Privacy, Status
from middleout_mcp.times import to_iso

SENSITIVE = "sensitive: recall shows them with a purpose, where the setting sensitive_recall is on"


async def list_memories(parts: Parts, caller: Caller, request: ListIn) -> ListOut:
    """Memories that meet the conditions, newest first, suppressed ones too. Raises InvalidInput."""
    now = parts.clock.now()
    asked = RecallIn(
        kinds=request.kinds,
        tags=request.tags,
        scope=request.scope,
        since=request.since,
        until=request.until,
        thread=request.thread,
    )
    condition = replace(
        await condition_of(parts, caller, parts.sit(caller, now), asked, now),
        statuses=tuple(request.statuses or (Status.LIVE,)),
        pinned=request.pinned,
        hidden=True,
    )
    found = await parts.store.memories.find(caller.grant, condition, limit=request.limit + 1, offset=request.offset)
    page = found[: request.limit]
    shown = [memory for memory in page if memory.privacy is not Privacy.SENSITIVE]
    episodes = await episodes_of(parts, caller, shown)
    return ListOut(
        items=[item(memory, now, episodes=episodes) for memory in shown],
        withheld=[Withheld(count=len(page) - len(shown), reason=SENSITIVE)] if len(page) > len(shown) else None,
        more=len(found) > len(page),
        namespaces=None if page or not caller.owner else dict(await parts.store.control.namespaces()),
    )


async def audit(parts: Parts, caller: Caller, request: AuditIn) -> AuditOut:
    """The log of the readable namespaces, newest first; with `verify`, whether the chain of the whole log holds."""
    found = await parts.store.journal.operations(
        caller.grant,
        memory_id=request.memory,
        agent=caller.confined_to,
        limit=request.limit + 1,
        offset=request.offset,
    )
    chain = None
    if request.verify:
        fault = await parts.store.journal.first_fault()
        chain = ChainOut(intact=fault is None, fault=fault)
    return AuditOut(
        operations=[_operation(operation) for operation in found[: request.limit]],
        more=len(found) > request.limit,
        chain=chain,
    )


def _operation(operation: Operation) -> OperationOut:
    return OperationOut(
        id=operation.id,
        kind=operation.kind,
        at=to_iso(operation.at),
        agent=operation.agent,
        reason=operation.reason,
        memories=len(operation.memory_ids),
        episodes=len(operation.episode_ids),
        counts=operation.counts,
        undoes=operation.undoes,
        undone_by=operation.undone_by,
        undoable=operation.undoable and operation.undone_by is None,
    )


async def examine(parts: Parts, caller: Caller) -> HealthOut:
    """Check the whole file and try the embedder. Raises StoreUnavailable where the file cannot be read at all."""
    embedding = await parts.store.search.embedding()
    counts = await parts.store.memories.count(caller.grant)
    fault = None
    if parts.embedder is not None:
        try:
            await parts.embedder.embed(["Is it at hand?"])
        except EmbedderUnavailable as error:
            fault = str(error)
    health = dict(await parts.store.control.health(thorough=True))
    now = parts.clock.now()
    return HealthOut(
        damage=health.pop("damage"),
        leader=next(iter(leaders(health.pop("leases"), now).values()), None),
        jobs=await jobs(parts, now),
        file=health,
        chain_fault=await parts.store.journal.first_fault(),
        namespaces=dict(await parts.store.control.namespaces()),
        embedder=parts.embedder.name if parts.embedder else None,
        embedder_fault=fault,
        vectors=embedding.name or None,
        pending=counts["pending"],
    )
