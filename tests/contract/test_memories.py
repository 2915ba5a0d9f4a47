"""Memories: commits whole or not at all, versions, look-ups and counts."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from middleout_mcp.errors import Conflict, InvalidInput, NotFound
from middleout_mcp.ports import Store
from middleout_mcp.records import Change, Grant, Kind, Privacy, Source, Status, TaskState, Trust, Use
from tests.contract.builders import (
    LIVE,
    NOW,
    OURS,
    THEIRS,
    change,
    episode,
    found,
    later,
    memory,
    operation,
    put,
    session,
    turn,
    unembedded,
    vector,
)

pytestmark = pytest.mark.anyio
MS = timedelta(milliseconds=1)
BOTH = Grant("ours", ("theirs", "ours"))


async def test_every_field_of_a_memory_survives_storing_updating_and_versioning(store: Store) -> None:
    first = memory(
        "first",
        kind=Kind.TASK,
        state=TaskState.OPEN,
        due=later(days=3),
        tags=("home", "key 🗝"),
        key="place",
        value="東京",
        scope="flat",
        turns=(1, 2),
        parents=("m_x",),
        pinned=True,
        ref="crm/1",
        expires_at=later(days=9),
        source=Source.USER,
        trust=Trust.FLAGGED,
        confidence=0.25,
        emotional_weight=-0.5,
        known_by=(),
        privacy=Privacy.SENSITIVE,
        status=Status.EXPIRED,
        session="s_1",
        thread="t",
        episode_id="e_1",
        valid_from=later(days=-3),
        valid_to=later(days=-2),
        expires_session="s_1",
        suppressed_until=later(days=1),
        suppressed_in="s_1",
        demoted=True,
        disputed=True,
        redacted=True,
        merged_into="m_w",
        superseded_by="m_s",
        summary_id="m_sum",
        rung=3,
        copies=4,
        use=1.2,
        last_used_at=later(milliseconds=7),
    )
    second = replace(first, text="second", known_by=("Bob>Alice",), due=None, embedded=True, version=2)
    await put(store, first)
    await put(store, second, vectors={second.id: vector(1)})
    assert await store.memories.versions(OURS, first.id) == [first, second]
    assert await store.memories.get(OURS, [first.id]) == [second]


async def test_memories_come_in_the_order_asked_for_each_once_and_unknown_ids_are_left_out(store: Store) -> None:
    first, second = memory("one"), memory("two")
    await put(store, first, second)
    assert await store.memories.get(OURS, [second.id, "m_unknown", first.id, second.id]) == [second, first]
    assert await store.memories.versions(OURS, "m_unknown") == []


@pytest.mark.parametrize(
    "text", ["\x00", "a\x00b", "", " ", "\n", "e\u0301", "\U0010ffff", "🏳️‍🌈", "'; DROP TABLE memory"]
)
async def test_odd_texts_come_back_character_for_character(store: Store, text: str) -> None:
    odd = memory(text, tags=(text,), key=text, value=text)
    said = turn(1, text, name=text, data={text: text})
    await put(store, odd, turns=(said,))
    assert await store.memories.get(OURS, [odd.id]) == [odd]
    assert await store.threads.turns(OURS, "t") == [said]


async def test_half_a_surrogate_pair_is_refused_with_the_whole_change(store: Store) -> None:
    with pytest.raises(InvalidInput, match="surrogate"):
        await put(store, memory("good"), memory("\ud800"))
    assert await found(store, LIVE) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"memories": (memory("x", THEIRS),)},
        {"episodes": (episode(1, 1, THEIRS),)},
        {"session": session(THEIRS)},
        {"operation": operation(THEIRS)},
        {"vectors": {"m_absent": vector(1)}},
    ],
)
async def test_no_part_of_a_change_may_lie_outside_the_written_namespace(store: Store, wrong: dict[str, Any]) -> None:
    mine = memory("mine")
    with pytest.raises(InvalidInput):
        await store.memories.commit(BOTH, replace(change(mine), **wrong))
    assert await store.memories.get(BOTH, [mine.id]) == []
    assert await store.journal.operations(BOTH) == []


@pytest.mark.parametrize("version", [1, 3, 7])
async def test_only_the_very_next_version_is_taken(store: Store, version: int) -> None:
    old = memory("one")
    await put(store, old)
    with pytest.raises(Conflict):
        await put(store, replace(old, text="two", version=version))
    assert await store.memories.versions(OURS, old.id) == [old]


async def test_a_failing_change_leaves_nothing_of_any_kind(store: Store) -> None:
    old = memory("old")
    done = await put(store, old)
    with pytest.raises(Conflict):
        await put(
            store,
            memory("new"),
            replace(old, text="stale", version=9),
            vectors={old.id: vector(1)},
            turns=(turn(1, "x"),),
            episodes=(episode(1, 1),),
            uses=(Use(memory_id=old.id, session="s", at=NOW, weight=1.0),),
            session=session(),
        )
    with pytest.raises(Conflict):
        await put(store, memory("with turns"), turns=(turn(2, "no first turn"),))
    assert await store.memories.get(OURS, [old.id]) == [old]
    assert await found(store, LIVE) == ["old"]
    assert await store.threads.thread(OURS, "t") is None
    assert await store.threads.episodes(OURS, "t") == []
    assert await store.threads.sessions(OURS) == []
    assert await store.journal.operations(OURS) == [done]
    assert await store.search.pending(9) == [unembedded(old)]


async def test_the_operation_names_what_the_change_touched(store: Store) -> None:
    one, stretch = memory("one"), episode(1, 1)
    done = await put(store, one, turns=(turn(1, "x"),), episodes=(stretch,))
    assert (done.memory_ids, done.episode_ids, done.undoable) == ((one.id,), (stretch.id,), True)
    assert not (await put(store, turns=(turn(2, "y"),))).undoable
    bare = await store.memories.commit(OURS, Change(operation=operation(kind="note", counts={"seen": 3})))
    assert (bare.counts, bare.memory_ids, bare.undoable) == ({"seen": 3}, (), False)


async def test_a_reference_may_move_on_once_its_memory_let_go_of_it(store: Store) -> None:
    first, second = memory("first", ref="r"), memory("second", ref="r")
    await put(store, first)
    await put(store, replace(first, ref=None, version=2))
    await put(store, second)
    assert await store.memories.by_ref(OURS, ["r", "unknown"], agent="ann") == {"r": second}
    assert await store.memories.by_ref(Grant("theirs", ("theirs", "ours")), ["r"], agent="ann") == {}
    assert await store.memories.by_ref(OURS, [], agent="ann") == {}


async def test_a_reference_is_taken_once_a_namespace(store: Store) -> None:
    await put(store, memory("ours", ref="r"))
    await put(store, memory("theirs", THEIRS, ref="r"), grant=THEIRS)
    with pytest.raises(Conflict):
        await put(store, memory("again", ref="r", agent="bob"))


async def test_a_reference_of_another_agents_private_memory_is_as_free_as_if_nobody_had_it(store: Store) -> None:
    diary = memory("diary", ref="r", privacy=Privacy.PRIVATE)
    await put(store, diary)
    with pytest.raises(Conflict):
        await put(store, memory("again", ref="r", privacy=Privacy.PRIVATE))
    assert await store.memories.by_ref(OURS, ["r"], agent="bob") == {}
    own, shared = memory("own", ref="r", agent="bob", privacy=Privacy.PRIVATE), memory("shared", ref="r", agent="cat")
    await put(store, own)
    await put(store, shared)
    for agent, reached in (("ann", diary), ("bob", own), ("cat", shared), ("dan", shared)):
        assert await store.memories.by_ref(OURS, ["r"], agent=agent) == {"r": reached}


async def test_erasing_a_private_memory_blocks_its_reference_for_its_own_agent_alone(store: Store) -> None:
    diary = memory("diary", ref="r", privacy=Privacy.PRIVATE)
    await put(store, diary)
    await store.memories.erase(OURS, [diary.id], [], operation(kind="erase", agent="owner"))
    with pytest.raises(InvalidInput, match="erased"):
        await put(store, memory("again", ref="r"))
    free = memory("free", ref="r", agent="bob")
    await put(store, free)
    assert await store.memories.by_ref(OURS, ["r"], agent="bob") == {"r": free}


async def test_an_agent_erases_no_private_memory_of_another(store: Store) -> None:
    diary = memory("diary", privacy=Privacy.PRIVATE, thread="t", turns=(1,), episode_id="e_1")
    open_one = memory("open", thread="t", turns=(1,), episode_id="e_1")
    copy = memory("copy", privacy=Privacy.PRIVATE, merged_into=open_one.id, status=Status.SUPERSEDED)
    summary = memory("summary", privacy=Privacy.PRIVATE, parents=(open_one.id,))
    stretch = episode(1, 1, id="e_1", memory_ids=(diary.id, open_one.id))
    await put(store, diary, open_one, copy, summary, episodes=(stretch,), turns=(turn(1, "said"),))
    with pytest.raises(NotFound):
        await store.memories.erase(OURS, [diary.id], [], operation(kind="erase"), agent="bob")
    erased = await store.memories.erase(OURS, [], [stretch.id], operation(kind="erase"), agent="bob")
    assert (erased.memory_ids, erased.dropped_summaries) == ((open_one.id,), ())
    left = await store.memories.get(OURS, [diary.id, copy.id, summary.id])
    assert [one.text for one in left] == ["diary", "copy", "summary"]
    assert (left[0].turns, left[0].episode_id) == ((), None)
    assert left[1].merged_into is None
    await store.memories.erase(OURS, [one.id for one in left], [], operation(kind="erase"))


async def test_equal_texts_are_looked_for_in_the_written_namespace_and_oldest_first(store: Store) -> None:
    first, second = memory("STRASSE  north\n"), memory("straße north")
    await put(store, first)
    await put(store, second)
    await put(store, memory("straße north", status=Status.ARCHIVED), memory("Cafe\u0301"))
    assert list(await store.memories.same_text(OURS, ["CAF\u00c9", "unknown"])) == ["CAF\u00c9"]
    await put(store, memory("straße north", THEIRS), grant=THEIRS)
    assert await store.memories.same_text(BOTH, ["Strasse North", "strasse-north", ""]) == {
        "Strasse North": [first, second]
    }
    await put(store, replace(first, text="south", version=2))
    assert await store.memories.same_text(BOTH, ["Strasse North"]) == {"Strasse North": [second]}


async def test_hundreds_of_ids_are_looked_up_in_one_call(store: Store) -> None:
    many = [memory(f"n{n}", ref=f"r{n}") for n in range(1200)]
    await put(store, *many)
    assert await store.memories.get(OURS, [each.id for each in reversed(many)]) == many[::-1]
    assert len(await store.memories.by_ref(OURS, [f"r{n}" for n in range(1200)], agent="ann")) == 1200


async def test_counts_tell_statuses_pending_threads_turns_and_open_episodes(store: Store) -> None:
    gone, lone = episode(1, 1), memory("a")
    await put(
        store,
        lone,
        memory("b", status=Status.ARCHIVED),
        vectors={lone.id: vector(1)},
        turns=(turn(1, "x"), turn(2, "y"), turn(1, "z", thread="u")),
        episodes=(gone, episode(2, 2)),
    )
    await store.memories.erase(OURS, [], [gone.id], operation(kind="erase"))
    counts = await store.memories.count(OURS)
    wanted = {"live": 1, "archived": 1, "expired": 0, "pending": 1, "threads": 2, "turns": 2, "episodes": 1}
    assert {name: counts[name] for name in wanted} == wanted
    assert not any((await store.memories.count(THEIRS)).values())
    await put(store, memory("theirs", THEIRS), grant=THEIRS)
    assert (await store.memories.count(BOTH))["live"] == 1 + counts["live"]
    assert sorted(await found(store, LIVE, BOTH)) == ["a", "theirs"]
    assert await found(store, LIVE, Grant.only("nobody")) == []
