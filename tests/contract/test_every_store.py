"""What `ports.py` promises, for every store alike. A new store joins by one line in `builders.STORES`."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from middleout_mcp.errors import Conflict, EmbedderMismatch, InvalidInput, NotFound
from middleout_mcp.ports import Store
from middleout_mcp.records import Filter, Grant, Kind, Privacy, Run, Status, TaskState, Use, new_id
from tests.contract.builders import (
    LIVE,
    NOW,
    OURS,
    STORES,
    THEIRS,
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


async def test_a_memory_comes_back_as_it_was_given(store: Store) -> None:
    given = memory(
        "Ann's key 🗝 lies at 東京",
        kind=Kind.TASK,
        tags=("home", "key"),
        key="place",
        value="drawer",
        scope="flat",
        known_by=("Bob>Alice",),
        state=TaskState.OPEN,
        due=later(days=3),
        expires_at=later(days=9),
        turns=(1, 2),
        parents=("m_x",),
        pinned=True,
        ref="crm/1",
    )
    await put(store, given, vectors={given.id: vector(1)})
    assert await store.memories.get(OURS, [given.id]) == [replace(given, embedded=True)]


async def test_get_keeps_the_order_asked_for_and_leaves_unknown_ids_out(store: Store) -> None:
    first, second = memory("one"), memory("two")
    await put(store, first, second)
    got = await store.memories.get(OURS, [second.id, "m_unknown", first.id, second.id])
    assert [each.text for each in got] == ["two", "one"]


async def test_a_new_state_becomes_the_next_version_and_the_old_one_is_kept(store: Store) -> None:
    old = memory("Tea at 3")
    await put(store, old)
    await put(store, replace(old, text="Tea at 4", version=2))
    assert [each.text for each in await store.memories.versions(OURS, old.id)] == ["Tea at 3", "Tea at 4"]
    assert await store.memories.versions(OURS, "m_unknown") == []


async def test_a_change_on_an_outdated_version_is_a_conflict_and_writes_nothing_of_its_call(store: Store) -> None:
    old, bystander = memory("Tea at 3"), memory("bystander")
    await put(store, old)
    await put(store, replace(old, text="Tea at 4", version=2))
    with pytest.raises(Conflict):
        await put(store, bystander, replace(old, text="Tea at 5", version=2))
    assert await store.memories.get(OURS, [bystander.id]) == []
    assert (await store.memories.get(OURS, [old.id]))[0].text == "Tea at 4"


async def test_a_memory_of_another_namespace_cannot_be_written(store: Store) -> None:
    with pytest.raises(InvalidInput):
        await put(store, memory("x", THEIRS))


async def test_references_are_unique_and_found_in_the_written_namespace_only(store: Store) -> None:
    await put(store, memory("ours", ref="a"))
    await put(store, memory("theirs", THEIRS, ref="a"), grant=THEIRS)
    both = Grant("ours", ("ours", "theirs"))
    assert {ref: each.text for ref, each in (await store.memories.by_ref(both, ["a", "b"])).items()} == {"a": "ours"}
    with pytest.raises(Conflict):
        await put(store, memory("again", ref="a"))


async def test_equal_texts_are_found_whatever_their_case_spacing_and_composition(store: Store) -> None:
    await put(store, memory("Caf\u00e9  au Lait"), memory("archived", status=Status.ARCHIVED))
    same = await store.memories.same_text(OURS, ["cafe\u0301 AU lait", "archived", "unknown"])
    assert {text: len(each) for text, each in same.items()} == {"cafe\u0301 AU lait": 1}


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
async def test_every_condition_narrows_a_listing(store: Store, condition: dict, texts: list[str]) -> None:
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


async def test_listings_are_ordered_and_paged(store: Store) -> None:
    for number in range(5):
        fields = {"at": later(hours=number), "importance": number / 10, "due": later(days=-number)}
        await put(store, memory(f"m{number}", updated_at=later(minutes=-number), **fields))

    async def order(by: str) -> list[str]:
        return [each.text for each in await store.memories.find(OURS, LIVE, limit=3, order=by)]

    assert await order("at") == ["m4", "m3", "m2"]
    assert await order("updated") == ["m0", "m1", "m2"]
    assert await order("importance") == ["m4", "m3", "m2"]
    assert await order("due") == ["m4", "m3", "m2"]
    assert [each.text for each in await store.memories.find(OURS, LIVE, limit=3, offset=3)] == ["m1", "m0"]


async def test_an_expired_memory_is_gone_from_its_first_millisecond_and_counts_as_expired(store: Store) -> None:
    await put(store, memory("brief", expires_at=later(hours=1)))
    just_before = replace(LIVE, now=later(hours=1) - timedelta(milliseconds=1))
    at_the_time = replace(LIVE, now=later(hours=1))
    assert await found(store, just_before) == ["brief"]
    assert await found(store, at_the_time) == []
    assert await found(store, replace(at_the_time, statuses=(Status.EXPIRED,))) == ["brief"]


@pytest.mark.parametrize(
    ("fields", "when"),
    [
        ({"ended_at": NOW}, NOW),
        ({}, later(minutes=30)),
        ({"last_at": later(hours=8)}, later(hours=8)),
        ({"turns": 200}, NOW),
    ],
)
async def test_a_memory_for_a_session_lapses_when_that_session_is_over(store: Store, fields: dict, when) -> None:
    running = session()
    await put(store, memory("for now", expires_session=running.id), session=running)
    assert await found(store, LIVE) == ["for now"]
    await store.threads.save_session(OURS, replace(running, **fields))
    assert await found(store, replace(LIVE, now=when)) == []
    assert await found(store, replace(LIVE, now=when, ended_sessions=False)) == ["for now"]


async def test_suppression_privacy_and_sensitivity_hide_from_whom_they_should(store: Store) -> None:
    await put(
        store,
        memory("until noon", suppressed_until=later(minutes=1)),
        memory("in session", suppressed_in="s_1"),
        memory("diary", privacy=Privacy.PRIVATE),
        memory("illness", privacy=Privacy.SENSITIVE),
    )
    assert sorted(await found(store, LIVE)) == ["diary", "in session"]
    assert await found(store, replace(LIVE, agent="bob", suppressed_in=("s_1",))) == []
    assert sorted(await found(store, replace(LIVE, now=later(minutes=1), sensitive=True, agent="ann"))) == [
        "diary",
        "illness",
        "in session",
        "until noon",
    ]


async def test_as_of_shows_what_held_then_and_no_merged_copy(store: Store) -> None:
    past = {"valid_from": later(days=-9), "valid_to": later(days=-2), "status": Status.SUPERSEDED}
    await put(
        store,
        memory("blue", **past),
        memory("copy", merged_into="m_x", **past),
        memory("green", valid_from=later(days=-2)),
    )
    assert await found(store, replace(LIVE, as_of=later(days=-3))) == ["blue"]
    assert await found(store, replace(LIVE, as_of=NOW)) == ["green"]


async def test_turns_are_appended_without_a_gap_or_not_at_all(store: Store) -> None:
    await put(store, turns=(turn(1, "one", data={"a": [1]}, present=("Bob",)), turn(2, "two")))
    for wrong in ((turn(2, "again"),), (turn(4, "gap"),)):
        with pytest.raises(Conflict):
            await put(store, turns=wrong)
    await put(store, turns=(turn(3, "three"),))
    assert [each.text for each in await store.threads.turns(OURS, "t")] == ["one", "two", "three"]
    assert [each.seq for each in await store.threads.turns(OURS, "t", first=2, last=3, limit=1)] == [2]
    assert [each.seq for each in await store.threads.tail(OURS, "t", 2)] == [2, 3]
    assert (await store.threads.turns(OURS, "t"))[0].data == {"a": [1]}
    thread = await store.threads.thread(OURS, "t")
    assert thread is not None
    assert (thread.turns, thread.agent) == (3, "ann")


async def test_threads_of_two_namespaces_with_one_name_are_two(store: Store) -> None:
    await put(store, turns=(turn(1, "ours"),))
    await put(store, grant=THEIRS, turns=(turn(1, "theirs"),))
    assert [each.text for each in await store.threads.turns(THEIRS, "t")] == ["theirs"]
    latest = await store.threads.latest_thread(OURS, "ann")
    assert latest is not None
    assert latest.namespace == "ours"
    assert await store.threads.latest_thread(OURS, "nobody") is None


async def test_an_episode_is_found_by_id_thread_and_key_and_overwritten_by_id(store: Store) -> None:
    second, first = episode(3, 4), episode(1, 2, memory_ids=("m_1",))
    await put(store, turns=tuple(turn(n, "x") for n in range(1, 5)), episodes=(second, first))
    assert await store.threads.episodes(OURS, "t") == [first, second]
    assert await store.threads.episode_by_key(OURS, "t", first.key) == first
    await put(store, episodes=(replace(first, line="Rewritten."),))
    assert [each.line for each in await store.threads.episode(OURS, [first.id, "e_unknown"])] == ["Rewritten."]
    assert await store.threads.episode_by_key(THEIRS, "t", first.key) is None


async def test_sessions_are_listed_newest_first_and_saved_again_by_id(store: Store) -> None:
    old, new = session(), session(last_at=later(minutes=5), agent="bob")
    for each in (old, new, replace(old, turns=7)):
        await store.threads.save_session(OURS, each)
    assert [each.id for each in await store.threads.sessions(OURS)] == [new.id, old.id]
    assert [each.turns for each in await store.threads.sessions(OURS, agent="ann")] == [7]
    assert await store.threads.sessions(THEIRS) == []


async def test_searches_filter_before_they_cut(store: Store) -> None:
    crowd = [memory(f"lake note {number}") for number in range(300)]
    rare = memory("lake gate", kind=Kind.DECISION)
    near = {each.id: vector(1, number / 1000) for number, each in enumerate(crowd)}
    await put(store, *crowd, rare, vectors={**near, rare.id: vector(0, 1)})
    decisions = replace(LIVE, kinds=(Kind.DECISION,))
    assert [hit.memory_id for hit in await store.search.nearest(OURS, vector(1), decisions, 5)] == [rare.id]
    assert [hit.memory_id for hit in await store.search.match(OURS, ["lake"], decisions, 5)] == [rare.id]


async def test_neighbours_come_by_cosine_and_ties_by_id(store: Store) -> None:
    twins = sorted([memory("a", id="m_b"), memory("b", id="m_a")], key=lambda each: each.id)
    far = memory("far", id="m_0")
    vectors = {each.id: vector(1, 1) for each in twins}
    await put(store, *twins, far, vectors={**vectors, far.id: vector(-1)})
    hits = await store.search.nearest(OURS, vector(1), LIVE, 10)
    assert [hit.memory_id for hit in hits] == ["m_a", "m_b", "m_0"]
    assert [round(hit.score, 3) for hit in hits] == [0.707, 0.707, -1.0]


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


async def test_pending_memories_take_a_vector_only_for_the_version_it_was_made_from(store: Store) -> None:
    old = memory("Tea at 3")
    await put(store, old)
    assert await store.search.pending(10) == [(old.id, 1, "Tea at 3")]
    await put(store, replace(old, text="Tea at 4", version=2))
    assert await store.search.add_vectors([(old.id, 1, vector(1))]) == 0
    assert await store.search.add_vectors([(old.id, 2, vector(1))]) == 1
    assert await store.search.vectors(OURS, [old.id]) == {old.id: vector(1)}
    assert await store.search.pending(10) == []
    await put(store, replace(old, text="Tea at 5", version=3))
    assert await store.search.vectors(OURS, [old.id]) == {}


async def test_a_vector_of_another_length_is_a_mismatch_and_a_broken_one_is_refused(store: Store) -> None:
    lone = memory("x")
    with pytest.raises(EmbedderMismatch, match="dimensions"):
        await put(store, lone, vectors={lone.id: vector(1) * 2})
    with pytest.raises(EmbedderMismatch):
        await store.search.nearest(OURS, vector(1)[:8], LIVE, 3)
    with pytest.raises(InvalidInput):
        await put(store, lone, vectors={lone.id: b"\x00\x00\xc0\x7f" * 8})
    assert await store.memories.get(OURS, [lone.id]) == []


async def test_a_reembedding_goes_on_where_it_stopped_and_switches_when_nothing_is_missing(store: Store) -> None:
    many = [memory(f"n{number}") for number in range(5)]
    await put(store, *many, vectors={each.id: vector(1) for each in many})
    longer = vector(1) * 2
    await store.search.begin_reembed("other", 16)
    batch = await store.search.reembed_batch(3)
    state = await store.search.add_reembedded([(memory_id, version, longer) for memory_id, version, _ in batch])
    assert (state.name, state.done, state.total) == ("fake-words", 3, 5)
    await put(store, memory("written meanwhile"))
    assert (await store.search.begin_reembed("other", 16)).done == 3
    while rows := await store.search.reembed_batch(2):
        state = await store.search.add_reembedded([(memory_id, version, longer) for memory_id, version, _ in rows])
    assert (state.name, state.dimension, state.target_name) == ("other", 16, None)
    assert set((await store.search.vectors(OURS, [each.id for each in many])).values()) == {longer}


async def test_undo_puts_back_archives_what_was_new_and_can_be_undone_itself(store: Store) -> None:
    old, new = memory("Tea at 3", tags=("a",)), memory("new")
    await put(store, old)
    done = await put(store, replace(old, text="Tea at 4", tags=("b",), version=2), new)
    undone = await store.journal.undo(OURS, done.id, operation(kind="restore"))
    assert undone.counts["restored"] == 2
    back, gone = await store.memories.get(OURS, [old.id, new.id])
    assert (back.text, back.tags, gone.status) == ("Tea at 3", ("a",), Status.ARCHIVED)
    with pytest.raises(InvalidInput, match="undone already"):
        await store.journal.undo(OURS, done.id, operation(kind="restore"))
    await store.journal.undo(OURS, undone.id, operation(kind="restore"))
    again, live = await store.memories.get(OURS, [old.id, new.id])
    assert (again.text, live.status) == ("Tea at 4", Status.LIVE)
    assert (await store.journal.undo(OURS, done.id, operation(kind="restore"))).counts["restored"] == 2


async def test_undo_leaves_alone_what_was_changed_again_and_finds_no_foreign_operation(store: Store) -> None:
    first, second = memory("one"), memory("two")
    done = await put(store, first, second)
    await put(store, replace(first, text="one!", version=2))
    with pytest.raises(NotFound):
        await store.journal.undo(THEIRS, done.id, operation(THEIRS, kind="restore"))
    undone = await store.journal.undo(OURS, done.id, operation(kind="restore"))
    assert (undone.counts["restored"], undone.counts["skipped"]) == (1, 1)
    assert (await store.memories.get(OURS, [first.id]))[0].text == "one!"


async def test_operations_are_listed_newest_first_and_by_memory(store: Store) -> None:
    one, two = memory("one"), memory("two")
    first, second = await put(store, one), await put(store, two)
    assert [each.id for each in await store.journal.operations(OURS)] == [second.id, first.id]
    assert [each.id for each in await store.journal.operations(OURS, memory_id=one.id)] == [first.id]
    assert await store.journal.operation(OURS, first.id) == first
    assert await store.journal.operation(THEIRS, first.id) is None


async def test_of_the_uses_of_a_session_the_greatest_counts_once(store: Store) -> None:
    used = memory("used")
    await put(store, used)
    for weight, place in ((0.2, "s1"), (0.2, "s1"), (1.0, "s1"), (0.2, "s1"), (0.2, "s2")):
        await store.journal.note_uses(OURS, [Use(memory_id=used.id, session=place, at=NOW, weight=weight)])
    await store.journal.note_uses(THEIRS, [Use(memory_id=used.id, session="s3", at=NOW, weight=1.0)])
    got = (await store.memories.get(OURS, [used.id]))[0]
    assert got.use == pytest.approx(1.2)
    assert (got.version, got.last_used_at) == (1, NOW)


async def test_erase_takes_everything_derived_and_blocks_the_way_back(store: Store) -> None:
    source = memory("secret plan", ref="r/1", thread="t", turns=(1,))
    member = memory("other member", summary_id="m_sum")
    summary = memory("sum", id="m_sum", kind=Kind.SUMMARY, parents=(source.id, member.id))
    above = memory("sum of sums", kind=Kind.SUMMARY, parents=("m_sum",))
    stretch = episode(1, 2, memory_ids=(source.id,))
    done = await put(
        store, source, member, summary, above, turns=(turn(1, "secret plan"), turn(2, "rain")), episodes=(stretch,)
    )
    run = Run(
        id=new_id("run"),
        namespace="ours",
        status="planned",
        target="middle",
        plan={"clusters": [[source.id, member.id]]},
        created_at=NOW,
        updated_at=NOW,
    )
    await store.control.save_run(OURS, run)
    erased = await store.memories.erase(OURS, [source.id], [], operation(kind="erase"))
    assert erased.complete
    assert (erased.memory_ids, set(erased.dropped_summaries)) == ((source.id,), {"m_sum", above.id})
    assert [each.summary_id for each in await store.memories.get(OURS, [source.id, member.id, "m_sum"])] == [None]
    assert [each.text for each in await store.threads.turns(OURS, "t")] == ["", "rain"]
    left = (await store.threads.episode(OURS, [stretch.id]))[0]
    assert (left.line, left.memory_ids) == ("", ())
    cleaned = await store.control.run(OURS, run.id)
    assert cleaned is not None
    assert cleaned.plan["clusters"] == [[member.id]]
    for back in (memory("again", id=source.id), memory("again", ref="r/1")):
        with pytest.raises(InvalidInput, match="erased"):
            await put(store, back)
    assert (await store.journal.undo(OURS, done.id, operation(kind="restore"))).counts["gone"] >= 1
    assert await store.memories.get(OURS, [source.id]) == []
    with pytest.raises(InvalidInput):
        await store.journal.undo(OURS, erased.operation.id, operation(kind="restore"))


async def test_an_erased_episode_takes_its_turns_and_memories_and_never_opens_again(store: Store) -> None:
    filed = memory("filed", thread="t", turns=(2,))
    stretch = episode(1, 2, memory_ids=(filed.id,))
    await put(store, filed, turns=(turn(1, "one"), turn(2, "two"), turn(3, "three")), episodes=(stretch,))
    await store.memories.erase(OURS, [], [stretch.id], operation(kind="erase"))
    assert await store.threads.episode(OURS, [stretch.id]) == []
    assert await store.threads.episodes(OURS, "t") == []
    assert await store.memories.get(OURS, [filed.id]) == []
    assert [each.text for each in await store.threads.turns(OURS, "t")] == ["", "", "three"]


async def test_erase_of_an_unknown_or_foreign_id_changes_nothing(store: Store) -> None:
    mine, foreign = memory("mine"), memory("foreign", THEIRS)
    await put(store, mine)
    await put(store, foreign, grant=THEIRS)
    for target in (foreign.id, "m_unknown"):
        with pytest.raises(NotFound):
            await store.memories.erase(OURS, [mine.id, target], [], operation(kind="erase"))
    assert len(await store.memories.get(OURS, [mine.id])) == 1
    assert len(await store.memories.get(THEIRS, [foreign.id])) == 1


async def test_rewrite_leaves_no_earlier_version_and_no_way_back(store: Store) -> None:
    old = memory("Call Zed at 3")
    await put(store, old, vectors={old.id: vector(1)})
    done = await put(store, replace(old, text="Call Zed at 4", version=2), turns=(turn(1, "Call Zed"),))
    clean = replace(old, text="Call [redacted] at 4", version=3, redacted=True)
    await store.memories.rewrite(OURS, [clean], [turn(1, "Call [redacted]")], [], operation(kind="redact"))
    assert [each.text for each in await store.memories.versions(OURS, old.id)] == ["Call [redacted] at 4"]
    assert [each.text for each in await store.threads.turns(OURS, "t")] == ["Call [redacted]"]
    assert await store.search.match(OURS, ["Zed"], LIVE, 5) == []
    assert await store.search.pending(5) == [(old.id, 3, "Call [redacted] at 4")]
    assert (await store.journal.undo(OURS, done.id, operation(kind="restore"))).counts["restored"] == 0


async def test_counts_and_runs_are_of_the_readable_namespaces(store: Store) -> None:
    await put(store, memory("one"), memory("two", status=Status.ARCHIVED), turns=(turn(1, "x"),))
    await put(store, memory("foreign", THEIRS), grant=THEIRS)
    counts = await store.memories.count(OURS)
    assert (counts["live"], counts["archived"], counts["pending"], counts["turns"]) == (1, 1, 2, 1)
    both = Grant("ours", ("ours", "theirs"))
    assert (await store.memories.count(both))["live"] == 2
    assert sorted(await found(store, LIVE, both)) == ["foreign", "one"]
    assert await found(store, LIVE, Grant.only("nobody")) == []


async def test_closing_twice_is_harmless_and_everything_is_there_when_opened_again(tmp_path: Path) -> None:
    for opening in STORES.values():
        opened = await opening(tmp_path)
        kept = memory("kept")
        await put(opened, kept)
        await opened.control.close()
        await opened.control.close()
        again = await opening(tmp_path)
        assert await found(again, Filter(now=NOW)) == ["kept"]
        await again.control.close()
