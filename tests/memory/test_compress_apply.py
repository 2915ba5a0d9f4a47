"""A run from the plan to the undo: what is hidden, found, opened, put back, and done again."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from middleout_mcp.app import App
from middleout_mcp.errors import InvalidInput, NotFound
from middleout_mcp.memory.contract import CompressIn, ForgetIn, MemoryIn, OpenIn, RecallIn, RememberIn
from middleout_mcp.records import Caller, Kind, Status
from tests.fakes import FakeClock, FakeClusterer
from tests.memory.compressing import (
    compress,
    converse,
    everything,
    file,
    hidden_behind_nothing,
    new_app,
    state,
    summaries,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(tmp_path: Path, clock: FakeClock):
    opened = new_app(tmp_path, clock)
    async with opened.running(scheduled=False):
        yield opened


async def undo(app: App, caller: Caller, operation_id: str) -> str:
    done = await app.forget(caller, ForgetIn(ids=[operation_id], action="restore"))
    assert done.operation_id is not None
    return done.operation_id


async def test_a_run_tells_its_progress_and_awaits_better_texts(app: App, caller: Caller, clock: FakeClock) -> None:
    await converse(app, caller, clock, 4)
    planned = await app.compress(caller, CompressIn())
    assert planned.status == "planned"
    before = await state(app, caller)
    again = await app.compress(caller, CompressIn(run_id=planned.run_id))
    assert again.status == "planned"
    assert await state(app, caller) == before
    started = await app.compress(caller, CompressIn(run_id=planned.run_id, dry_run=False))
    assert started.status == "running"
    await app.settled()
    done = await app.compress(caller, CompressIn(run_id=planned.run_id, max_tokens=10_000))
    assert done.status == "awaiting"
    assert done.report["applied"] == done.report["clusters"] == 3
    assert done.report["memories"] == 12
    sizes = done.report["compressed_bytes"]
    assert sizes["after"] < sizes["before"] / 2
    assert [cluster.texts is not None for cluster in done.clusters or ()] == [True] * 3


async def test_members_leave_recall_and_their_summary_is_found_instead(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    await converse(app, caller, clock, 4)
    done = await compress(app, caller)
    found = await app.recall(caller, RecallIn(query="boxes carried to the greenhouse", limit=50, max_tokens=10_000))
    members = {one for cluster in done.clusters or () for one in cluster.memories}
    assert members.isdisjoint(item.id for item in found.items)
    shown = [item for item in found.items if item.kind == Kind.SUMMARY]
    assert [item.represents for item in shown] == [4, 4, 4]
    assert all(item.pointers and item.pointers[0].id == item.id for item in shown)
    assert await hidden_behind_nothing(app, caller) == []


async def test_the_sentences_of_a_summary_stand_in_the_order_in_which_they_were_said(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    await converse(app, caller, clock, 3, turns=40)
    await compress(app, caller)
    for summary in await summaries(app, caller):
        boxes = [int(number) for number in re.findall(r"carried (\d+) boxes", summary.text)]
        assert len(boxes) > 3
        assert boxes == sorted(boxes)


async def test_what_a_summary_cannot_answer_is_answered_by_its_members(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    tagged = [
        MemoryIn(text=f"The {word} is painted green and stands by the gate of the old orchard wall.", tags=[word])
        for word in "abc"
    ]
    ids = await file(
        app,
        caller,
        *tagged,
        MemoryIn(text="The gate of the orchard is old, heavy and hangs a little lower each winter."),
        session="first",
        thread="gate",
    )
    await converse(app, caller, clock, 1)
    done = await compress(app, caller, target="thread:gate")
    assert done.report["applied"] == 1
    for arguments in ({"tags": ["a"]}, {"kinds": ["fact"]}, {"session": "first"}, {"until": "2026-01-01T00:30:00Z"}):
        found = await app.recall(caller, RecallIn(query="what is painted green", **arguments))
        assert found.items, arguments
    only = await app.recall(caller, RecallIn(query="what is painted green", tags=["a"]))
    assert [item.id for item in only.items] == ids[:1]


@pytest.mark.parametrize("budget", [100, 250, 700, 2000, 10_000])
async def test_a_summary_opens_to_exactly_its_sources_through_all_pages(
    app: App, caller: Caller, clock: FakeClock, budget: int
) -> None:
    await converse(app, caller, clock, 2, turns=30)
    await compress(app, caller)
    (summary,) = await summaries(app, caller)
    seen, text, cursor = [], "", None
    while True:
        page = await app.open_episode(caller, OpenIn(id=summary.id, cursor=cursor, max_tokens=budget))
        assert page.type == "summary"
        text += page.text or ""
        seen += [item.id for item in page.memories or ()]
        cursor = page.cursor
        if cursor is None:
            break
    assert tuple(seen) == summary.parents
    assert len(seen) == 30
    assert text == summary.text


async def test_restoring_the_operation_puts_everything_back_and_restoring_that_does_it_again(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    await converse(app, caller, clock, 5)
    before = await state(app, caller)
    done = await compress(app, caller)
    compressed = await state(app, caller)
    assert compressed != before
    operation = done.report["operation_id"]
    for _ in range(3):
        restored = await undo(app, caller, operation)
        assert await state(app, caller) == before
        assert await summaries(app, caller) == []
        assert (await app.compress(caller, CompressIn(run_id=done.run_id))).status == "cancelled"
        await undo(app, caller, restored)
        assert await state(app, caller) == compressed
        assert (await app.compress(caller, CompressIn(run_id=done.run_id))).status == "awaiting"
        assert await hidden_behind_nothing(app, caller) == []
    with pytest.raises(InvalidInput, match="undone already"):
        await undo(app, caller, restored)


async def test_every_field_but_the_version_is_put_back(app: App, caller: Caller, clock: FakeClock) -> None:
    await converse(app, caller, clock, 4)
    first = await app.recall(caller, RecallIn(query="boxes of fern", limit=30))
    await app.remember(caller, RememberIn(used=[item.id for item in first.items[3:6]]))
    await app.settled()
    before = await everything(app, caller)
    assert {memory.use for memory in before.values()} > {1.0}
    done = await compress(app, caller)
    hidden = await everything(app, caller)
    assert sum(memory.summary_id is not None for memory in hidden.values()) >= 12
    await undo(app, caller, done.report["operation_id"])
    after = await everything(app, caller)
    assert {one: replace(after[one], version=before[one].version) for one in before} == before


async def test_what_was_changed_after_a_run_keeps_the_change_and_is_found_again_after_its_undo(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    await converse(app, caller, clock, 3)
    done = await compress(app, caller)
    (one, _) = await summaries(app, caller)
    pinned = one.parents[1]
    await app.remember(caller, RememberIn(memories=[MemoryIn(id=pinned, pinned=True)]))
    await app.remember(caller, RememberIn(memories=[MemoryIn(id=one.id, tags=["mine"])]))
    operation = done.report["operation_id"]
    for _ in range(2):
        restored = await undo(app, caller, operation)
        every = await everything(app, caller)
        assert every[pinned].pinned and every[pinned].summary_id is None
        assert every[one.id].status is Status.ARCHIVED
        assert await hidden_behind_nothing(app, caller) == []
        await undo(app, caller, restored)
        every = await everything(app, caller)
        assert every[pinned].pinned and every[pinned].summary_id == one.id
        assert every[one.id].tags == ("mine",)
        assert await hidden_behind_nothing(app, caller) == []


@pytest.mark.parametrize("action", ["erase", "redact"])
async def test_redoing_a_run_hides_nothing_behind_a_summary_that_went_meanwhile(
    app: App, caller: Caller, clock: FakeClock, action: str
) -> None:
    await converse(app, caller, clock, 3)
    done = await compress(app, caller)
    (one, other) = await summaries(app, caller)
    restored = await undo(app, caller, done.report["operation_id"])
    spans = {"spans": ["greenhouse"]} if action == "redact" else {}
    await app.forget(caller, ForgetIn(ids=[one.parents[0]], action=action, **spans))
    await undo(app, caller, restored)
    assert await hidden_behind_nothing(app, caller) == []
    every = await everything(app, caller)
    assert one.id not in every
    assert [every[each].summary_id for each in one.parents[1:]] == [None] * 3
    assert [every[each].summary_id for each in other.parents] == [other.id] * 4


async def test_correcting_a_member_lets_all_of_its_summary_surface_until_the_next_run(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    await converse(app, caller, clock, 3)
    await compress(app, caller)
    (one, other) = await summaries(app, caller)
    corrected = await app.remember(caller, RememberIn(memories=[MemoryIn(id=one.parents[0], text="It was a lie.")]))
    every = await everything(app, caller)
    assert [every[each].summary_id for each in one.parents] == [None] * 4
    assert [every[each].updated_at == every[each].created_at for each in one.parents[1:]] == [True] * 3
    assert (every[one.id].status, every[other.id].status) == (Status.ARCHIVED, Status.LIVE)
    await compress(app, caller)
    again = [set(each.parents) for each in await summaries(app, caller) if each.id not in (one.id, other.id)]
    assert set(one.parents) in again
    await undo(app, caller, corrected.operation_id or "")
    assert await hidden_behind_nothing(app, caller) == []


@pytest.mark.parametrize("change", ["expires", "forget", "private", "sensitive"])
async def test_what_expires_or_is_made_private_is_told_by_no_summary_any_more(
    app: App, caller: Caller, clock: FakeClock, change: str
) -> None:
    await converse(app, caller, clock, 2)
    await compress(app, caller)
    (one,) = await summaries(app, caller)
    if change == "forget":
        await app.forget(caller, ForgetIn(ids=[one.parents[0]], action="expire"))
    else:
        fields = {"expires": "P1D"} if change == "expires" else {"privacy": change}
        await app.remember(caller, RememberIn(memories=[MemoryIn(id=one.parents[0], **fields)]))
    assert await summaries(app, caller) == []
    assert await hidden_behind_nothing(app, caller) == []
    if change in ("private", "sensitive"):
        other = app.caller("another client", "process-2")
        with pytest.raises(NotFound if change == "private" else InvalidInput):
            await app.open_episode(other, OpenIn(id=one.id))
        found = await app.recall(other, RecallIn(query="boxes carried", include=["archived"], limit=50))
        assert one.id not in [item.id for item in found.items]


async def test_asked_to_forget_the_members_of_a_summary_are_offered_not_the_summary(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    await converse(app, caller, clock, 2)
    await compress(app, caller)
    (one,) = await summaries(app, caller)
    offered = await app.forget(caller, ForgetIn(query="boxes carried to the greenhouse"))
    assert {each.id for each in offered.candidates or ()} & set(one.parents)
    assert one.id not in [each.id for each in offered.candidates or ()]


async def test_where_no_themes_can_be_looked_for_conversations_are_compressed_with_a_notice(
    tmp_path: Path, caller: Caller, clock: FakeClock
) -> None:
    failing = new_app(tmp_path / "other", clock, clusterer=FakeClusterer(failing=True))
    async with failing.running(scheduled=False):
        await converse(failing, caller, clock, 3)
        done = await compress(failing, caller)
        assert done.report["applied"] == 2
        assert "told to fail" in done.report["notice"]


async def test_without_sessions_to_leave_alone_everything_is_in_the_middle(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    await converse(app, caller, clock, 2)
    assert (await app.compress(caller, CompressIn())).report["bands"]["active"] == 4
    app.settings.__dict__["active_sessions"] = 0
    assert (await app.compress(caller, CompressIn())).report["bands"] == {"foundation": 0, "middle": 8, "active": 0}
