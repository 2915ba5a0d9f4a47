"""What a listing returns: conditions, order, expiry, suppression, privacy and what held at a time."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest

from middleout_mcp.ports import Store
from middleout_mcp.records import Grant, Kind, Privacy, Status, TaskState
from middleout_mcp.times import session_over
from tests.contract.builders import (
    LIVE,
    NOW,
    OURS,
    THEIRS,
    found,
    later,
    memory,
    put,
    session,
    vector,
)

pytestmark = pytest.mark.anyio
MS = timedelta(milliseconds=1)
BOTH = Grant("ours", ("theirs", "ours"))


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
