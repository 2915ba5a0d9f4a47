"""Memories: commits whole or not at all, versions, look-ups, and the conditions of a listing."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from middleout_mcp.errors import Conflict, InvalidInput
from middleout_mcp.ports import Store
from middleout_mcp.records import Change, Grant, Kind, Privacy, Source, Status, Trust, Use
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
    vector,
)

pytestmark = pytest.mark.anyio
MS = timedelta(milliseconds=1)
BOTH = Grant("ours", ("theirs", "ours"))


async def test_every_field_of_a_memory_survives_storing_updating_and_versioning(store: Store) -> None:
    first = memory(
        "first",
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
    second = replace(first, text="second", known_by=None, due=later(milliseconds=1), version=2)
    await put(store, first)
    await put(store, second)
    assert await store.memories.versions(OURS, first.id) == [first, second]
    assert await store.memories.get(OURS, [first.id]) == [second]


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
    assert [row[0] for row in await store.search.pending(9)] == [old.id]


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
    assert await store.memories.by_ref(OURS, ["r"]) == {"r": second}
    assert await store.memories.by_ref(Grant("theirs", ("theirs", "ours")), ["r"]) == {}
    assert await store.memories.by_ref(OURS, []) == {}


async def test_equal_texts_are_looked_for_in_the_written_namespace_and_oldest_first(store: Store) -> None:
    first, second = memory("STRASSE  north\n"), memory("straße north")
    await put(store, first)
    await put(store, second)
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
    assert len(await store.memories.by_ref(OURS, [f"r{n}" for n in range(1200)])) == 1200


@pytest.mark.parametrize(("bound", "texts"), [("since", ["+0", "+1"]), ("until", ["+0", "-1"])])
async def test_both_ends_of_a_time_range_are_inclusive(store: Store, bound: str, texts: list[str]) -> None:
    await put(store, *(memory(f"{n:+}", at=NOW + n * MS) for n in (-1, 0, 1)))
    assert sorted(await found(store, replace(LIVE, **{bound: NOW}))) == texts


async def test_one_of_the_statuses_and_kinds_is_enough_and_every_tag_is_needed(store: Store) -> None:
    await put(
        store,
        memory("a", kind=Kind.TASK, tags=("x", "y")),
        memory("b", kind=Kind.ERROR, tags=("x",), status=Status.ARCHIVED),
        memory("c", kind=Kind.EVENT, tags=("xy",)),
    )
    both = replace(LIVE, statuses=(Status.LIVE, Status.ARCHIVED))
    assert sorted(await found(store, both)) == ["a", "b", "c"]
    assert sorted(await found(store, replace(both, kinds=(Kind.TASK, Kind.ERROR)))) == ["a", "b"]
    assert await found(store, replace(both, tags=("x", "y"))) == ["a"]
    assert sorted(await found(store, replace(both, tags=("x",)))) == ["a", "b"]
    assert sorted(await found(store, replace(LIVE, pinned=False))) == ["a", "c"]


async def test_equal_ranks_are_ordered_by_id_and_those_without_due_come_last(store: Store) -> None:
    twins = [memory(each, id=each) for each in ("m_c", "m_a", "m_b")]
    await put(store, *twins, memory("m_z", id="m_z", due=later(days=1)))
    for order in ("at", "updated", "importance"):
        listed = await store.memories.find(OURS, LIVE, limit=9, order=order)
        assert [each.id for each in listed] == ["m_a", "m_b", "m_c", "m_z"]
    listed = await store.memories.find(OURS, LIVE, limit=9, order="due")
    assert [each.id for each in listed] == ["m_z", "m_a", "m_b", "m_c"]
    assert [each.id for each in await store.memories.find(OURS, LIVE, limit=2, offset=1)] == ["m_b", "m_c"]
    assert await store.memories.find(OURS, LIVE, limit=0) == []
    assert await store.memories.find(OURS, LIVE, limit=5, offset=50) == []


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"ended_at": later(minutes=5)}, later(minutes=5)),
        ({}, later(minutes=30)),
        ({"last_at": later(hours=7, minutes=45)}, later(hours=8)),
    ],
)
async def test_a_session_is_over_at_its_millisecond_and_not_before(
    store: Store, fields: dict[str, Any], end: datetime
) -> None:
    running = session(turns=199, **fields)
    await put(store, memory("bound", expires_session=running.id), memory("free"), session=running)
    assert sorted(await found(store, replace(LIVE, now=end - MS))) == ["bound", "free"]
    assert await found(store, replace(LIVE, now=end)) == ["free"]
    assert await found(store, replace(LIVE, now=end, statuses=(Status.EXPIRED,))) == ["bound"]


async def test_a_session_of_another_namespace_keeps_nothing_alive(store: Store) -> None:
    foreign = session(THEIRS)
    await store.threads.save_session(THEIRS, foreign)
    await put(store, memory("bound", expires_session=foreign.id))
    assert await found(store, LIVE, BOTH) == []


async def test_expiry_hides_from_searches_and_not_from_a_look_up_by_id(store: Store) -> None:
    brief = memory("brief lake", expires_at=NOW)
    await put(store, brief, vectors={brief.id: vector(1)})
    for condition, ids in ((replace(LIVE, now=NOW - MS), [brief.id]), (LIVE, [])):
        assert [hit.memory_id for hit in await store.search.match(OURS, ["lake"], condition, 3)] == ids
        assert [hit.memory_id for hit in await store.search.nearest(OURS, vector(1), condition, 3)] == ids
    assert await store.memories.get(OURS, [brief.id]) == [replace(brief, embedded=True)]


async def test_suppression_ends_at_its_millisecond_and_is_bound_to_the_places_named(store: Store) -> None:
    await put(
        store,
        memory("timed", suppressed_until=later(minutes=1)),
        memory("step", suppressed_in="r_1"),
        memory("session", suppressed_in="s_1"),
    )
    assert await found(store, replace(LIVE, suppressed_in=("s_1", "r_1"))) == []
    assert await found(store, replace(LIVE, suppressed_in=("r_1",))) == ["session"]
    assert "timed" not in await found(store, replace(LIVE, now=later(minutes=1) - MS))
    assert "timed" in await found(store, replace(LIVE, now=later(minutes=1)))


async def test_as_of_includes_the_start_and_excludes_the_end_of_what_held(store: Store) -> None:
    span = {"valid_from": later(days=-2), "valid_to": later(days=-1)}
    await put(store, memory("held", status=Status.SUPERSEDED, **span), memory("undated", at=later(days=-3)))
    assert await found(store, replace(LIVE, as_of=later(days=-2) - MS)) == ["undated"]
    assert sorted(await found(store, replace(LIVE, as_of=later(days=-2)))) == ["held", "undated"]
    assert await found(store, replace(LIVE, as_of=later(days=-1))) == ["undated"]


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
    wanted = {"live": 1, "archived": 1, "expired": 0, "pending": 1, "threads": 2, "turns": 3, "episodes": 1}
    assert {name: counts[name] for name in wanted} == wanted
    assert not any((await store.memories.count(THEIRS)).values())
