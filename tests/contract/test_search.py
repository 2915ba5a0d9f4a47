"""Candidates by vector and by text, and the vectors behind them."""

from dataclasses import replace
from pathlib import Path

import pytest

from middleout_mcp.errors import EmbedderMismatch, InvalidInput
from middleout_mcp.ports import Store
from middleout_mcp.records import Grant, Kind, Privacy, Status, TaskState
from tests.contract.builders import (
    LIVE,
    NOW,
    OURS,
    STORES,
    THEIRS,
    found,
    later,
    memory,
    operation,
    put,
    unembedded,
    vector,
)

pytestmark = pytest.mark.anyio
BOTH = Grant("ours", ("theirs", "ours"))
LONGER = vector(1) * 2


async def test_both_searches_obey_every_condition_that_a_listing_obeys(store: Store) -> None:
    kept = [
        memory("lake one", kind=Kind.TASK, state=TaskState.OPEN, tags=("x",), scope="s", thread="t", session="s_1"),
        memory("lake two", pinned=True, at=later(days=-1), privacy=Privacy.SENSITIVE),
        memory("lake three", status=Status.ARCHIVED, privacy=Privacy.PRIVATE, agent="bob"),
        memory("lake four", status=Status.SUPERSEDED, valid_from=later(days=-5), valid_to=later(days=-1)),
        memory("lake five", suppressed_in="s_1", expires_at=later(days=1)),
    ]
    await put(store, *kept, vectors={each.id: vector(1, n) for n, each in enumerate(kept)})
    conditions = [
        {},
        {"kinds": (Kind.TASK,)},
        {"tags": ("x",)},
        {"tags": ("x", "x"), "kinds": (Kind.TASK,) * 40_000},
        {"ids": (kept[0].id, "\ud800")},
        {"scope": "s"},
        {"since": NOW},
        {"until": later(days=-1), "sensitive": True},
        {"as_of": later(days=-2)},
        {"thread": "t"},
        {"session": "s_1"},
        {"suppressed_in": ("s_1",)},
        {"pinned": True, "sensitive": True},
        {"state": TaskState.OPEN},
        {"statuses": (Status.ARCHIVED,)},
        {"statuses": (Status.ARCHIVED,), "agent": "ann"},
        {"now": later(days=2), "statuses": (Status.EXPIRED,)},
        {"statuses": ()},
    ]
    for fields in conditions:
        condition = replace(LIVE, **fields)
        listed = {each.id for each in await store.memories.find(OURS, condition, limit=9)}
        assert {hit.memory_id for hit in await store.search.nearest(OURS, vector(1), condition, 9)} == listed, fields
        assert {hit.memory_id for hit in await store.search.match(OURS, ["lake"], condition, 9)} == listed, fields


async def test_the_rare_ones_of_another_namespace_are_not_crowded_out(store: Store) -> None:
    crowd = [memory(f"lake {number}", THEIRS) for number in range(300)]
    ours = memory("by the lake there was so much else to say that it ranks last")
    await put(store, *crowd, grant=THEIRS, vectors={each.id: vector(1) for each in crowd})
    await put(store, ours, vectors={ours.id: vector(-1)})
    assert [hit.memory_id for hit in await store.search.nearest(OURS, vector(1), LIVE, 3)] == [ours.id]
    assert [hit.memory_id for hit in await store.search.match(OURS, ["lake"], LIVE, 3)] == [ours.id]
    assert len(await store.search.nearest(BOTH, vector(1), LIVE, 400)) == 301


async def test_searches_filter_before_they_cut(store: Store) -> None:
    crowd = [memory(f"lake note {number}") for number in range(300)]
    rare = memory("lake gate", kind=Kind.DECISION)
    near = {each.id: vector(1, number / 1000) for number, each in enumerate(crowd)}
    await put(store, *crowd, rare, vectors={**near, rare.id: vector(0, 1)})
    decisions = replace(LIVE, kinds=(Kind.DECISION,))
    assert [hit.memory_id for hit in await store.search.nearest(OURS, vector(1), decisions, 5)] == [rare.id]
    assert [hit.memory_id for hit in await store.search.match(OURS, ["lake"], decisions, 5)] == [rare.id]


async def test_a_crowd_that_is_hidden_keeps_no_neighbour_from_being_found(store: Store) -> None:
    hidden = [
        *(memory(f"over {number}", expires_at=NOW) for number in range(60)),
        *(memory(f"put by {number}", suppressed_until=later(days=1)) for number in range(60)),
        *(memory(f"diary {number}", privacy=Privacy.PRIVATE, agent="bob") for number in range(60)),
    ]
    seen = [memory(f"seen {number}", id=f"m_{number}") for number in range(3)]
    far = {each.id: vector(0, 1, number) for number, each in enumerate(seen)}
    await put(store, *hidden, *seen, vectors={**{each.id: vector(1) for each in hidden}, **far})
    asked = replace(LIVE, agent="ann", suppressed_in=("s_1",))
    for k in (1, 2, 3, 90):
        found_ids = [hit.memory_id for hit in await store.search.nearest(OURS, vector(1), asked, k)]
        assert found_ids == ["m_0", "m_1", "m_2"][:k]


async def test_any_number_of_neighbours_is_found_also_where_thousands_are_equally_near(store: Store) -> None:
    ids = [f"m_{number:04}" for number in range(4500)]
    for start in range(0, len(ids), 500):
        part = [memory("lake", id=each) for each in ids[start : start + 500]]
        await put(store, *part, vectors={each.id: vector(1, 1 + int(each.id[2:]) // 4400) for each in part})
    for k in (3, 4096, 4097, 4450, 9000):
        for asked in (LIVE, replace(LIVE, kinds=(Kind.FACT,))):
            hits = await store.search.nearest(OURS, vector(1, 1), asked, k)
            assert [hit.memory_id for hit in hits] == ids[:k]


async def test_neighbours_come_with_their_cosine(store: Store) -> None:
    near, far, opposite = memory("near"), memory("far"), memory("opposite")
    await put(
        store, near, far, opposite, vectors={near.id: vector(1, 1), far.id: vector(0, 1), opposite.id: vector(-1)}
    )
    hits = await store.search.nearest(OURS, vector(1), LIVE, 10)
    assert [hit.memory_id for hit in hits] == [near.id, far.id, opposite.id]
    assert [round(hit.score, 3) for hit in hits] == [0.707, 0.0, -1.0]


@pytest.mark.parametrize("step", [1, -1, 7])
async def test_ties_at_the_cut_go_to_the_smallest_ids(store: Store, step: int) -> None:
    twins = [memory("lake", id=f"m_{number * step % 20:02}") for number in range(20)]
    await put(store, *twins, vectors={each.id: vector(1, 1) for each in twins})
    smallest = ["m_00", "m_01", "m_02"]
    assert [hit.memory_id for hit in await store.search.match(OURS, ["lake"], LIVE, 3)] == smallest
    assert [hit.memory_id for hit in await store.search.nearest(OURS, vector(1), LIVE, 3)] == smallest


async def test_asking_for_none_or_for_more_than_there_are_is_no_error(store: Store) -> None:
    lone = memory("lake")
    await put(store, lone, vectors={lone.id: vector(1)})
    for k, count in ((0, 0), (1, 1), (100_000, 1)):
        assert len(await store.search.nearest(OURS, vector(1), LIVE, k)) == count
        assert len(await store.search.match(OURS, ["lake"], LIVE, k)) == count


async def test_text_scores_are_positive_and_rarer_words_weigh_more(store: Store) -> None:
    await put(store, *(memory(f"lake {n}") for n in range(20)), memory("gate 1"), memory("gate and lake 2"))
    hits = await store.search.match(OURS, ["gate", "lake"], LIVE, 30)
    texts = {each.id: each.text for each in await store.memories.find(OURS, LIVE, limit=30)}
    assert {texts[hit.memory_id] for hit in hits[:2]} == {"gate and lake 2", "gate 1"}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(hit.score > 0 for hit in hits)


async def test_no_terms_find_nothing(store: Store) -> None:
    await put(store, memory("lake"))
    for terms in (
        [],
        [""],
        ["  "],
        ["\x00"],
        ["..."],
        ["\ud800"],
        ["OR"],
        ["NOT lake"],
        ["lak*"],
        ["words:lake"],
    ):
        assert await store.search.match(OURS, terms, LIVE, 5) == [], terms


@pytest.mark.parametrize("term", ['"', "'", "AND", "NEAR(", "*", "-", ":", "\x00", "\ud800", "", "(", "a OR b"])
async def test_no_term_acts_as_an_operator(store: Store, term: str) -> None:
    lake = memory("the lake AND the shore")
    await put(store, lake)
    await store.search.match(OURS, [term], LIVE, 5)
    assert [hit.memory_id for hit in await store.search.match(OURS, [term, "lake"], LIVE, 5)] == [lake.id]


@pytest.mark.parametrize(
    ("text", "term"), [("会議は東京で行う", "東京"), ("他的记忆很好", "记忆"), ("Läufer im Café", "cafe")]
)
async def test_text_search_reads_cjk_and_accents(store: Store, text: str, term: str) -> None:
    await put(store, memory(text), memory("nothing of the kind"))
    assert len(await store.search.match(OURS, [term], LIVE, 5)) == 1


@pytest.mark.parametrize("term", ['the "lake" gate', "lake\x00gate", "lake gate", "LAKE-GATE"])
async def test_a_term_of_several_words_is_a_phrase(store: Store, term: str) -> None:
    phrase = memory("the lake gate")
    await put(store, phrase, memory("gate of a lake"), memory("the lake"))
    assert [hit.memory_id for hit in await store.search.match(OURS, [term], LIVE, 5)] == [phrase.id]


async def test_hundreds_of_terms_are_one_search(store: Store) -> None:
    await put(store, memory("lake"))
    assert len(await store.search.match(OURS, [*(f"word{n}" for n in range(900)), "lake"], LIVE, 5)) == 1


async def test_tags_key_value_and_scope_are_found_by_text_until_they_change(store: Store) -> None:
    first = memory("x", tags=("azure",), key="colour", value="teal", scope="atlas")
    await put(store, first)
    for term in ("azure", "colour", "teal", "atlas"):
        assert len(await store.search.match(OURS, [term], LIVE, 5)) == 1
    await put(store, replace(first, tags=(), key=None, value=None, scope=None, version=2))
    for term in ("azure", "colour", "teal", "atlas"):
        assert await store.search.match(OURS, [term], LIVE, 5) == []


async def test_a_search_by_a_vector_that_is_none_is_refused(store: Store) -> None:
    await put(store, memory("x"))
    for broken in (bytes(32), b"\x00\x00\xc0\x7f" * 8, b"\x00\x00\x80\x7f" * 8):
        with pytest.raises(InvalidInput):
            await store.search.nearest(OURS, broken, LIVE, 3)
    for length in (b"", vector(1)[:-1], vector(1) * 2):
        with pytest.raises(EmbedderMismatch):
            await store.search.nearest(OURS, length, LIVE, 3)


async def test_a_new_file_takes_the_embedder_it_was_opened_with(store: Store) -> None:
    state = await store.search.embedding()
    assert (state.name, state.dimension, state.target_name, state.done) == ("fake-words", 8, None, 0)


async def test_pending_is_of_every_namespace_oldest_first_and_limited(store: Store) -> None:
    first, second, third = memory("one"), memory("two", THEIRS), memory("three")
    for each, grant in ((first, OURS), (second, THEIRS), (third, OURS)):
        await put(store, each, grant=grant)
    assert await store.search.pending(2) == [unembedded(first), unembedded(second)]
    assert await store.search.pending(0) == []
    unknown = [unembedded(memory("two")), unembedded(replace(second, namespace="nobody"))]
    assert await store.search.add_vectors([(row, vector(1)) for row in (unembedded(second), *unknown)]) == 1
    assert await store.search.pending(9) == [unembedded(first), unembedded(third)]
    assert (await store.memories.get(THEIRS, [second.id]))[0].embedded


async def test_one_id_in_two_namespaces_gets_two_vectors_each_of_its_own_text(store: Store) -> None:
    ours = memory("lake")
    theirs = replace(ours, text="gate", namespace="theirs")
    await put(store, ours)
    await put(store, theirs, grant=THEIRS)
    made = {"lake": vector(1), "gate": vector(0, 1)}
    rows = await store.search.pending(9)
    assert rows == [unembedded(ours), unembedded(theirs)]
    batch = [(row, made[row.text]) for row in rows]
    assert await store.search.add_vectors(batch[:1]) == 1
    assert await store.search.add_vectors(batch) == 1  # as a second process that had taken the same batch
    assert await store.search.vectors(OURS, [ours.id]) == {ours.id: vector(1)}
    assert await store.search.vectors(THEIRS, [ours.id]) == {ours.id: vector(0, 1)}


async def test_pending_memories_take_a_vector_only_for_the_version_it_was_made_from(store: Store) -> None:
    old = memory("Tea at 3")
    new = replace(old, text="Tea at 4", version=2)
    await put(store, old)
    await put(store, new)
    assert await store.search.add_vectors([(unembedded(old), vector(1))]) == 0
    assert await store.search.add_vectors([(unembedded(new), vector(1))]) == 1
    assert await store.search.vectors(OURS, [old.id]) == {old.id: vector(1)}
    await put(store, replace(new, text="Tea at 5", version=3))
    assert await store.search.vectors(OURS, [old.id]) == {}


async def test_a_change_with_a_vector_that_does_not_fit_is_refused_whole(store: Store) -> None:
    lone = memory("x")
    with pytest.raises(EmbedderMismatch, match="dimensions"):
        await put(store, lone, vectors={lone.id: LONGER})
    with pytest.raises(InvalidInput):
        await put(store, lone, vectors={lone.id: b"\x00\x00\xc0\x7f" * 8})
    assert await store.memories.get(OURS, [lone.id]) == []


async def test_a_broken_batch_of_vectors_stores_none_of_them(store: Store) -> None:
    one, two = memory("one"), memory("two")
    await put(store, one, two)
    with pytest.raises(EmbedderMismatch):
        await store.search.add_vectors([(unembedded(one), vector(1)), (unembedded(two), LONGER)])
    with pytest.raises(InvalidInput):
        await store.search.add_vectors([(unembedded(one), vector(1)), (unembedded(two), bytes(32))])
    assert len(await store.search.pending(9)) == 2


async def test_a_vector_stays_through_changes_that_leave_the_text_alone(store: Store) -> None:
    first = memory("tea")
    await put(store, first, vectors={first.id: vector(1)})
    await put(store, replace(first, importance=0.9, status=Status.ARCHIVED, version=2))
    archived = replace(LIVE, statuses=(Status.ARCHIVED,))
    assert [hit.memory_id for hit in await store.search.nearest(OURS, vector(1), archived, 3)] == [first.id]
    assert await store.search.nearest(OURS, vector(1), LIVE, 3) == []
    await put(store, replace(first, text="coffee", version=3), vectors={first.id: vector(0, 1)})
    assert await store.search.vectors(OURS, [first.id]) == {first.id: vector(0, 1)}
    assert await store.search.pending(3) == []


async def test_undoing_a_change_of_text_makes_the_memory_pending(store: Store) -> None:
    first = memory("tea")
    await put(store, first, vectors={first.id: vector(1)})
    done = await put(store, replace(first, text="coffee", version=2), vectors={first.id: vector(0, 1)})
    await store.journal.undo(OURS, done.id, operation(kind="restore"))
    assert await store.search.vectors(OURS, [first.id]) == {}
    assert await store.search.pending(3) == [unembedded(replace(first, version=3))]
    assert [hit.memory_id for hit in await store.search.match(OURS, ["tea"], LIVE, 3)] == [first.id]
    assert await store.search.match(OURS, ["coffee"], LIVE, 3) == []


async def test_writes_between_the_batches_of_a_reembedding_are_part_of_it(store: Store) -> None:
    kept, changed, gone, archived = (memory(f"{word} lake") for word in ("kept", "changed", "gone", "archived"))
    first = [kept, changed, gone, archived]
    await put(store, *first, vectors={each.id: vector(1) for each in first})
    state = await store.search.begin_reembed("other", 16)
    assert (state.name, state.target_name, state.target_dimension, state.done, state.total) == (
        "fake-words", "other", 16, 0, 4,
    )  # fmt: skip
    stale = await store.search.reembed_batch(9)
    await store.search.add_reembedded([(unembedded(archived), LONGER)])
    await put(store, replace(changed, text="altered lake", version=2), vectors={changed.id: vector(0, 1)})
    await put(store, replace(archived, status=Status.ARCHIVED, version=2))
    await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"))
    added = memory("added lake")
    await put(store, added, vectors={added.id: vector(1)})
    state = await store.search.add_reembedded([(row, LONGER) for row in stale])
    assert (state.name, state.done, state.total) == ("fake-words", 2, 4)
    assert len(await store.search.nearest(OURS, vector(1), LIVE, 9)) == 3
    rows = await store.search.reembed_batch(9)
    assert rows == [unembedded(replace(changed, text="altered lake", version=2)), unembedded(added)]
    state = await store.search.add_reembedded([(row, LONGER) for row in rows])
    assert (state.name, state.dimension, state.target_name, state.done) == ("other", 16, None, 0)
    assert await store.search.reembed_batch(9) == []
    assert len(await store.search.vectors(OURS, [kept.id, changed.id, archived.id, added.id])) == 4
    assert len(await store.search.match(OURS, ["lake"], LIVE, 9)) == 3


async def test_after_the_switch_the_former_model_is_a_mismatch(store: Store) -> None:
    lone = memory("lone")
    await put(store, lone, vectors={lone.id: vector(1)})
    await store.search.begin_reembed("other", 8)
    await store.search.add_reembedded([(unembedded(lone), vector(0, 1))])
    with pytest.raises(EmbedderMismatch, match="other"):
        await store.search.nearest(OURS, vector(1), LIVE, 3)
    with pytest.raises(EmbedderMismatch):
        await put(store, memory("new", id="m_new"), vectors={"m_new": vector(1)})
    await put(store, memory("new without a vector"))
    with pytest.raises(EmbedderMismatch):
        await store.search.add_vectors([(row, vector(1)) for row in await store.search.pending(1)])
    assert sorted(await found(store, LIVE)) == ["lone", "new without a vector"]
    assert len(await store.search.match(OURS, ["lone"], LIVE, 3)) == 1


async def test_a_reembedding_is_ended_by_the_model_in_use_and_replaced_by_a_third(store: Store) -> None:
    lone = memory("lone")
    await put(store, lone, vectors={lone.id: vector(1)})
    await store.search.begin_reembed("other", 16)
    assert (await store.search.begin_reembed("third", 8)).target_name == "third"
    with pytest.raises(EmbedderMismatch):
        await store.search.add_reembedded([(unembedded(lone), LONGER)])
    assert (await store.search.begin_reembed("fake-words", 8)).target_name is None
    assert await store.search.reembed_batch(3) == []
    with pytest.raises(EmbedderMismatch):
        await store.search.add_reembedded([])
    assert len(await store.search.nearest(OURS, vector(1), LIVE, 3)) == 1


async def test_a_reembedding_of_a_file_without_vectors_is_done_at_once(store: Store) -> None:
    await put(store, memory("pending"))
    state = await store.search.begin_reembed("other", 16)
    assert (state.name, state.dimension, state.target_name) == ("other", 16, None)


@pytest.mark.parametrize("opening", STORES.values(), ids=STORES)
async def test_a_reembedding_goes_on_after_the_store_was_opened_again(tmp_path: Path, opening) -> None:
    store = await opening(tmp_path)
    many = [memory(f"n{n}") for n in range(3)]
    await put(store, *many, vectors={each.id: vector(1) for each in many})
    await store.search.begin_reembed("other", 16)
    await store.search.add_reembedded([(unembedded(many[0]), LONGER)])
    await store.control.close()
    store = await opening(tmp_path)
    state = await store.search.embedding()
    assert (state.name, state.target_name, state.done, state.total) == ("fake-words", "other", 1, 3)
    assert len(await store.search.nearest(OURS, vector(1), LIVE, 9)) == 3
    await store.control.close()


async def test_however_many_tags_are_asked_for_a_memory_must_carry_all_of_them(store: Store) -> None:
    many = tuple(f"tag {number}" for number in range(3000))
    await put(store, memory("all", tags=many), memory("all but one", tags=many[1:]), memory("none"))
    assert await found(store, replace(LIVE, tags=many)) == ["all"]
    assert sorted(await found(store, replace(LIVE, tags=many[1:2000]))) == ["all", "all but one"]
    assert await found(store, replace(LIVE, tags=("\ud800", *many))) == []
    assert await store.search.match(OURS, ["all"], replace(LIVE, tags=many), 9)
