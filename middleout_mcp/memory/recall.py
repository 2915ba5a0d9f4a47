"""`recall`: find memories for a query, or the brief without one, within a token budget.

The way of one call: read the arguments → embed the query → candidates from vectors and full text, filtered before the
cut → rank (pure) → fit the budget → answer; the use is noted afterwards, off the answer's way.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from middleout_mcp.budget import count_tokens, cut, pack
from middleout_mcp.errors import InvalidInput, NotSupportedYet
from middleout_mcp.memory.brief import brief
from middleout_mcp.memory.contract import Item, RecallIn, RecallOut, Withheld
from middleout_mcp.memory.intake import name, names, scope_name
from middleout_mcp.memory.items import CUT, episodes_of, item, marked_lapsed, overhead
from middleout_mcp.memory.parts import Parts
from middleout_mcp.memory.plan import writable
from middleout_mcp.memory.sittings import Page, Sitting
from middleout_mcp.policy import RETURNED, USED
from middleout_mcp.ranking.fusion import Ranked, rank
from middleout_mcp.records import (
    Caller,
    Change,
    Filter,
    Kind,
    Memory,
    Privacy,
    Status,
    Use,
    new_id,
)
from middleout_mcp.times import parse_bound, parse_time
from middleout_mcp.words import terms

_DEPTH = 200  # candidates taken from each of the two searches
_QUERY_TERMS = 256  # a query with more terms is searched by its longest ones; its vector still covers all of it
_SHORTEST = 40  # tokens of text below which a cut memory says too little
_STATUS_OF = {"archived": Status.ARCHIVED, "expired": Status.EXPIRED, "superseded": Status.SUPERSEDED}
_OF_THAT_TIME = "Nothing matches the words of the query; these are of the time it asks for."
TEXT_ONLY = "No embedding model is at hand: this answer comes from text search alone."


@dataclass(frozen=True, slots=True)
class _Found:
    """A ranking before it is cut to a page."""

    ranked: Sequence[tuple[Memory, float | None]]
    below_floor: int = 0
    withheld: int = 0
    notice: str | None = None


async def recall(parts: Parts, caller: Caller, request: RecallIn) -> RecallOut:
    """Answer a recall; see DESIGN §4. Raises InvalidInput, NotSupportedYet or EmbedderMismatch; reads only."""
    now = parts.clock.now()
    _refuse_what_comes_later(request)
    sitting = parts.sit(caller, now)
    condition = await condition_of(parts, caller, sitting, request, now)
    asked = hashlib.sha256(request.model_dump_json(exclude={"cursor", "used", "max_tokens"}).encode()).hexdigest()
    if request.cursor is not None:
        recall_id = sitting.step(now)
        found = await _continue(parts, caller, sitting, condition, request.cursor, asked)
        await _note_used(parts, caller, sitting, request.used or (), now)
        if recall_id is None:
            raise InvalidInput("that cursor has expired; call recall again without it")
    else:
        await _note_used(parts, caller, sitting, request.used or (), now)
        recall_id = sitting.begin_step(now)
        condition = replace(condition, suppressed_in=sitting.hidden_in(now))
        if request.query is None:
            found = _Found([(memory, None) for memory in await brief(parts, caller, condition)])
        else:
            found = await _search(parts, caller, request, condition, now)
    found = await _withhold(parts, caller, sitting, request, found, now)
    return await _page(parts, caller, sitting, request, recall_id, asked, found, now)


def _refuse_what_comes_later(request: RecallIn) -> None:
    if request.viewpoint is not None or request.holder is not None:
        raise NotSupportedYet("viewpoint and holder are not supported yet; leave them out to search all facts")
    if "discarded" in (request.include or ()):
        raise NotSupportedYet('include "discarded" belongs to viewpoint, which is not supported yet; leave it out')
    if request.query is not None and not request.query.strip():
        raise InvalidInput("query is empty; leave it out to get the brief, or ask for something")


async def condition_of(parts: Parts, caller: Caller, sitting: Sitting, request: RecallIn, now: datetime) -> Filter:
    """The filter that the arguments of a recall ask for. Sensitive memories pass it, to be counted and withheld."""
    statuses = [Status.LIVE, *(_STATUS_OF[word] for word in request.include or () if word in _STATUS_OF)]
    as_of = None
    if request.as_of is not None:
        as_of = parse_time(request.as_of, now, parts.zone, what="as_of")
    since = _bound(parts, request.since, now, end=False, what="since")
    until = _bound(parts, request.until, now, end=True, what="until")
    if since is not None and until is not None and since > until:
        raise InvalidInput("since is later than until, and nothing lies between; swap them, or leave one out")
    return Filter(
        now=now,
        agent=caller.confined_to,
        statuses=tuple(statuses),
        kinds=_kinds(request.kinds),
        tags=names(parts, request.tags, "tags") or (),
        scope=None if request.scope is None else scope_name(parts, request.scope, "scope"),
        since=since,
        until=until,
        as_of=as_of,
        thread=await _thread_id(parts, caller, request.thread),
        session=await _session_id(parts, caller, request.session),
        suppressed_in=sitting.hidden_in(now),
        sensitive=True,
        compressed=_narrowed(request),
    )


def _narrowed(request: RecallIn) -> bool:
    """Whether something is asked that a summary has no answer to: it has no kind, tags, time or place but its own."""
    asked = (request.kinds, request.tags, request.since, request.until, request.as_of, request.thread, request.session)
    return any(each is not None for each in asked)


def _kinds(kinds: Sequence[str] | None) -> tuple[Kind, ...]:
    try:
        return tuple(Kind(kind.strip().casefold()) for kind in kinds or ())
    except ValueError:
        raise InvalidInput(f"kinds holds a word that is no kind; use {', '.join(Kind)}") from None


def _bound(parts: Parts, text: str | None, now: datetime, *, end: bool, what: str) -> datetime | None:
    return None if text is None else parse_bound(text, now, parts.zone, end=end, what=what)


async def _thread_id(parts: Parts, caller: Caller, wanted: str | None) -> str | None:
    if wanted is None:
        return None
    thread = await parts.store.threads.thread(caller.grant, name(parts, wanted, "thread"))
    if thread is None:
        raise InvalidInput("there is no such thread here; leave thread out to search all of them")
    return thread.id


async def _session_id(parts: Parts, caller: Caller, wanted: str | None) -> str | None:
    if wanted is None:
        return None
    wanted = name(parts, wanted, "session")
    for session in await parts.store.threads.sessions(caller.grant, limit=1000):
        if wanted in (session.id, session.name):
            return session.id
    raise InvalidInput("there is no such session here; leave session out to search all of them")


async def _note_used(parts: Parts, caller: Caller, sitting: Sitting, used: Sequence[str], now: datetime) -> None:
    """Uses reported with a recall; a demoted memory that was used is no longer demoted."""
    found = await writable(parts, caller, list(dict.fromkeys(used)), "used")
    if not found:
        return
    demoted = tuple(
        replace(memory, demoted=False, version=memory.version + 1, updated_at=now)
        for memory in found.values()
        if memory.demoted
    )
    uses = tuple(Use(memory_id=memory_id, session=sitting.session.id, at=now, weight=USED) for memory_id in found)
    if not demoted:
        await parts.store.journal.note_uses(caller.grant, uses)
        return
    operation = sitting.operation(
        "use",
        now,
        memory_ids=tuple(memory.id for memory in demoted),
    )
    await parts.store.memories.commit(caller.grant, Change(operation=operation, memories=demoted, uses=uses))


async def search(
    parts: Parts, caller: Caller, query: str, condition: Filter, now: datetime, depth: int = _DEPTH
) -> tuple[list[Ranked], str | None]:
    """Everything both searches offer, ranked, and a notice where the vectors are missing. Used by forget as well."""
    wanted = sorted(dict.fromkeys(terms(query)), key=len, reverse=True)[:_QUERY_TERMS]
    text_hits = await parts.store.search.match(caller.grant, wanted, condition, depth) if wanted else []
    vectors = await parts.embed([query])
    vector_hits = await parts.store.search.nearest(caller.grant, vectors[0], condition, depth) if vectors else []
    ids = list(dict.fromkeys(hit.memory_id for hit in (*vector_hits, *text_hits)))
    memories = {memory.id: memory for memory in await parts.store.memories.get(caller.grant, ids)}
    return rank(query, vector_hits, text_hits, memories, now), None if vectors else TEXT_ONLY


async def _search(parts: Parts, caller: Caller, request: RecallIn, condition: Filter, now: datetime) -> _Found:
    depth = max(_DEPTH, request.limit)
    ranked, notice = await search(parts, caller, request.query or "", condition, now, depth)
    shown = ranked if "below_floor" in (request.include or ()) else [hit for hit in ranked if hit.relevant]
    if not shown and ranked and (request.since or request.until):  # asked for a time: what is of it is of interest
        found = [(hit.memory, hit.score) for hit in ranked]
        return _Found(found, notice=_OF_THAT_TIME if notice is None else f"{_OF_THAT_TIME} {notice}")
    return _Found([(hit.memory, hit.score) for hit in shown], below_floor=len(ranked) - len(shown), notice=notice)


async def _continue(
    parts: Parts, caller: Caller, sitting: Sitting, condition: Filter, cursor: str, asked: str
) -> _Found:
    """The rest of a ranking, without what meets the condition no longer: what was hidden or put aside meanwhile."""
    page = sitting.pages.get(cursor)
    if page is None:
        raise InvalidInput("that cursor is unknown or has expired; call recall again without it")
    if page.asked != asked:
        raise InvalidInput("that cursor belongs to a recall with other arguments; repeat those, or leave it out")
    scores = dict(page.ranked)
    still = await parts.store.memories.find(
        caller.grant, replace(condition, ids=tuple(scores)), limit=max(1, len(scores))
    )
    memories = {memory.id: memory for memory in still}
    ranked = [(memories[memory_id], score) for memory_id, score in page.ranked if memory_id in memories]
    return _Found(ranked, below_floor=page.below_floor, notice=page.notice)


async def _withhold(
    parts: Parts, caller: Caller, sitting: Sitting, request: RecallIn, found: _Found, now: datetime
) -> _Found:
    """Take out sensitive memories unless the setting and a purpose allow them; allowing it is audited first."""
    sensitive = [memory.id for memory, _ in found.ranked if memory.privacy is Privacy.SENSITIVE]
    if not sensitive:
        return found
    if not (parts.settings.sensitive_recall and request.purpose and request.purpose.strip()):
        kept = [(memory, score) for memory, score in found.ranked if memory.privacy is not Privacy.SENSITIVE]
        return replace(found, ranked=kept, withheld=len(sensitive))
    operation = sitting.operation(
        "disclose",
        now,
        reason=name(parts, request.purpose, "purpose"),
        memory_ids=tuple(sensitive),
        counts={"offered": len(sensitive)},
        undoable=False,
    )
    await parts.store.memories.commit(caller.grant, Change(operation=operation))
    return found


async def _page(
    parts: Parts,
    caller: Caller,
    sitting: Sitting,
    request: RecallIn,
    recall_id: str,
    asked: str,
    found: _Found,
    now: datetime,
) -> RecallOut:
    ranked = list(found.ranked)
    items, shown = await _fit(parts, caller, ranked[: request.limit], request.max_tokens, now)
    rest = ranked[shown:]
    cursor = None
    if rest:
        cursor = new_id("r")
        left = tuple((memory.id, score) for memory, score in rest)
        sitting.keep_page(cursor, Page(asked, left, found.below_floor, found.notice))
    sitting.saw([entry.id for entry in reversed(items)])  # the best hit is the likeliest to be meant by "that"
    if not caller.owner:  # looking at the store from outside is no use of it
        uses = tuple(Use(memory_id=entry.id, session=sitting.session.id, at=now, weight=RETURNED) for entry in items)
        parts.later.put(lambda: parts.store.journal.note_uses(caller.grant, uses))
    withheld = [Withheld(count=found.withheld, reason=_withheld_reason(parts))] if found.withheld else None
    return RecallOut(
        recall_id=recall_id,
        items=items,
        withheld=withheld,
        below_floor=found.below_floor,
        notice=found.notice,
        truncated=shown < min(len(ranked), request.limit) or any(CUT in (entry.marks or ()) for entry in items),
        cursor=cursor,
    )


def _withheld_reason(parts: Parts) -> str:
    if parts.settings.sensitive_recall:
        return "sensitive: say what they are needed for in purpose"
    return "sensitive: MIDDLEOUT_SENSITIVE_RECALL is off"


async def _fit(
    parts: Parts, caller: Caller, ranked: Sequence[tuple[Memory, float | None]], max_tokens: int, now: datetime
) -> tuple[list[Item], int]:
    """Items for as many of the ranking as fit the budget, long texts cut at sentence ends; and how many that are."""
    beside = [overhead(memory) for memory, _ in ranked]
    costs = [count_tokens(memory.text) + extra for (memory, _), extra in zip(ranked, beside, strict=True)]
    shares = pack(costs, max_tokens, minimum=max(beside, default=0) + _SHORTEST)
    if shares and shares[0] == 0:  # a budget too small for anything still gets the beginning of the best
        shares[0] = beside[0] + _SHORTEST
    memories = await marked_lapsed(parts, caller, [memory for memory, _ in ranked])
    episodes = await episodes_of(parts, caller, memories)
    items: list[Item] = []
    for memory, (_, score), share, cost in zip(memories, ranked, shares, costs, strict=False):
        if share == 0:
            break
        text = None if share >= cost else cut(memory.text, share - overhead(memory))[0]
        items.append(item(memory, now, text=text, score=score, episodes=episodes))
    return items, len(items)
