"""Memories: commits whole or not at all, versions, look-ups, and the conditions of a listing."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest

from middleout_mcp.errors import Conflict, InvalidInput
from middleout_mcp.ports import Store
from middleout_mcp.records import Change, Grant, Kind, Privacy, Source, Status, TaskState, Trust, Use
from middleout_mcp.records import Change, Grant, Kind, Privacy, Source, Status, Trust, Use
from middleout_mcp.times import session_over
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


@pytest.mark.parametrize(
    ("condition", "texts"),
    [
        ({"kinds": (Kind.TASK,)}, ["task"]),
        ({"tags": ("red", "big")}, ["tagged"]),
        ({"scope": "atlas"}, ["old", "scoped", "tagged", "task"]),
        ({"since": NOW - timedelta(days=1), "tags": ("red",)}, ["tagged"]),
        ({"until": NOW - timedelta(days=9)}, ["old"]),
        ({"thread": "t7"}, ["tagged"]),
        ({"session": "s_1"}, ["task"]),
        ({"pinned": True}, ["old"]),
        ({"state": TaskState.OPEN}, ["task"]),
        ({"statuses": (Status.ARCHIVED,)}, ["archived"]),
        ({"statuses": ()}, []),
    ],
)
async def test_every_condition_narrows_a_listing(store: Store, condition: dict[str, Any], texts: list[str]) -> None:
    await put(
        store,
        memory("task", kind=Kind.TASK, state=TaskState.OPEN, session="s_1"),
        memory("tagged", tags=("red", "big"), thread="t7"),
        memory("scoped", scope="atlas"),
        memory("other scope", scope="zeus"),
        memory("old", at=NOW - timedelta(days=9), pinned=True),
        memory("archived", status=Status.ARCHIVED),
    )
    assert sorted(await found(store, replace(LIVE, **condition))) == texts


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


async def test_listings_are_ordered_and_paged(store: Store) -> None:
    for number in range(5):
        fields = {"at": later(hours=number), "importance": number / 10, "due": later(days=-number)}
        await put(store, memory(f"m{number}", updated_at=later(minutes=-number), **fields))
    for order, texts in (
        ("at", ["m4", "m3", "m2"]),
        ("updated", ["m0", "m1", "m2"]),
        ("importance", ["m4", "m3", "m2"]),
        ("due", ["m4", "m3", "m2"]),
    ):
        assert [each.text for each in await store.memories.find(OURS, LIVE, limit=3, order=order)] == texts
    assert [each.text for each in await store.memories.find(OURS, LIVE, limit=3, offset=3)] == ["m1", "m0"]


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
        ({}, later(minutes=30)),
        ({"last_at": later(minutes=20)}, later(minutes=50)),
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
    assert sorted(await found(store, replace(LIVE, now=end, ended_sessions=False))) == ["bound", "free"]
    await store.threads.save_session(OURS, replace(running, ended_at=None, turns=200))
    assert await found(store, LIVE) == ["free"]


async def test_store_and_record_agree_on_when_a_session_is_over_also_under_a_clock_set_back(store: Store) -> None:
    edges = (timedelta(minutes=30), timedelta(hours=8), timedelta(hours=9))
    shifts = sorted({sign * edge + nudge for sign in (-1, 1) for edge in (MS, *edges) for nudge in (-MS, 0 * MS, MS)})
    for last, turns, ended in product((0 * MS, *edges), (0, 199, 200), (False, True)):
        placed = NOW + last
        one = session(last_at=placed, turns=turns, ended_at=placed if ended else None)
        await put(store, memory(one.id, expires_session=one.id), session=one)
        for shift in shifts:
            surfaces = one.id in await found(store, replace(LIVE, now=placed + shift))
            assert surfaces is not session_over(one, placed + shift), (last, turns, ended, shift)


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
    assert await found(store, replace(LIVE, statuses=(Status.EXPIRED,))) == ["brief lake"]


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


async def test_private_memories_are_their_agents_and_sensitive_ones_are_asked_for(store: Store) -> None:
    await put(store, memory("diary", privacy=Privacy.PRIVATE), memory("illness", privacy=Privacy.SENSITIVE))
    assert await found(store, LIVE) == await found(store, replace(LIVE, agent="ann")) == ["diary"]
    assert await found(store, replace(LIVE, agent="bob", sensitive=True)) == ["illness"]


async def test_as_of_includes_the_start_and_excludes_the_end_of_what_held_and_merged_copies(store: Store) -> None:
    span = {"valid_from": later(days=-2), "valid_to": later(days=-1), "status": Status.SUPERSEDED}
    await put(store, memory("held", **span), memory("undated", at=later(days=-3)))
    await put(store, memory("copy", merged_into="m_x", **span))
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
    await put(store, memory("theirs", THEIRS), grant=THEIRS)
    assert (await store.memories.count(BOTH))["live"] == 1 + counts["live"]
    assert sorted(await found(store, LIVE, BOTH)) == ["a", "theirs"]
    assert await found(store, LIVE, Grant.only("nobody")) == []
