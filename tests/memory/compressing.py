"""What the tests of compression share: conversations worth compressing, running to the end, and all there is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from middleout_mcp.app import App, open_app
from middleout_mcp.memory.contract import CompressIn, CompressOut, MemoryIn, RecallIn, RememberIn, TurnIn
from middleout_mcp.ports import Clusterer
from middleout_mcp.records import Caller, Filter, Kind, Memory, Status, Vector
from middleout_mcp.settings import Settings
from tests.fakes import FakeClock, FakeClusterer, FakeEmbedder

PLANTS = ("fern", "moss", "ivy", "reed", "sage", "dill", "flax", "hops", "kale", "leek", "mint", "okra")
PLACES = ("harbour", "market", "orchard", "library", "station", "museum", "bakery", "bridge")


def said(number: int, step: int) -> str:
    """Something of about twenty words that no other turn says."""
    plant, place = PLANTS[(number * 5 + step) % 12], PLACES[(number + step * 3) % 8]
    return (
        f"I carried {number * 7 + step} boxes of {plant} from the {place} to the greenhouse this morning, "
        f"and Ruth{number} counted the leaves while it rained on the old glass roof."
    )


def new_app(home: Path, clock: FakeClock, **more: Any) -> App:
    """An app in which nothing is active but the newest session, with stand-ins for embedder and clusterer."""
    given: dict[str, Any] = {"embedder": FakeEmbedder(), "clusterer": FakeClusterer(), **more}
    clusterer: Clusterer = given["clusterer"]
    return open_app(
        Settings(home=home, active_sessions=1), clock=clock, embedder=given["embedder"], clusterer=clusterer
    )


async def converse(app: App, caller: Caller, clock: FakeClock, count: int, turns: int = 4, start: int = 0) -> None:
    """`count` conversations on as many threads, each a session of its own, an hour apart."""
    for number in range(start, start + count):
        messages = [TurnIn(role="user", text=said(number, step)) for step in range(turns)]
        await app.remember(caller, RememberIn(messages=messages, thread=f"day{number}", session=f"sitting {number}"))
        clock.advance(hours=1)


async def file(app: App, caller: Caller, *memories: str | MemoryIn, **more: Any) -> list[str]:
    """Store memories; their ids."""
    done = await app.remember(caller, RememberIn(memories=list(memories), **more))
    return [result.id or "" for result in done.results]


async def compress(app: App, caller: Caller, **arguments: Any) -> CompressOut:
    """A whole run, to its end."""
    begun = await app.compress(caller, CompressIn(dry_run=False, **arguments))
    await app.settled()
    return await app.compress(caller, CompressIn(run_id=begun.run_id, max_tokens=10_000))


async def everything(app: App, caller: Caller) -> dict[str, Memory]:
    """Every memory of the namespace, by id."""
    parts = await app.parts()
    condition = Filter(
        now=parts.clock.now(), statuses=tuple(Status), sensitive=True, compressed=True, ended_sessions=False
    )
    found = await parts.store.memories.find(caller.grant, condition, limit=100_000)
    return {memory.id: memory for memory in found}


async def summaries(app: App, caller: Caller, *, live: bool = True) -> list[Memory]:
    """The summaries there are."""
    found = (await everything(app, caller)).values()
    return [each for each in found if each.kind is Kind.SUMMARY and (each.status is Status.LIVE or not live)]


async def state(app: App, caller: Caller) -> tuple[dict[str, Memory], dict[str, Vector], list[Any], list[Any]]:
    """All that matters of what is remembered: every field but the version, vectors, hits of the index, recalls.

    Recalling counts as use, so that use alone is left to a test that does not recall.
    """
    await app.settled()
    parts = await app.parts()
    memories = {
        memory_id: replace(memory, version=1, use=0.0, last_used_at=None)
        for memory_id, memory in (await everything(app, caller)).items()
        if memory.kind is not Kind.SUMMARY
    }
    vectors = await parts.store.search.vectors(caller.grant, list(memories))
    live = Filter(now=parts.clock.now())
    hits = [await parts.store.search.match(caller.grant, [word], live, 100) for word in (*PLANTS, *PLACES)]
    recalled = []
    for word in PLACES:
        found = await app.recall(caller, RecallIn(query=f"boxes carried from the {word}", limit=50, max_tokens=10_000))
        recalled.append([item.model_dump(exclude={"score"}) for item in found.items])
    return memories, vectors, [[hit.memory_id for hit in each] for each in hits], recalled


async def hidden_behind_nothing(app: App, caller: Caller) -> list[str]:
    """Live memories whose summary is none that is found: nobody could recall what they say."""
    every = await everything(app, caller)
    live = {memory.id for memory in every.values() if memory.status is Status.LIVE}
    return [m.id for m in every.values() if m.id in live and m.summary_id is not None and m.summary_id not in live]
