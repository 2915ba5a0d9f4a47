"""What a compression plan says, and that it changes nothing."""

import pytest

from middleout_mcp.app import App
from middleout_mcp.errors import InvalidInput, NotFound
from middleout_mcp.memory.contract import CompressIn, ForgetIn, MemoryIn, RecallIn, RememberIn, TurnIn
from middleout_mcp.records import Caller
from tests.fakes import FakeClock
from tests.memory.test_recall import file

pytestmark = pytest.mark.anyio


async def sessions(app: App, caller: Caller, clock: FakeClock, count: int) -> None:
    """File four turns in each of `count` sessions."""
    for number in range(count):
        turns = [TurnIn(role="user", text=f"On day {number} step {step} went well.") for step in range(4)]
        await app.remember(caller, RememberIn(messages=turns, thread=f"day{number}"))
        clock.advance(hours=1)


async def test_the_newest_sessions_and_pinned_memories_are_not_planned(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    await file(app, caller, MemoryIn(text="The founding rule.", pinned=True))
    clock.advance(hours=1)
    await sessions(app, caller, clock, 7)
    planned = await app.compress(caller, CompressIn())
    assert planned.status == "planned"
    assert planned.report["bands"] == {"foundation": 1, "middle": 8, "active": 20}
    assert planned.clusters is not None and [len(cluster.memories) for cluster in planned.clusters] == [4, 4]
    assert planned.report["searchable_bytes"]["before"] > planned.report["searchable_bytes"]["after_estimate"]


async def test_a_plan_changes_no_memory_and_is_shown_again_by_its_run_id(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    await sessions(app, caller, clock, 7)
    before = (await app.recall(caller, RecallIn(query="went well", limit=100, max_tokens=10_000))).items
    planned = await app.compress(caller, CompressIn())
    again = await app.compress(caller, CompressIn(run_id=planned.run_id))
    assert again == planned
    after = (await app.recall(caller, RecallIn(query="went well", limit=100, max_tokens=10_000))).items
    assert [item.id for item in before] == [item.id for item in after]
    cancelled = await app.compress(caller, CompressIn(target="cancel", run_id=planned.run_id))
    assert cancelled.status == "cancelled"


async def test_targets_by_thread_tag_and_ids(app: App, caller: Caller, clock: FakeClock) -> None:
    await sessions(app, caller, clock, 7)
    by_thread = await app.compress(caller, CompressIn(target="thread:day0"))
    assert by_thread.report["bands"]["middle"] == 4
    by_tag = await app.compress(caller, CompressIn(target="tag:none"))
    assert by_tag.report["bands"]["middle"] == 0
    assert by_thread.clusters is not None
    by_ids = await app.compress(caller, CompressIn(target=by_thread.clusters[0].memories[:3]))
    assert by_ids.report["bands"]["middle"] == 3


@pytest.mark.parametrize("target", ["", "everything", "thread:", "thread:nowhere", [], ["m_000000000"], "cancel"])
async def test_a_target_that_is_none_is_refused(app: App, caller: Caller, target: str | list[str]) -> None:
    with pytest.raises(InvalidInput):
        await app.compress(caller, CompressIn(target=target))


async def test_an_unknown_run_is_refused(app: App, caller: Caller) -> None:
    with pytest.raises(NotFound):
        await app.compress(caller, CompressIn(run_id="run_00000000"))


async def test_an_erased_memory_leaves_the_plans_it_was_in(app: App, caller: Caller, clock: FakeClock) -> None:
    await sessions(app, caller, clock, 7)
    planned = await app.compress(caller, CompressIn())
    assert planned.clusters is not None
    gone = planned.clusters[0].memories[0]
    await app.forget(caller, ForgetIn(ids=[gone], action="erase"))
    again = await app.compress(caller, CompressIn(run_id=planned.run_id))
    assert again.clusters is not None and gone not in again.clusters[0].memories
