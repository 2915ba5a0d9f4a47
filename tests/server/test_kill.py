"""Kill −9 in the middle of writing: what was acknowledged is there, what was not is there whole or not at all, and no
row, vector, index entry, turn, episode or operation is left without the others it belongs to.
"""

import json
import random
import sqlite3
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from middleout_mcp.app import open_app
from middleout_mcp.memory.parts import Parts
from middleout_mcp.records import Caller, Filter, Operation
from middleout_mcp.settings import Settings
from tests.server.connect import child

pytestmark = pytest.mark.anyio
KILLS = 24
MOST_CALLS = 12  # acknowledged before a kill


TURNS = 3  # of the call that is under way


@dataclass
class Life:
    """One process: the ids and texts it acknowledged, and how many memories the call had that was under way."""

    number: int
    acknowledged: list[tuple[str, str]]
    under_way: int

    @property
    def thread(self) -> str:
        return f"life {self.number}"


def live_and_be_killed(home: Path, number: int, dice: random.Random) -> Life:
    """Start a server, store memories and turns one call after another, and kill it with a call under way."""
    life = Life(number, [], dice.choice([1, 20, 300]))
    with child(home) as server:
        server.shake_hands()
        for call in range(dice.randint(1, MOST_CALLS)):
            text = f"Life {number} noted item{number}x{call} in the log."
            turn = {"role": "user", "text": f"Please note item{number}x{call}, said in life {number}."}
            result = server.call("remember", memories=[text], messages=[turn], thread=life.thread)
            assert not result.get("isError"), result
            life.acknowledged.append((result["structuredContent"]["results"][0]["id"], text))
        bulk = {
            "memories": [f"Unacknowledged{number}x{n} of life {number}." for n in range(life.under_way)],
            "messages": [{"role": "user", "text": f"Unheard words {n} of life {number}."} for n in range(TURNS)],
            "episode": "What nobody was told",
            "thread": life.thread,
        }
        server.begin("tools/call", name="remember", arguments=bulk)
        if dice.random() < 0.5:
            arguments = {"ids": [life.acknowledged[-1][0]], "action": "demote"}
            server.begin("tools/call", name="forget", arguments=arguments)
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(dice.choice([0, 0.2 * dice.random(), dice.random()]))
        server.process.kill()
        server.process.wait()
    return life


async def test_every_acknowledged_memory_survives_kills_and_the_rest_is_whole_or_not_there(tmp_path: Path) -> None:
    dice = random.Random(20)
    lives = [live_and_be_killed(tmp_path, number, dice) for number in range(KILLS)]
    acknowledged = [pair for life in lives for pair in life.acknowledged]
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
        for life in lives:
            bulk = [memory for memory in every if memory.text.startswith(f"Unacknowledged{life.number}x")]
            turns = await parts.store.threads.turns(caller.grant, life.thread)
            episodes = await parts.store.threads.episodes(caller.grant, life.thread)
            whole = len(bulk) > 0
            assert len(bulk) == whole * life.under_way
            assert len(turns) == len(life.acknowledged) + whole * TURNS
            assert len(episodes) == len(life.acknowledged) + whole
            assert sorted(i for one in episodes for i in one.memory_ids) == sorted(
                [memory_id for memory_id, _ in life.acknowledged] + [memory.id for memory in bulk]
            )
            assert [turn.seq for turn in turns] == list(range(1, len(turns) + 1))
            operations = {op.id for memory in bulk for op in await _touching(parts, caller, memory.id)}
            assert len(operations) == whole
    _assert_no_orphans(tmp_path / "memory.db")


async def _touching(parts: Parts, caller: Caller, memory_id: str) -> list[Operation]:
    return await parts.store.journal.operations(caller.grant, memory_id=memory_id)


def _assert_no_orphans(file: Path) -> None:
    """Every row leads to the rows it names; vectors and index entries are read from the tables behind them."""
    connection = sqlite3.connect(file)

    def column(query: str) -> list[Any]:
        return [row[0] for row in connection.execute(query)]

    assert column("PRAGMA integrity_check") == ["ok"]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    (generation,) = column("SELECT generation FROM embedding")
    assert column(f"SELECT rowid FROM vector_{generation}_rowids ORDER BY 1") == column(
        "SELECT n FROM memory WHERE embedded = 1 ORDER BY n"
    )
    assert column("SELECT id FROM full_text_docsize ORDER BY 1") == column("SELECT n FROM memory ORDER BY n")
    ids = set(column("SELECT id FROM memory"))
    sessions, episodes = set(column("SELECT id FROM session")), set(column("SELECT id FROM episode"))
    turns = set(connection.execute("SELECT h.id, t.seq FROM turn t JOIN thread h ON h.n = t.thread"))
    assert column("SELECT turns FROM thread h") == column(
        "SELECT (SELECT count(*) FROM turn t WHERE t.thread = h.n) FROM thread h"
    )
    for thread, session, episode, seqs in connection.execute("SELECT thread, session, episode_id, turns FROM memory"):
        assert session in sessions
        assert episode in {*episodes, None}
        assert {(thread, seq) for seq in json.loads(seqs)} <= turns
    for thread, first, last, members in connection.execute(
        "SELECT thread, first_seq, last_seq, memory_ids FROM episode"
    ):
        assert {(thread, seq) for seq in range(first, last + 1)} <= turns
        assert set(json.loads(members)) <= ids
    told = [set(json.loads(listed)) for listed in column("SELECT memory_ids FROM operation")]
    assert all(told)  # no operation without its change
    assert set().union(*told) == ids == set(column("SELECT memory_id FROM operation_memory"))  # and no change without
    assert {e for listed in column("SELECT episode_ids FROM operation") for e in json.loads(listed)} == episodes
    connection.close()
