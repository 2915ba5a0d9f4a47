"""What `recall` finds, filters, withholds and pages."""

import json
from collections.abc import Awaitable
from datetime import timedelta

import pytest

from middleout_mcp.app import App
from middleout_mcp.budget import count_tokens
from middleout_mcp.errors import InvalidInput, NotFound, NotSupportedYet
from middleout_mcp.memory.contract import ForgetIn, MemoryIn, OpenIn, RecallIn, RememberIn, TurnIn
from middleout_mcp.records import Caller
from middleout_mcp.server.render import recalled
from tests.fakes import FakeClock

pytestmark = pytest.mark.anyio


async def file(app: App, caller: Caller, *memories: str | MemoryIn, **more: object) -> list[str]:
    done = await app.remember(caller, RememberIn(memories=list(memories), **more))  # type: ignore[arg-type]
    return [result.id or "" for result in done.results]


async def texts(app: App, caller: Caller, **arguments: object) -> list[str]:
    found = await app.recall(caller, RecallIn(**arguments))  # type: ignore[arg-type]
    return [item.text for item in found.items]


async def test_the_best_match_comes_first(app: App, caller: Caller) -> None:
    await file(app, caller, "The red bicycle is in the shed.", "The car is in the garage.", "Soup needs salt.")
    assert (await texts(app, caller, query="red bicycle shed"))[0] == "The red bicycle is in the shed."


async def test_an_unrelated_query_gets_an_empty_answer_that_counts_what_was_below_the_floor(
    app: App, caller: Caller
) -> None:
    await file(app, caller, "The red bicycle is in the shed.")
    found = await app.recall(caller, RecallIn(query="quarterly tax return"))
    assert (found.items, found.below_floor) == ([], 1)
    shown = await app.recall(caller, RecallIn(query="quarterly tax return", include=["below_floor"]))
    assert (len(shown.items), shown.below_floor) == (1, 0)


# CASE 25
@pytest.mark.parametrize(
    "query",
    [
        '"',
        "'",
        "a AND OR NOT",
        "NEAR(a b, 2)",
        "col:val*",
        "^(x)",
        "{}[]",
        "-minus +plus",
        "%_;--",
        "\x00",
        "🙂",
        "東京",
    ],
)
async def test_no_character_of_a_query_acts_as_an_operator(app: App, caller: Caller, query: str) -> None:
    await file(app, caller, "Plain words about a lake.")
    await app.recall(caller, RecallIn(query=query + " lake"))
    assert await texts(app, caller, query=f"plain words lake {query}") == ["Plain words about a lake."]


async def test_an_empty_query_is_refused_and_no_query_is_the_brief(app: App, caller: Caller) -> None:
    with pytest.raises(InvalidInput, match="leave it out"):
        await app.recall(caller, RecallIn(query="  "))
    assert (await app.recall(caller, RecallIn())).items == []


async def test_the_brief_has_pins_then_tasks_due_then_preferences_then_the_newest(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    await file(app, caller, MemoryIn(text="Likes tea.", kind="preference"))
    await file(app, caller, MemoryIn(text="Allergic to nuts.", pinned=True))
    await file(app, caller, MemoryIn(text="Paint the fence.", kind="task", due="in 30 days"))
    await file(app, caller, MemoryIn(text="Call the bank.", kind="task", due="in 2 days"))
    clock.advance(minutes=1)
    await file(app, caller, "It rained.")
    assert await texts(app, caller) == [
        "Allergic to nuts.",
        "Call the bank.",
        "Likes tea.",
        "Paint the fence.",
        "It rained.",
    ]


async def test_filters_by_kind_tag_scope_thread_and_time_are_applied_before_the_cut(app: App, caller: Caller) -> None:
    crowd = [MemoryIn(text=f"Garden note {number}", at="2026-01-01") for number in range(300)]
    await file(app, caller, *crowd)
    await file(app, caller, MemoryIn(text="Garden gate", kind="decision", tags=["home"], at="2025-03-02"), thread="t9")
    await file(app, caller, MemoryIn(text="Garden of Atlas", scope="atlas", at="2025-12-31"))
    assert await texts(app, caller, query="garden", kinds=["decision"]) == ["Garden gate"]
    assert await texts(app, caller, query="garden", tags=["home"]) == ["Garden gate"]
    assert await texts(app, caller, query="garden", thread="t9") == ["Garden gate"]
    assert await texts(app, caller, query="garden", until="2025-03-02") == ["Garden gate"]
    assert await texts(app, caller, query="garden", since="2025-03-02", until="2025-03-02") == ["Garden gate"]
    first_of_atlas, *others = await texts(app, caller, query="garden of atlas", scope="atlas")
    assert first_of_atlas == "Garden of Atlas"
    assert others  # what has no scope holds in every one
    assert "Garden of Atlas" not in await texts(app, caller, query="garden atlas", scope="other", limit=400)
    found = await texts(app, caller, query="garden", scope="atlas", since="2025-12-01", until="2025-12-31")
    assert found == ["Garden of Atlas"]
    assert await texts(app, caller, query="garden", scope="other", since="2025-12-01", until="2025-12-31") == []


async def test_unknown_kinds_and_bad_times_are_refused_with_the_mend(app: App, caller: Caller) -> None:
    with pytest.raises(InvalidInput, match="event, fact"):
        await app.recall(caller, RecallIn(query="x y", kinds=["thought"]))
    with pytest.raises(InvalidInput, match="since"):
        await app.recall(caller, RecallIn(query="x y", since="2026-02-30"))


@pytest.mark.parametrize("arguments", [{"viewpoint": "task"}, {"holder": "Bob"}, {"include": ["discarded"]}])
async def test_what_is_not_supported_yet_is_said_and_not_ignored(app: App, caller: Caller, arguments: dict) -> None:
    with pytest.raises(NotSupportedYet, match="not supported yet"):
        await app.recall(caller, RecallIn(query="anything", **arguments))


async def test_results_fit_the_token_budget_and_a_long_memory_does_not_crowd_out_the_rest(
    app: App, caller: Caller
) -> None:
    long = "The harbour story. " + "A very long tale of ships and weather goes on. " * 400
    await file(app, caller, long, *(f"Harbour fact {number}" for number in range(5)))
    found = await app.recall(caller, RecallIn(query="harbour story fact", max_tokens=1200))
    assert len(found.items) == 6
    assert count_tokens(json.dumps(found.model_dump(mode="json", exclude_none=True))) <= 1300
    cut = next(item for item in found.items if item.text.startswith("The harbour story"))
    assert cut.text.endswith("…") and cut.pointers is not None
    assert cut.pointers[0].id == cut.id and cut.pointers[0].tokens > 600


async def test_a_text_that_is_cut_is_marked_and_the_answer_says_that_it_is_not_whole(app: App, caller: Caller) -> None:
    await file(
        app, caller, "The harbour story. " + "A very long tale of ships and weather goes on. " * 400, "Harbour story."
    )
    found = await app.recall(caller, RecallIn(query="harbour story"))
    assert [item.marks for item in found.items] == [["weak"], ["weak", "cut"]]
    assert (found.truncated, found.cursor) == (True, None)
    assert "weak, cut]" in recalled(found)
    assert "open_episode shows the whole of what is marked cut" in recalled(found)
    (short,) = (await app.recall(caller, RecallIn(query="harbour story", limit=1, max_tokens=10_000))).items
    assert short.marks == ["weak"]
    whole = await app.recall(caller, RecallIn(query="harbour story", max_tokens=10_000))
    assert not whole.truncated


async def test_a_range_that_ends_before_it_begins_and_an_unknown_thread_are_refused(app: App, caller: Caller) -> None:
    await file(app, caller, "Harbour.", thread="talk")
    with pytest.raises(InvalidInput, match="since is later than until"):
        await app.recall(caller, RecallIn(query="harbour", since="2025-06-01", until="2025-05-31"))
    await app.recall(caller, RecallIn(query="harbour", since="2025-06-01", until="2025-06-01"))
    with pytest.raises(InvalidInput, match="no such thread here"):
        await app.recall(caller, RecallIn(query="harbour", thread="tale"))
    assert await texts(app, caller, query="harbour", thread=" talk\n") == ["Harbour."]


async def test_a_cursor_turns_the_pages_without_gap_or_repetition(app: App, caller: Caller) -> None:
    await file(app, caller, *(f"Ledger entry {number}" for number in range(30)))
    seen: list[str] = []
    cursor = None
    while True:
        found = await app.recall(caller, RecallIn(query="ledger entry", limit=7, cursor=cursor))
        seen += [item.id for item in found.items]
        cursor = found.cursor
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 30


async def test_a_cursor_of_another_query_and_an_invented_one_are_refused(app: App, caller: Caller) -> None:
    await file(app, caller, *(f"Ledger entry {number}" for number in range(30)))
    cursor = (await app.recall(caller, RecallIn(query="ledger entry"))).cursor
    with pytest.raises(InvalidInput, match="other arguments"):
        await app.recall(caller, RecallIn(query="ledger", cursor=cursor))
    with pytest.raises(InvalidInput, match="unknown or has expired"):
        await app.recall(caller, RecallIn(query="ledger entry", cursor="r_000000000"))


async def test_private_memories_are_seen_by_their_agent_only(app: App, caller: Caller) -> None:
    other = app.caller("another-client", "process-2")
    ids = await file(app, caller, MemoryIn(text="The diary is under the bed.", privacy="private"))
    assert await texts(app, caller, query="diary bed") == ["The diary is under the bed."]
    found = await app.recall(other, RecallIn(query="diary bed"))
    assert (found.items, found.below_floor, found.withheld) == ([], 0, None)
    with pytest.raises(NotFound):
        await app.forget(other, ForgetIn(ids=ids))
    for call in (RememberIn(memories=[MemoryIn(id=ids[0], pinned=True)]), RememberIn(used=ids), RememberIn(wrong=ids)):
        with pytest.raises(NotFound):
            await app.remember(other, call)
    with pytest.raises(NotFound):
        await app.recall(other, RecallIn(query="diary", used=ids))


async def test_sensitive_memories_are_counted_and_withheld_with_the_reason(app: App, caller: Caller) -> None:
    await file(app, caller, MemoryIn(text="The diagnosis was made in May.", privacy="sensitive"))
    found = await app.recall(caller, RecallIn(query="diagnosis May", purpose="care plan"))
    assert found.items == []
    assert found.withheld is not None and found.withheld[0].count == 1
    assert "MIDDLEOUT_SENSITIVE_RECALL" in found.withheld[0].reason


async def test_as_of_shows_what_was_valid_then(app: App, caller: Caller, clock: FakeClock) -> None:
    old, new = await file(
        app,
        caller,
        MemoryIn(text="Office in Riga.", at="2025-01-01"),
        MemoryIn(text="Office in Oslo.", at="2025-06-01"),
    )
    assert await texts(app, caller, query="office", as_of="2025-03-01") == ["Office in Riga."]
    await app.forget(caller, ForgetIn(ids=[old, new], action="merge"))
    clock.advance(days=1)
    assert len(await texts(app, caller, query="office")) == 1


async def test_demoted_memories_rank_lower_until_they_are_used(app: App, caller: Caller) -> None:
    first, second = await file(app, caller, "Blue kite in the hall.", "Blue kite in the attic.")
    await app.forget(caller, ForgetIn(ids=[first], action="demote"))
    found = (await app.recall(caller, RecallIn(query="blue kite in the hall"))).items
    assert [item.id for item in found] == [second, first]
    found = (await app.recall(caller, RecallIn(query="blue kite in the hall", used=[first]))).items
    assert [item.id for item in found] == [first, second]


async def test_being_recalled_counts_once_a_session_and_opening_counts_more(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    ids = await file(app, caller, "Yellow submarine.")
    store = (await app.parts()).store

    async def use_after(*calls: Awaitable[object]) -> float:
        for call in calls:
            await call
            clock.advance(minutes=1)
        await app.settled()
        return (await store.memories.get(caller.grant, ids))[0].use

    recalls = [app.recall(caller, RecallIn(query="yellow submarine")) for _ in range(3)]
    assert await use_after(*recalls) == pytest.approx(0.2)
    opens = [app.open_episode(caller, OpenIn(id=ids[0])) for _ in range(3)]
    assert await use_after(*opens) == pytest.approx(1.0)
    assert await use_after(app.recall(caller, RecallIn(query="yellow submarine", used=ids))) == pytest.approx(1.0)
    clock.advance(minutes=31)  # the next session
    assert await use_after(app.recall(caller, RecallIn(query="yellow submarine"))) == pytest.approx(1.2)
    assert await use_after(app.recall(caller, RecallIn(query="anything", used=ids))) == pytest.approx(2.0)


async def test_suppressed_memories_return_in_the_next_session(app: App, caller: Caller, clock: FakeClock) -> None:
    ids = await file(app, caller, "Loud music at night.")
    await app.forget(caller, ForgetIn(ids=ids, action="suppress"))
    assert await texts(app, caller, query="loud music") == []
    clock.advance(minutes=31)
    assert await texts(app, caller, query="loud music") == ["Loud music at night."]


async def test_suppressed_until_a_time_hides_exactly_until_then(app: App, caller: Caller, clock: FakeClock) -> None:
    ids = await file(app, caller, "Loud music at night.")
    await app.forget(caller, ForgetIn(ids=ids, action="suppress", until="in 10 minutes"))
    clock.advance(timedelta(minutes=10) - timedelta(milliseconds=1))
    assert await texts(app, caller, query="loud music") == []
    clock.advance(milliseconds=1)
    assert await texts(app, caller, query="loud music") == ["Loud music at night."]


async def test_items_carry_date_source_marks_and_the_price_of_their_episode(app: App, caller: Caller) -> None:
    turns = [TurnIn(role="user", text="We sail to Gotland on Friday.", at="2026-05-04T10:00:00Z")]
    await app.remember(caller, RememberIn(messages=turns, thread="sea"))
    item = (await app.recall(caller, RecallIn(query="sail Gotland"))).items[0]
    assert (item.at, item.source, item.thread, item.marks) == ("2026-05-04T10:00:00Z", "user", "sea", None)
    assert item.pointers is not None and item.pointers[0].id == item.episode_id
    assert item.pointers[0].tokens > 0


async def test_a_refused_recall_notes_no_use(app: App, caller: Caller) -> None:
    ids = await file(app, caller, "Yellow submarine.")
    await app.forget(caller, ForgetIn(ids=ids, action="demote"))
    with pytest.raises(InvalidInput):
        await app.recall(caller, RecallIn(query="submarine", used=ids, since="32 May"))
    stored = (await (await app.parts()).store.memories.get(caller.grant, ids))[0]
    assert (stored.use, stored.demoted) == (0.0, True)
