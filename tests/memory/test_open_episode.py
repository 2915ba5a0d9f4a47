"""Opening every kind of pointer, page by page."""

import json

import pytest

from middleout_mcp.app import App
from middleout_mcp.budget import count_tokens
from middleout_mcp.errors import InvalidInput, NotFound
from middleout_mcp.memory.contract import CompressIn, ForgetIn, OpenIn, RecallIn, RememberIn, TurnIn
from middleout_mcp.records import Caller
from tests.fakes import FakeClock
from tests.memory.test_recall import file

pytestmark = pytest.mark.anyio


def turn(text: str) -> TurnIn:
    return TurnIn(role="user", text=text)


async def stretches(app: App, caller: Caller, count: int, thread: str = "t") -> list[str]:
    """Ids of `count` episodes of one turn each."""
    ids = []
    for number in range(1, count + 1):
        call = RememberIn(messages=[turn(f"Chapter {number} is about hill {number}.")], thread=thread)
        done = await app.remember(caller, call)
        assert done.episode is not None
        ids.append(done.episode.id)
    return ids


async def test_a_long_turn_is_paged_verbatim_without_losing_a_character(app: App, caller: Caller) -> None:
    text = "".join(f"Sentence {number} has a comma, and ends here. " for number in range(700)).strip()
    done = await app.remember(caller, RememberIn(messages=[turn("First."), turn(text), turn("Last.")], thread="t"))
    assert done.episode is not None
    parts: dict[int, str] = {}
    cursor, pages = None, 0
    while True:
        page = await app.open_episode(caller, OpenIn(id=done.episode.id, cursor=cursor, max_tokens=500))
        for shown in page.turns or []:
            parts[shown.seq] = parts.get(shown.seq, "") + shown.text
        pages += 1
        cursor = page.cursor
        assert page.truncated == (cursor is not None)
        if cursor is None:
            break
    assert parts == {1: "First.", 2: text, 3: "Last."}
    assert pages > 5


async def test_a_long_memory_is_paged_verbatim_too(app: App, caller: Caller) -> None:
    text = "word " * 5000 + "end"
    (memory_id,) = await file(app, caller, text)
    shown, cursor = "", None
    while True:
        page = await app.open_episode(caller, OpenIn(id=memory_id, cursor=cursor))
        shown += page.text or ""
        cursor = page.cursor
        if cursor is None:
            break
    assert shown == text


@pytest.mark.parametrize("cursor", ["", "x", "t-1.0", "t1", "t99999999.0", "t1.999999999x"])
async def test_a_cursor_that_is_none_is_refused(app: App, caller: Caller, cursor: str) -> None:
    (episode,) = await stretches(app, caller, 1)
    with pytest.raises(InvalidInput, match="cursor"):
        await app.open_episode(caller, OpenIn(id=episode, cursor=cursor))


@pytest.mark.parametrize(
    "target", ["m_000000000", "e_000000000", "g_000000000", "run_00000000", "op_0", "r_0", "zz", ""]
)
async def test_unknown_ids_are_answered_in_the_same_words(app: App, caller: Caller, target: str) -> None:
    with pytest.raises(NotFound, match="there is nothing"):
        await app.open_episode(caller, OpenIn(id=target))


async def test_the_buffer_is_empty_while_everything_is_in_view(app: App, caller: Caller) -> None:
    await stretches(app, caller, 5)
    opened = await app.open_episode(caller, OpenIn())
    assert opened.buffer is None


async def test_the_buffer_shows_the_first_and_the_latest_stretches_and_a_gap_that_opens(
    app: App, caller: Caller
) -> None:
    ids = await stretches(app, caller, 40)
    opened = await app.open_episode(caller, OpenIn(thread="t", visible_from="38"))
    assert opened.buffer is not None
    lines = [line for line in opened.buffer if line.gap is None]
    assert [line.id for line in lines] == [ids[0], *ids[26:37]]
    gap = opened.buffer[1]
    assert gap.gap == 25
    shown: list[str] = []
    cursor = None
    while True:
        inside = await app.open_episode(caller, OpenIn(id=gap.id, cursor=cursor, max_tokens=200))
        shown += [line.id for line in inside.buffer or []]
        cursor = inside.cursor
        if cursor is None:
            break
    assert shown[:25] == ids[1:26]


async def test_in_a_new_session_nothing_counts_as_visible(app: App, caller: Caller, clock: FakeClock) -> None:
    ids = await stretches(app, caller, 3)
    clock.advance(hours=1)
    opened = await app.open_episode(caller, OpenIn())
    assert opened.buffer is not None and [line.id for line in opened.buffer] == ids


async def test_a_line_goes_with_its_archived_stretch(app: App, caller: Caller, clock: FakeClock) -> None:
    ids = await stretches(app, caller, 3)
    await app.forget(caller, ForgetIn(ids=[ids[1]]))
    clock.advance(hours=1)
    opened = await app.open_episode(caller, OpenIn(thread="t"))
    assert opened.buffer is not None and [line.id for line in opened.buffer] == [ids[0], ids[2]]


async def test_an_unknown_thread_is_refused_and_no_thread_at_all_is_said(app: App, caller: Caller) -> None:
    assert (await app.open_episode(caller, OpenIn())).text is not None
    with pytest.raises(InvalidInput, match="no such thread"):
        await app.open_episode(caller, OpenIn(thread="nowhere"))


async def test_the_context_has_the_buffer_and_then_the_newest_turns(app: App, caller: Caller) -> None:
    ids = await stretches(app, caller, 15)
    opened = await app.open_episode(caller, OpenIn(id="context", thread="t"))
    assert opened.buffer is not None and [line.id for line in opened.buffer] == ids[:5]
    assert opened.turns is not None and [shown.seq for shown in opened.turns] == list(range(6, 16))


async def test_stats_count_and_name_the_newest_operations(app: App, caller: Caller) -> None:
    await file(app, caller, "One.", "Two.")
    opened = await app.open_episode(caller, OpenIn(id="stats"))
    assert opened.details is not None
    assert opened.details["memories"]["live"] == 2
    assert opened.details["operations"][0]["kind"] == "remember"
    assert opened.details["operations"][0]["undoable"] is True


async def test_a_run_and_an_operation_open(app: App, caller: Caller) -> None:
    done = await app.remember(caller, RememberIn(memories=["One."]))
    planned = await app.compress(caller, CompressIn())
    assert (await app.open_episode(caller, OpenIn(id=planned.run_id))).type == "run"
    opened = await app.open_episode(caller, OpenIn(id=done.operation_id))
    assert opened.type == "operation"
    assert opened.memories is not None and [item.text for item in opened.memories] == ["One."]


async def test_every_memory_of_a_long_episode_is_on_one_of_its_pages_within_the_budget(
    app: App, caller: Caller
) -> None:
    texts = [f"Report {number}: " + f"the figure of unit {number} went up again. " * 12 for number in range(60)]
    done = await app.remember(caller, RememberIn(messages=[turn(text) for text in texts], thread="t"))
    assert done.episode is not None
    seen: list[str] = []
    cursor = None
    while True:
        page = await app.open_episode(caller, OpenIn(id=done.episode.id, cursor=cursor))
        assert count_tokens(json.dumps(page.model_dump(mode="json", exclude_none=True))) < 2_300
        seen += [item.id for item in page.memories or []]
        assert "memories_not_listed" not in (page.details or {})
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(seen) == sorted(result.id or "" for result in done.results)


async def test_the_smallest_budget_still_moves_on(app: App, caller: Caller) -> None:
    await file(app, caller, *(f"Letter {number} " + "tells a long story. " * 60 for number in range(5)))
    seen: list[str] = []
    cursor = None
    while True:
        found = await app.recall(caller, RecallIn(query="letter story", max_tokens=100, cursor=cursor))
        assert len(found.items) == 1
        seen += [item.id for item in found.items]
        cursor = found.cursor
        if cursor is None:
            break
    assert len(set(seen)) == 5


async def test_a_gap_opens_to_exactly_the_stretches_it_counted(app: App, caller: Caller) -> None:
    await stretches(app, caller, 40)
    for visible_from in ("40", "30", "20"):
        opened = await app.open_episode(caller, OpenIn(thread="t", visible_from=visible_from))
        assert opened.buffer is not None
        gap = opened.buffer[1]
        inside = await app.open_episode(caller, OpenIn(id=gap.id, max_tokens=10_000))
        assert inside.details is not None and inside.details["stretches"] == gap.gap
        listed = [line.id for line in opened.buffer if line.gap is None]
        assert not {line.id for line in inside.buffer or []} & set(listed)


async def test_the_buffer_keeps_to_the_tokens_it_is_given(app: App, caller: Caller) -> None:
    await stretches(app, caller, 40)
    lengths = {}
    for budget in (100, 200, 10_000):
        opened = await app.open_episode(caller, OpenIn(thread="t", visible_from="40", max_tokens=budget))
        cost = sum(count_tokens(line.line) + 12 for line in opened.buffer or [])
        assert cost <= min(budget, 600)
        lengths[budget] = len(opened.buffer or [])
    assert 3 <= lengths[100] < lengths[200] < lengths[10_000] == 13
