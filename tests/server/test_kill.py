"""Kill −9 in the middle of writing: what was acknowledged is there, and rows, vectors and text index agree."""

import random
from pathlib import Path

import pytest

from middleout_mcp.app import open_app
from middleout_mcp.records import Filter
from middleout_mcp.settings import Settings
from tests.server.connect import child

pytestmark = pytest.mark.anyio
KILLS = 24
MOST_CALLS = 12  # acknowledged before a kill


def write_until_killed(home: Path, life: int, dice: random.Random) -> list[tuple[str, str]]:
    """Start a server, store memories and turns one call after another, and kill it with a call under way.

    Returns the ids and texts that were acknowledged.
    """
    acknowledged = []
    with child(home) as server:
        server.shake_hands()
        for number in range(dice.randint(1, MOST_CALLS)):
            text = f"Life {life} noted item{life}x{number} in the log."
            turn = {"role": "user", "text": f"Please note item{life}x{number}, said in life {life}."}
            result = server.call("remember", memories=[text], messages=[turn], thread=f"life {life}")
            assert not result.get("isError"), result
            acknowledged.append((result["structuredContent"]["results"][0]["id"], text))
        bulk = [f"Unacknowledged{life}x{number} of life {life}." for number in range(dice.choice([1, 20, 300]))]
        server.begin("tools/call", name="remember", arguments={"memories": bulk})
        if dice.random() < 0.5:
            server.begin("tools/call", name="forget", arguments={"ids": [acknowledged[-1][0]], "action": "demote"})
        server.process.kill()
        server.process.wait()
    return acknowledged


async def test_every_acknowledged_memory_survives_kills_and_all_indexes_agree(tmp_path: Path) -> None:
    dice = random.Random(20)
    acknowledged: list[tuple[str, str]] = []
    for life in range(KILLS):
        acknowledged += write_until_killed(tmp_path, life, dice)
    app = open_app(Settings(home=tmp_path))
    async with app.running():
        parts = await app.parts()
        caller = app.caller("test", "after the kills")
        await app.settled()
        stored = {
            memory.id: memory for memory in await parts.store.memories.get(caller.grant, [i for i, _ in acknowledged])
        }
        assert [(memory_id, stored[memory_id].text) for memory_id, _ in acknowledged] == acknowledged
        everything = Filter(now=parts.clock.now())
        every = await parts.store.memories.find(caller.grant, everything, limit=100_000)
        vectors = await parts.store.search.vectors(caller.grant, [memory.id for memory in every])
        assert {memory.id for memory in every if memory.embedded} == set(vectors)
        for memory in every:
            word = next(word for word in memory.text.split() if word.startswith(("item", "Unack")))
            hits = await parts.store.search.match(caller.grant, [word], everything, 10)
            assert [hit.memory_id for hit in hits] == [memory.id], memory.text
        for life in range(KILLS):
            thread = await parts.store.threads.thread(caller.grant, f"life {life}")
            turns = await parts.store.threads.turns(caller.grant, f"life {life}")
            assert thread is not None
            assert [turn.seq for turn in turns] == list(range(1, thread.turns + 1))
