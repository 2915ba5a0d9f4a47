"""What changes between the plan and its applying, or while it is applied: nothing is lost, nothing comes back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from middleout_mcp.app import App
from middleout_mcp.memory.applying import advance
from middleout_mcp.memory.contract import CompressIn, ForgetIn, MemoryIn, OpenIn, RememberIn
from middleout_mcp.records import Caller, Status, Vector
from tests.fakes import FakeClock, FakeEmbedder
from tests.memory.compressing import (
    compress,
    converse,
    everything,
    file,
    hidden_behind_nothing,
    new_app,
    summaries,
)

pytestmark = pytest.mark.anyio
WORD = "axolotlquux"  # one that the Porter stemmer leaves alone


class Interrupting(FakeEmbedder):
    """Calls `between` when the text of a summary is embedded: after its members were read, before it is stored."""

    between: Any = None

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """As ever, after `between`, which is done once."""
        if self.between is not None and texts[0].startswith("20"):
            between, self.between = self.between, None
            await between()
        return await super().embed(texts)


@pytest.fixture
def embedder() -> Interrupting:
    return Interrupting()


@pytest.fixture
async def app(tmp_path: Path, clock: FakeClock, embedder: Interrupting):
    opened = new_app(tmp_path / "store", clock, embedder=embedder)
    async with opened.running(scheduled=False):
        yield opened


async def change(app: App, caller: Caller, memory_id: str, how: str) -> None:
    if how in ("archive", "erase", "expire"):
        await app.forget(caller, ForgetIn(ids=[memory_id], action=how))
    elif how == "redact":
        await app.forget(caller, ForgetIn(ids=[memory_id], action="redact", spans=[WORD]))
    elif how == "corrected":
        await app.remember(caller, RememberIn(memories=[MemoryIn(id=memory_id, text="Nothing of it was true.")]))
    else:
        fields: dict[str, Any] = {
            "pinned": {"pinned": True},
            "private": {"privacy": "private"},
            "scope": {"scope": "other project"},
            "holder": {"known_by": ["Bob"]},
            "expires": {"expires": "P1D"},
        }[how]
        await app.remember(caller, RememberIn(memories=[MemoryIn(id=memory_id, **fields)]))


CHANGES = ("archive", "erase", "expire", "redact", "corrected", "pinned", "private", "scope", "holder", "expires")


async def planted(app: App, caller: Caller, clock: FakeClock) -> list[str]:
    """Five memories of one conversation, the second with the word, in a thread that is not the newest."""
    texts = [
        f"The {name} was moved {n + 3} times by Ruth because the glass roof of the greenhouse lets in the rain."
        for n, name in enumerate(("palm", WORD, "cactus", "lemon tree", "vine"))
    ]
    ids = await file(app, caller, *texts, thread="moving", session="moving")
    clock.advance(hours=1)
    await converse(app, caller, clock, 1)
    return ids


async def assert_right(app: App, caller: Caller, ids: list[str], how: str) -> None:
    every = await everything(app, caller)
    (summary,) = await summaries(app, caller)
    assert await hidden_behind_nothing(app, caller) == []
    assert (WORD in summary.text) is (how == "archive" and ids[1] in summary.parents)
    if how == "redact":  # its other words are still for all
        assert set(summary.parents) in ({*ids}, {*ids} - {ids[1]})
        assert WORD not in every[ids[1]].text
        return
    assert set(summary.parents) >= {*ids} - {ids[1]}
    if how == "erase":
        assert ids[1] not in every
    elif how == "corrected":
        assert every[ids[1]].text == "Nothing of it was true."
    else:
        assert every[ids[1]].summary_id is None
        assert ids[1] not in summary.parents
        expected = {"archive": Status.ARCHIVED, "expire": Status.EXPIRED}.get(how, Status.LIVE)
        assert every[ids[1]].status is expected


@pytest.mark.parametrize("how", CHANGES)
async def test_what_changed_between_plan_and_applying_is_kept_and_not_told(
    app: App, caller: Caller, clock: FakeClock, how: str
) -> None:
    ids = await planted(app, caller, clock)
    planned = await app.compress(caller, CompressIn(target="thread:moving"))
    await change(app, caller, ids[1], how)
    await app.compress(caller, CompressIn(run_id=planned.run_id, dry_run=False))
    await app.settled()
    await assert_right(app, caller, ids, how)
    done = await app.compress(caller, CompressIn(run_id=planned.run_id))
    named = [entry["id"] for entry in done.report.get("left_out", ())]
    assert named == ([ids[1]] if how not in ("erase", "corrected", "redact") else [])


@pytest.mark.parametrize("how", CHANGES)
async def test_what_another_process_changes_during_applying_is_kept_and_not_told(
    app: App, caller: Caller, clock: FakeClock, embedder: Interrupting, tmp_path: Path, how: str
) -> None:
    ids = await planted(app, caller, clock)
    other = new_app(tmp_path / "store", clock)
    async with other.running(scheduled=False):
        embedder.between = lambda: change(other, other.caller("test-client", "process-9"), ids[1], how)
        done = await compress(app, caller, target="thread:moving")
        assert embedder.between is None
    assert done.report["applied"] == 1
    await assert_right(app, caller, ids, how)


@pytest.mark.parametrize("how", ["erase", "redact"])
async def test_a_word_erased_with_its_summary_is_in_no_file_of_the_store(
    app: App, caller: Caller, clock: FakeClock, tmp_path: Path, how: str
) -> None:
    def holding() -> list[str]:
        files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
        return [path.name for path in files if WORD.encode() in path.read_bytes().lower()]

    ids = await planted(app, caller, clock)
    done = await compress(app, caller, target="thread:moving")
    (summary,) = await summaries(app, caller)
    cluster = (done.clusters or ())[0].id
    better = {"cluster": cluster, "text": f"Ruth moved the {WORD} and the cactus out of the rain."}
    await app.compress(caller, CompressIn(run_id=done.run_id, summaries=[better]))  # type: ignore[list-item]
    await app.forget(caller, ForgetIn(ids=[summary.id], action="demote", reason=f"too much {WORD}"))
    assert holding()
    await change(app, caller, ids[1], how)
    assert holding() == []
    assert summary.id not in await everything(app, caller)
    assert await hidden_behind_nothing(app, caller) == []


async def test_a_member_pinned_while_its_summary_is_erased_is_not_hidden_behind_it(
    app: App, caller: Caller, clock: FakeClock, tmp_path: Path
) -> None:
    class Erasing(FakeEmbedder):
        async def embed(self, texts: Sequence[str]) -> list[Vector]:
            await app.forget(caller, ForgetIn(ids=[ids[0]], action="erase"))
            return await super().embed(texts)

    ids = await planted(app, caller, clock)
    await compress(app, caller, target="thread:moving")
    other = new_app(tmp_path / "store", clock, embedder=Erasing())
    async with other.running(scheduled=False):
        change = [MemoryIn(id=ids[2], pinned=True), MemoryIn(text="New words, so that something is embedded.")]
        await other.remember(other.caller("test-client", "process-9"), RememberIn(memories=list(change)))
    every = await everything(app, caller)
    assert ids[0] not in every
    assert every[ids[2]].pinned
    assert await hidden_behind_nothing(app, caller) == []


@pytest.mark.parametrize("lead", [True, False])
async def test_two_processes_that_work_on_one_run_apply_each_cluster_once(
    app: App, caller: Caller, clock: FakeClock, tmp_path: Path, lead: bool
) -> None:
    await converse(app, caller, clock, 9)
    planned = await app.compress(caller, CompressIn())
    other = new_app(tmp_path / "store", clock)
    async with other.running(scheduled=False):
        others = await other.parts()
        await app.compress(caller, CompressIn(run_id=planned.run_id, dry_run=False))
        while await advance(others, caller.grant, planned.run_id or "", lead=lead):
            pass
        await app.settled()
    done = await app.compress(caller, CompressIn(run_id=planned.run_id, max_tokens=10_000))
    assert (done.status, done.report["applied"]) == ("awaiting", 8)
    assert "skipped" not in done.report
    found = await summaries(app, caller)
    assert len(found) == 8
    assert sorted(one for each in found for one in each.parents) == sorted(
        one for cluster in done.clusters or () for one in cluster.memories
    )
    await app.forget(caller, ForgetIn(ids=[done.report["operation_id"]], action="restore"))
    assert await summaries(app, caller) == []
    assert await hidden_behind_nothing(app, caller) == []


async def test_cancelled_a_run_stops_between_clusters_and_what_was_applied_can_be_undone(
    app: App, caller: Caller, clock: FakeClock, embedder: Interrupting
) -> None:
    await converse(app, caller, clock, 5)
    embedder.between = lambda: app.compress(caller, CompressIn(target="cancel"))
    done = await compress(app, caller)
    assert (done.status, done.report["applied"], done.report["clusters"]) == ("cancelled", 1, 4)
    (summary,) = await summaries(app, caller)
    assert len(summary.parents) == 4
    await app.forget(caller, ForgetIn(ids=[done.report["operation_id"]], action="restore"))
    assert await summaries(app, caller) == []


async def test_undoing_a_run_that_is_under_way_ends_it(
    app: App, caller: Caller, clock: FakeClock, embedder: Interrupting
) -> None:
    await converse(app, caller, clock, 5)
    parts = await app.parts()

    async def undo() -> None:
        (run,) = await parts.store.control.runs(caller.grant, "running")
        if run.plan.get("applied"):
            await app.forget(caller, ForgetIn(ids=[run.plan["operation"]], action="restore"))
        else:
            embedder.between = undo

    embedder.between = undo
    done = await compress(app, caller)
    assert (done.status, done.report["applied"]) == ("cancelled", 1)
    assert await summaries(app, caller) == []
    assert await hidden_behind_nothing(app, caller) == []


async def test_a_memory_made_private_leaves_the_plans_that_others_see(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    ids = await planted(app, caller, clock)
    planned = await app.compress(caller, CompressIn(target="thread:moving"))
    await change(app, caller, ids[1], "private")
    other = app.caller("another client", "process-2")
    seen = await app.compress(other, CompressIn(run_id=planned.run_id))
    assert ids[1] not in (seen.clusters or ())[0].memories
    assert WORD not in seen.model_dump_json()
    opened = await app.open_episode(other, OpenIn(id=planned.run_id))
    assert opened.type == "run"
