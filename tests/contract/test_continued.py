"""An operation in several parts, written one after another, is told and undone as one; what a summary stands for and
what has expired is hidden or found by filters.
"""

from dataclasses import replace
from typing import Any

import pytest

from middleout_mcp.errors import Conflict, InvalidInput, NotFound
from middleout_mcp.ports import Store
from middleout_mcp.records import Change, Kind, Memory, Operation, Status
from tests.contract.builders import LIVE, NOW, OURS, THEIRS, found, later, memory, operation, put, session, vector

pytestmark = pytest.mark.anyio


async def compress(store: Store, whole: str | None, *members: Memory, **fields: Any) -> tuple[Operation, Memory]:
    """Store a summary that stands for these members, as one operation or as a part of `whole`."""
    text = "All of " + " and ".join(member.text for member in members)
    summary = memory(text, kind=Kind.SUMMARY, parents=tuple(member.id for member in members))
    hidden = [replace(member, summary_id=summary.id, version=member.version + 1) for member in members]
    counts = {"summaries": 1, "memories": len(members), "failed": 0}
    done = operation(kind="compress", part_of=whole, counts=counts, **fields)
    return await store.memories.commit(OURS, Change(operation=done, memories=(summary, *hidden))), summary


async def in_three_parts(store: Store) -> tuple[Operation, list[Memory], list[Memory]]:
    """A first operation and two parts of it: the operation, its members and its summaries."""
    members = [memory(f"n{number}") for number in range(6)]
    await put(store, *members)
    whole, first = await compress(store, None, *members[:2])
    summaries = [first]
    for start in (2, 4):
        part, summary = await compress(store, whole.id, *members[start : start + 2])
        assert part.part_of == whole.id
        summaries.append(summary)
    return whole, members, summaries


async def test_an_operation_is_told_with_its_parts_and_they_have_no_answer_of_their_own(store: Store) -> None:
    whole, members, summaries = await in_three_parts(store)
    told = await store.journal.operation(OURS, whole.id)
    assert told is not None
    assert set(told.memory_ids) == {one.id for one in (*members, *summaries)}
    assert told.counts == {"summaries": 3, "memories": 6, "failed": 0}
    listed = await store.journal.operations(OURS)
    assert [one.kind for one in listed] == ["compress", "remember"]
    assert listed[0] == told
    assert await store.journal.operations(OURS, limit=1, offset=1) == listed[1:]
    assert await store.journal.operation(THEIRS, whole.id) is None


async def test_a_memory_of_any_part_leads_to_the_whole_operation_once(store: Store) -> None:
    whole, members, summaries = await in_three_parts(store)
    for one in summaries:
        assert [op.id for op in await store.journal.operations(OURS, memory_id=one.id)] == [whole.id]
    for one in members:
        kinds = [op.kind for op in await store.journal.operations(OURS, memory_id=one.id)]
        assert kinds == ["compress", "remember"]


async def test_all_parts_are_undone_and_redone_as_one(store: Store) -> None:
    whole, members, summaries = await in_three_parts(store)
    assert sorted(await found(store, LIVE)) == sorted(one.text for one in summaries)
    undo = await store.journal.undo(OURS, whole.id, operation(kind="restore"))
    assert undo.counts == {"restored": 9, "skipped": 0, "gone": 0}
    assert sorted(await found(store, LIVE)) == sorted(one.text for one in members)
    told = await store.journal.operation(OURS, whole.id)
    assert told is not None and told.undone_by == undo.id
    redo = await store.journal.undo(OURS, undo.id, operation(kind="restore"))
    assert redo.counts["restored"] == 9
    assert sorted(await found(store, LIVE)) == sorted(one.text for one in summaries)
    told = await store.journal.operation(OURS, whole.id)
    assert told is not None and told.undone_by is None
    again = await store.journal.undo(OURS, whole.id, operation(kind="restore"))
    assert again.counts == {"restored": 9, "skipped": 0, "gone": 0}
    stored = await store.memories.get(OURS, [one.id for one in members])
    assert [replace(one, version=1) for one in stored] == members


async def test_what_was_changed_since_is_left_alone_in_every_part(store: Store) -> None:
    whole, members, _ = await in_three_parts(store)
    (stored,) = await store.memories.get(OURS, [members[4].id])
    await put(store, replace(stored, text="changed since", version=stored.version + 1))
    undone = await store.journal.undo(OURS, whole.id, operation(kind="restore"))
    assert undone.counts == {"restored": 9, "skipped": 0, "gone": 0}
    (kept,) = await store.memories.get(OURS, [members[4].id])
    assert (kept.text, kept.summary_id) == ("changed since", None)


async def test_nothing_continues_an_operation_that_was_undone_or_never_was(store: Store) -> None:
    whole, _, _ = await in_three_parts(store)
    late = [memory("late 1"), memory("late 2")]
    await put(store, *late)
    undo = await store.journal.undo(OURS, whole.id, operation(kind="restore"))
    for other in (whole.id, "op_unknown"):
        with pytest.raises(Conflict):
            await compress(store, other, *late)
    assert {one.summary_id for one in await store.memories.get(OURS, [one.id for one in late])} == {None}
    await store.journal.undo(OURS, undo.id, operation(kind="restore"))
    part, _ = await compress(store, whole.id, *late)  # the operation stands again
    with pytest.raises(Conflict):  # a part is not continued itself
        await compress(store, part.id, memory("later"))


async def test_a_part_cannot_be_undone_by_itself(store: Store) -> None:
    members = [memory(f"n{number}") for number in range(4)]
    await put(store, *members)
    whole, _ = await compress(store, None, *members[:2])
    part, _ = await compress(store, whole.id, *members[2:])
    with pytest.raises(NotFound):
        await store.journal.undo(OURS, part.id, operation(kind="restore"))
    await store.journal.undo(OURS, whole.id, operation(kind="restore"))
    with pytest.raises(InvalidInput):
        await store.journal.undo(OURS, whole.id, operation(kind="restore"))


async def test_what_was_erased_of_one_part_does_not_keep_the_others_from_coming_back(store: Store) -> None:
    whole, members, _ = await in_three_parts(store)
    erased = await store.memories.erase(OURS, [members[0].id], [], operation(kind="erase"))
    assert len(erased.dropped_summaries) == 1
    undone = await store.journal.undo(OURS, whole.id, operation(kind="restore"))
    assert undone.counts["gone"] > 0
    assert sorted(await found(store, LIVE)) == sorted(one.text for one in members[1:])


async def test_what_a_summary_stands_for_is_found_only_where_that_is_asked_for(store: Store) -> None:
    members = [memory("red tea"), memory("green tea")]
    vectors = {members[0].id: vector(1), members[1].id: vector(1, 0.1)}
    await put(store, *members, vectors=vectors)
    _, summary = await compress(store, None, *members)
    assert await found(store, LIVE) == [summary.text]
    every = replace(LIVE, compressed=True)
    assert sorted(await found(store, every)) == sorted(["red tea", "green tea", summary.text])
    ids = {one.id for one in members}
    for condition, expected in ((LIVE, set()), (every, ids)):
        near = {hit.memory_id for hit in await store.search.nearest(OURS, vector(1), condition, 5)}
        assert near == expected
        match = {hit.memory_id for hit in await store.search.match(OURS, ["tea"], condition, 5)}
        assert match == expected | {summary.id}


async def test_what_has_expired_and_is_not_marked_is_found_as_lapsed(store: Store) -> None:
    await store.threads.save_session(OURS, session(id="s_over", ended_at=NOW))
    await store.threads.save_session(OURS, session(id="s_runs"))
    await put(
        store,
        memory("past", expires_at=later(seconds=-1)),
        memory("now", expires_at=NOW),
        memory("later", expires_at=later(seconds=1)),
        memory("with a session that is over", expires_session="s_over"),
        memory("with one that runs", expires_session="s_runs"),
        memory("marked", expires_at=NOW, status=Status.EXPIRED),
        memory("archived", expires_at=NOW, status=Status.ARCHIVED),
        memory("compressed", expires_at=NOW, summary_id="m_1"),
        memory("private", expires_at=NOW, privacy="private", agent="bob"),
        memory("sensitive", expires_at=NOW, privacy="sensitive"),
    )
    lapsed = replace(LIVE, lapsed=True, sensitive=True, compressed=True, statuses=(Status.EXPIRED,))
    expected = ["past", "now", "with a session that is over", "compressed", "private", "sensitive"]
    assert sorted(await found(store, lapsed)) == sorted(expected)
    surfacing = await found(store, replace(LIVE, sensitive=True, compressed=True))
    assert sorted(surfacing) == ["later", "with one that runs"]
