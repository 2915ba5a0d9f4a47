"""Operations, undo, uses, and what erase and rewrite leave of them."""

from dataclasses import replace
from typing import Any

import pytest

from middleout_mcp.errors import Conflict, InvalidInput, NotFound
from middleout_mcp.ports import Store
from middleout_mcp.records import Change, Grant, Kind, Memory, Operation, Privacy, Status, Use
from tests.contract.builders import (
    LIVE,
    NOW,
    OURS,
    THEIRS,
    episode,
    found,
    later,
    memory,
    operation,
    put,
    turn,
    unembedded,
    vector,
)

pytestmark = pytest.mark.anyio
BOTH = Grant("ours", ("theirs", "ours"))


async def undo(store: Store, operation_id: str, **fields: Any) -> Operation:
    return await store.journal.undo(OURS, operation_id, operation(kind="restore", **fields))


async def test_an_operation_hides_what_is_private_to_another_agent_and_exists_no_more_without_it(store: Store) -> None:
    diary, open_one = memory("diary", privacy=Privacy.PRIVATE), memory("open")
    alone = await store.memories.commit(OURS, change_of(diary, reason="why"))
    both = await put(store, replace(diary, version=2, pinned=True), open_one)
    gone = memory("gone", privacy=Privacy.PRIVATE)
    await put(store, gone)
    await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"), agent="ann")
    assert len(await store.journal.operations(OURS, agent="ann")) == 4
    (shown,) = await store.journal.operations(OURS, agent="bob")
    assert shown == replace(both, memory_ids=(open_one.id,), reason=None, undoable=False)
    assert await store.journal.operation(OURS, both.id, agent="bob") == shown
    assert await store.journal.operations(OURS, agent="bob", offset=1) == []
    assert await store.journal.operation(OURS, alone.id, agent="bob") is None
    assert await store.journal.operation(OURS, alone.id, agent="ann") == alone
    for hidden in (alone, both):
        with pytest.raises(NotFound, match="no operation"):
            await store.journal.undo(OURS, hidden.id, operation(kind="restore"), agent="bob")
    await store.journal.undo(OURS, both.id, operation(kind="restore"), agent="ann")


async def test_operations_come_back_as_given_and_are_paged(store: Store) -> None:
    done = [await store.memories.commit(OURS, change_of(reason=f"why {n}", counts={"n": n})) for n in range(5)]
    assert await store.journal.operations(OURS) == done[::-1]
    assert await store.journal.operations(OURS, limit=2, offset=1) == [done[3], done[2]]
    assert await store.journal.operations(OURS, limit=0) == []
    assert await store.journal.operations(OURS, memory_id="m_unknown") == []
    one, other = await put(store, touched := memory("touched")), await put(store, memory("other"))
    assert await store.journal.operations(OURS, memory_id=touched.id) == [one]
    assert await store.journal.operations(OURS, limit=1) == [other]
    assert await store.journal.operation(OURS, "op_unknown") is None


def change_of(*memories: Memory, **fields: Any) -> Change:
    """A change whose operation has these fields."""
    return Change(operation=operation(**fields), memories=memories)


async def test_undo_restores_every_field_but_version_and_use(store: Store) -> None:
    old = memory("tea", tags=("a",), ref="r", importance=0.9, pinned=True)
    await put(store, old)
    changed = replace(
        old, text="coffee", tags=("b",), ref=None, importance=0.1, pinned=False, status=Status.ARCHIVED, version=2
    )
    done = await put(store, changed)
    await store.journal.note_uses(OURS, [Use(memory_id=old.id, session="s", at=NOW, weight=1.0)])
    undone = await undo(store, done.id, at=later(hours=1))
    assert (undone.undoes, undone.memory_ids, undone.counts) == (
        done.id,
        (old.id,),
        {"restored": 1, "skipped": 0, "gone": 0},
    )
    assert await store.memories.get(OURS, [old.id]) == [replace(old, version=3, use=1.0, last_used_at=NOW)]
    marked = await store.journal.operation(OURS, done.id)
    assert marked is not None
    assert marked.undone_by == undone.id
    assert [each.text for each in await store.memories.versions(OURS, old.id)] == ["tea", "coffee", "tea"]
    with pytest.raises(InvalidInput, match="undone already"):
        await undo(store, done.id)
    assert (await store.journal.operations(OURS, memory_id=old.id))[0] == undone


async def test_undo_puts_an_overwritten_episode_back_and_archives_a_new_one(store: Store) -> None:
    old, new = episode(1, 1, line="Old."), episode(2, 2)
    await put(store, turns=(turn(1, "x"), turn(2, "y")), episodes=(old,))
    done = await put(store, episodes=(replace(old, line="New."), new))
    undone = await undo(store, done.id)
    assert undone.counts == {"restored": 2, "skipped": 0, "gone": 0}
    assert undone.episode_ids == (old.id, new.id)
    assert await store.threads.episode(OURS, [old.id, new.id]) == [old, replace(new, archived=True)]
    await undo(store, undone.id)
    assert [each.line for each in await store.threads.episode(OURS, [old.id])] == ["New."]


async def test_an_episode_overwritten_since_keeps_its_newer_state(store: Store) -> None:
    stretch = episode(1, 1)
    done = await put(store, turns=(turn(1, "x"),), episodes=(stretch,))
    await put(store, episodes=(replace(stretch, line="Newer."),))
    assert (await undo(store, done.id)).counts == {"restored": 0, "skipped": 1, "gone": 0}
    assert [each.line for each in await store.threads.episode(OURS, [stretch.id])] == ["Newer."]


async def test_undo_leaves_turns_where_they_are(store: Store) -> None:
    done = await put(store, memory("from turn", thread="t", turns=(1,)), turns=(turn(1, "said"),))
    await undo(store, done.id)
    assert [each.text for each in await store.threads.turns(OURS, "t")] == ["said"]
    assert await found(store, LIVE) == []
    assert await found(store, replace(LIVE, statuses=(Status.ARCHIVED,))) == ["from turn"]


async def test_undo_and_redo_go_on_for_ever(store: Store) -> None:
    old = memory("tea")
    await put(store, old)
    last = await put(store, replace(old, text="coffee", version=2))
    for wanted in ("tea", "coffee", "tea", "coffee"):
        last = await undo(store, last.id)
        assert (await store.memories.get(OURS, [old.id]))[0].text == wanted
        assert last.counts == {"restored": 1, "skipped": 0, "gone": 0}


async def test_operations_are_undone_one_after_the_other_back_to_the_first(store: Store) -> None:
    first = memory("one")
    done = [await put(store, first)]
    for version, text in ((2, "two"), (3, "three")):
        done.append(await put(store, replace(first, text=text, version=version)))
    assert (await undo(store, done[1].id)).counts == {"restored": 0, "skipped": 1, "gone": 0}
    assert (await undo(store, done[2].id)).counts == {"restored": 1, "skipped": 0, "gone": 0}
    assert [each.text for each in await store.memories.get(OURS, [first.id])] == ["two"]


@pytest.mark.parametrize("operation_id", ["op_unknown", "", "\ud800", "m_1"])
async def test_an_unknown_operation_is_not_found(store: Store, operation_id: str) -> None:
    with pytest.raises(NotFound):
        await undo(store, operation_id)
    assert await store.journal.operations(OURS) == []


async def test_an_operation_of_a_namespace_that_is_only_read_is_seen_but_not_undone(store: Store) -> None:
    theirs = memory("theirs", THEIRS)
    done = await put(store, theirs, grant=THEIRS)
    assert await store.journal.operation(BOTH, done.id) == done
    with pytest.raises(NotFound):
        await store.journal.undo(BOTH, done.id, operation(kind="restore"))
    assert await found(store, LIVE, THEIRS) == ["theirs"]


async def test_neither_an_erase_nor_a_redaction_nor_what_kept_no_undo_can_be_undone(store: Store) -> None:
    gone, clean = memory("gone"), memory("clean")
    await put(store, gone, clean)
    erased = await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"))
    redacted = await store.memories.rewrite(
        OURS, [replace(clean, text="[redacted]", version=2)], [], [], operation(kind="redact")
    )
    final = await store.memories.commit(OURS, change_of(memory("final"), undoable=False))
    for each in (erased.operation, redacted, final):
        with pytest.raises(InvalidInput, match="cannot be undone"):
            await undo(store, each.id)


async def test_a_reference_that_another_memory_took_meanwhile_holds_up_no_undo(store: Store) -> None:
    first, other, second = memory("first", ref="r"), memory("other"), memory("second", ref="r")
    await put(store, first, other)
    done = await put(store, replace(first, ref=None, version=2), replace(other, text="changed", version=2))
    await put(store, second)
    undone = await undo(store, done.id)
    assert undone.counts == {"restored": 1, "skipped": 1, "gone": 0}
    assert await store.memories.by_ref(OURS, ["r"], agent="ann") == {"r": second}
    assert sorted(await found(store, LIVE)) == ["first", "other", "second"]


async def test_uses_count_in_a_change_as_they_do_alone(store: Store) -> None:
    used = memory("used")
    await put(store, used)
    low, high = (Use(memory_id=used.id, session="s", at=later(minutes=n), weight=w) for n, w in ((2, 0.2), (1, 1.0)))
    await put(store, uses=(low, high, low))
    await store.journal.note_uses(OURS, [low, replace(low, memory_id="m_unknown"), replace(low, session="s2")])
    got = (await store.memories.get(OURS, [used.id]))[0]
    assert got.use == pytest.approx(1.2)
    assert (got.version, got.last_used_at) == (1, later(minutes=2))


async def test_a_writer_that_has_not_seen_the_last_uses_takes_none_away(store: Store) -> None:
    used = memory("used")
    await put(store, used)
    await store.journal.note_uses(OURS, [Use(memory_id=used.id, session="s", at=NOW, weight=1.0)])
    await put(store, replace(used, text="changed", version=2))
    got = (await store.memories.get(OURS, [used.id]))[0]
    assert (got.use, got.last_used_at) == (1.0, NOW)


async def test_erase_takes_the_copies_merged_into_what_it_takes(store: Store) -> None:
    copy, inner = memory("copy", merged_into="m_w", status=Status.SUPERSEDED), memory("inner")
    inner = replace(inner, merged_into=copy.id, status=Status.SUPERSEDED)
    winner, stretch = memory("winner", id="m_w"), episode(1, 1, memory_ids=("m_w",))
    await put(store, winner, copy, inner, turns=(turn(1, "x"),), episodes=(stretch,))
    await store.memories.erase(OURS, [], [stretch.id], operation(kind="erase"))
    assert await store.memories.get(OURS, [winner.id, copy.id, inner.id]) == []


async def test_what_was_erased_comes_back_under_neither_id_nor_reference_nor_by_undo(store: Store) -> None:
    gone, bystander = memory("gone", ref="r"), memory("bystander")
    done = await put(store, gone, bystander)
    with pytest.raises(NotFound):
        await store.memories.erase(OURS, [gone.id, "m_unknown"], [], operation(kind="erase"))
    assert await store.memories.get(OURS, [gone.id]) == [gone]
    await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"))
    for back in (memory("again", id=gone.id), memory("again", ref="r")):
        with pytest.raises(InvalidInput, match="erased"):
            await put(store, back)
    assert (await undo(store, done.id)).counts == {"restored": 1, "skipped": 0, "gone": 1}
    assert await store.memories.get(OURS, [gone.id]) == []


async def test_erase_counts_what_it_took_and_tells_each_once(store: Store) -> None:
    one, stretch = memory("one", id="m_1", thread="t", turns=(1, 2)), episode(1, 3, memory_ids=("m_1", "m_2"))
    await put(store, one, turns=(turn(1, "x"), turn(2, "y"), turn(3, "z")), episodes=(stretch,))
    erased = await store.memories.erase(OURS, [one.id, one.id], [], operation(kind="erase", reason="asked"))
    assert erased.memory_ids == erased.operation.memory_ids == (one.id,)
    assert erased.operation.counts == {"memories": 1, "episodes": 0, "turns": 2}
    assert await store.journal.operation(OURS, erased.operation.id) == erased.operation
    assert [each.erased for each in await store.threads.turns(OURS, "t")] == [True, True, False]
    assert (await store.threads.turns(OURS, "t"))[0] == turn(1, "", erased=True)
    (left,) = await store.threads.episode(OURS, [stretch.id])
    assert (left.line, left.memory_ids) == ("", ("m_2",))
    with pytest.raises(NotFound):
        await store.memories.erase(OURS, [one.id], [], operation(kind="erase"))


async def test_erase_clears_what_pointed_at_it_and_its_vectors_and_words(store: Store) -> None:
    gone, left = memory("axolotl"), memory("left")
    left = replace(left, merged_into=None, superseded_by=gone.id, summary_id=gone.id)
    await put(store, gone, left, vectors={gone.id: vector(1), left.id: vector(0, 1)})
    await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"))
    assert await store.memories.get(OURS, [left.id]) == [
        replace(left, superseded_by=None, summary_id=None, embedded=True)
    ]
    assert await store.search.match(OURS, ["axolotl"], LIVE, 3) == []
    assert [hit.memory_id for hit in await store.search.nearest(OURS, vector(1), LIVE, 3)] == [left.id]
    assert await store.memories.versions(OURS, gone.id) == []
    assert await store.search.pending(3) == []


async def test_what_was_erased_is_blocked_in_its_own_namespace_only(store: Store) -> None:
    gone = memory("gone", ref="r")
    await put(store, gone)
    await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"))
    await put(store, replace(gone, namespace="theirs"), grant=THEIRS)
    other = memory("other")
    await put(store, other)
    with pytest.raises(InvalidInput, match="erased"):
        await put(store, replace(other, ref="r", version=2))
    assert (await store.memories.get(OURS, [other.id]))[0].ref is None


async def test_undo_brings_no_reference_back_that_was_erased_with_another_memory(store: Store) -> None:
    first, second = memory("first", ref="r"), memory("second", ref="r")
    await put(store, first)
    done = await put(store, replace(first, ref=None, version=2))
    await put(store, second)
    await store.memories.erase(OURS, [second.id], [], operation(kind="erase"))
    assert (await undo(store, done.id)).counts == {"restored": 0, "skipped": 1, "gone": 0}
    assert await store.memories.by_ref(OURS, ["r"], agent="ann") == {}


async def test_rewrite_needs_the_next_version_of_a_memory_that_is_there(store: Store) -> None:
    old, other, foreign = memory("old", id="m_1"), memory("other", id="m_2"), memory("foreign", THEIRS, id="m_3")
    await put(store, old, other)
    await put(store, foreign, grant=THEIRS)
    unknown, theirs = memory("x", version=2), replace(foreign, namespace="ours", version=2)
    for wrong in (replace(old, version=1), replace(old, version=3), unknown, theirs):
        with pytest.raises(Conflict):
            await store.memories.rewrite(
                OURS, [replace(other, text="[gone]", version=2), wrong], [], [], operation(kind="redact")
            )
    assert await found(store, LIVE, BOTH) == ["old", "other", "foreign"]


async def test_rewrite_of_a_turn_or_an_episode_that_is_not_there_changes_nothing(store: Store) -> None:
    old = memory("old")
    await put(store, old, turns=(turn(1, "x"),))
    clean = replace(old, text="[gone]", version=2)
    for turns, episodes in (([turn(2, "")], []), ([turn(1, "", thread="u")], []), ([turn(1, "")], [episode(1, 1)])):
        with pytest.raises(Conflict):
            await store.memories.rewrite(OURS, [clean], turns, episodes, operation(kind="redact"))
    assert await store.memories.get(OURS, [old.id]) == [old]
    assert [each.text for each in await store.threads.turns(OURS, "t")] == ["x"]


async def test_rewrite_leaves_no_earlier_version_no_vector_and_no_way_back(store: Store) -> None:
    old = memory("Call Zed at 3")
    await put(store, old, vectors={old.id: vector(1)})
    done = await put(store, replace(old, text="Call Zed at 4", version=2), turns=(turn(1, "Call Zed"),))
    clean = replace(old, text="Call [redacted] at 4", version=3, redacted=True)
    await store.memories.rewrite(OURS, [clean], [turn(1, "Call [redacted]")], [], operation(kind="redact"))
    assert await store.memories.versions(OURS, old.id) == [clean]
    assert [each.text for each in await store.threads.turns(OURS, "t")] == ["Call [redacted]"]
    assert await store.search.match(OURS, ["Zed"], LIVE, 5) == []
    assert await store.search.pending(5) == [unembedded(clean)]
    assert (await undo(store, done.id)).counts["restored"] == 0


async def test_rewrite_overwrites_an_episode_and_keeps_its_place(store: Store) -> None:
    stretch = episode(1, 1, line="Zed called.")
    done = await put(store, turns=(turn(1, "x"),), episodes=(stretch,))
    await put(store, episodes=(replace(stretch, line="Zed called twice."),))
    await store.memories.rewrite(OURS, [], [], [replace(stretch, line="[redacted]")], operation(kind="redact"))
    assert [each.line for each in await store.threads.episode(OURS, [stretch.id])] == ["[redacted]"]
    assert (await undo(store, done.id)).counts["restored"] == 0


async def test_nothing_pending_means_erasures_are_finished(store: Store) -> None:
    assert await store.memories.finish_erasures()


async def test_a_summary_of_a_summary_goes_and_its_other_parents_are_free_again(store: Store) -> None:
    one, two = memory("one", summary_id="m_s"), memory("two", summary_id="m_s")
    lower = memory("lower", id="m_s", kind=Kind.SUMMARY, parents=(one.id, two.id), summary_id="m_t")
    upper = memory("upper", id="m_t", kind=Kind.SUMMARY, parents=("m_s",))
    await put(store, one, two, lower, upper)
    erased = await store.memories.erase(OURS, ["m_s"], [], operation(kind="erase"))
    assert (erased.memory_ids, erased.dropped_summaries) == (("m_s",), ("m_t",))
    assert await store.memories.get(OURS, [one.id, two.id]) == [
        replace(one, summary_id=None),
        replace(two, summary_id=None),
    ]
