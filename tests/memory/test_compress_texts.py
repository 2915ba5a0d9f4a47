"""The two-step way: better texts for summaries, grounded in their sources; and memories nothing can be made of."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from middleout_mcp.app import App
from middleout_mcp.errors import InvalidInput, NotFound
from middleout_mcp.memory.contract import CompressIn, CompressOut, ForgetIn, MemoryIn, OpenIn, RememberIn, SummaryIn
from middleout_mcp.records import Caller, Vector
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

TALK = (
    "Ruth Amsel bought 12 panes of glass for the greenhouse on 3 March 2025, and Bob carried them home in the rain.",
    "The glazier said “the old frame will not hold them”, so Ruth ordered a new frame of larch wood from Kessler.",
    "We decided to paint the larch frame twice before winter.",
    "Bob cleaned the gutters of the greenhouse and found the nest of a wren with four eggs under the ladder.",
    "The lemon trees went into the cellar because the greenhouse stays without a roof until the frame arrives.",
)
GOOD = "Ruth Amsel bought 12 panes for the greenhouse; “the old frame will not hold them”, so she ordered larch."


class Odd(FakeEmbedder):
    """Fails on texts that hold a word: with an error nobody thought of, or with a vector of no use."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.tries = 0

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """As ever, but for summaries that speak of larch."""
        if any(text.startswith("20") and "larch" in text for text in texts):
            self.tries += 1
            if self.how == "raises":
                raise RuntimeError("nobody thought of this")
            return [bytes(4 * (self.dimension if self.how == "zero" else 3))] * len(texts)
        return await super().embed(texts)


@pytest.fixture
async def app(tmp_path: Path, clock: FakeClock):
    opened = new_app(tmp_path, clock)
    async with opened.running(scheduled=False):
        yield opened


async def applied(app: App, caller: Caller, clock: FakeClock) -> CompressOut:
    await file(app, caller, *TALK, thread="glass", session="glass")
    clock.advance(hours=1)
    await converse(app, caller, clock, 2)
    done = await compress(app, caller)
    assert (done.status, done.report["applied"]) == ("awaiting", 2)
    return done


async def give(app: App, caller: Caller, run_id: str | None, *given: tuple[str, str]) -> CompressOut:
    better = [SummaryIn(cluster=cluster, text=text) for cluster, text in given]
    return await app.compress(caller, CompressIn(run_id=run_id, summaries=better))


def cluster_of(done: CompressOut, word: str) -> str:
    return next(each.id for each in done.clusters or () if any(word in text for text in each.texts or ()))


async def test_better_texts_are_stored_as_new_versions_and_the_last_one_ends_the_wait(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    done = await applied(app, caller, clock)
    glass = cluster_of(done, "larch")
    assert sorted(next(each.texts or () for each in done.clusters or () if each.id == glass)) == sorted(TALK)
    once = await give(app, caller, done.run_id, (glass, GOOD))
    assert (once.status, once.report["improved"]) == ("awaiting", 1)
    summary = next(each for each in await summaries(app, caller) if "Kessler" in each.text or "Amsel" in each.text)
    assert summary.text.startswith(GOOD)
    assert "We decided to paint the larch frame twice before winter." in summary.text  # binds, and was left out
    opened = await app.open_episode(caller, OpenIn(id=summary.id))
    assert [each["version"] for each in (opened.details or {})["versions"]] == [1]
    assert len(opened.memories or ()) == len(TALK)
    other = next(each.id for each in done.clusters or () if each.id != glass)
    twice = await give(app, caller, done.run_id, (other, "Ruth0 counted the leaves while it rained."))
    assert (twice.status, twice.report["improved"]) == ("done", 2)
    assert twice.report["compressed_bytes"]["after"] < twice.report["compressed_bytes"]["before"]
    await app.forget(caller, ForgetIn(ids=[done.report["operation_id"]], action="restore"))
    assert await summaries(app, caller) == []
    assert await hidden_behind_nothing(app, caller) == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Ruth bought 13 panes of glass.", "13"),
        ("Ruth bought the panes on 4 March 2025.", "4 March 2025"),
        ("Ruth bought the panes on 2024-03-03.", "2024-03-03"),
        ("The panes were carried by Ludwig Stern.", "Ludwig Stern"),
        ("The glazier said “the new frame is too heavy”.", "the new frame is too heavy"),
        ('The glazier said "it will not ever hold".', "it will not ever hold"),
        ("It is told in m_000000000 as well.", "m_000000000"),
    ],
)
async def test_what_no_source_says_is_refused_in_one_sentence_and_nothing_is_changed(
    app: App, caller: Caller, clock: FakeClock, text: str, named: str
) -> None:
    done = await applied(app, caller, clock)
    before = await everything(app, caller)
    glass = cluster_of(done, "larch")
    other = next(each.id for each in done.clusters or () if each.id != glass)
    with pytest.raises(InvalidInput) as refused:
        await give(app, caller, done.run_id, (other, "It rained."), (glass, text))
    assert named in str(refused.value)
    assert "summaries[1]" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert await everything(app, caller) == before
    assert (await app.compress(caller, CompressIn(run_id=done.run_id))).report.get("improved") is None


async def test_a_secret_in_a_given_text_is_not_stored(app: App, caller: Caller, clock: FakeClock) -> None:
    done = await applied(app, caller, clock)
    key = "sk_live_" + "51Nq7Zt4mWx8Kb2Rv6Yc9Hd3Lf"
    secret = f"Ruth ordered larch <private>for nobody</private>, with {key}."
    await give(app, caller, done.run_id, (cluster_of(done, "larch"), secret))
    texts = "\n".join([each.text for each in await summaries(app, caller)])
    assert "Ruth ordered larch" in texts
    assert key not in texts
    assert "for nobody" not in texts


async def test_a_given_text_must_be_shorter_than_what_it_stands_for(app: App, caller: Caller, clock: FakeClock) -> None:
    done = await applied(app, caller, clock)
    with pytest.raises(InvalidInput, match="shorter"):
        await give(app, caller, done.run_id, (cluster_of(done, "larch"), "it rained on the old glass roof. " * 30))


async def test_texts_for_no_cluster_for_one_twice_or_for_no_run_are_refused(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    done = await applied(app, caller, clock)
    glass = cluster_of(done, "larch")
    for given in ([("c99", "x y")], [("", "x y")], [(glass, "It rained."), (glass, "It rained.")], [], [(glass, " ")]):
        with pytest.raises(InvalidInput):
            await give(app, caller, done.run_id, *given)
    planned = await app.compress(caller, CompressIn(target="thread:glass"))
    with pytest.raises(InvalidInput, match="start it with dry_run=false"):
        await give(app, caller, planned.run_id, ("c1", "It rained."))
    await app.forget(caller, ForgetIn(ids=[done.report["operation_id"]], action="restore"))
    with pytest.raises(InvalidInput, match="gone"):
        await give(app, caller, done.run_id, (glass, "It rained."))


async def test_a_run_of_another_namespace_is_answered_as_one_that_never_existed(
    app: App, caller: Caller, clock: FakeClock, tmp_path: Path
) -> None:
    done = await applied(app, caller, clock)
    app.settings.__dict__["namespace"] = "theirs"
    theirs = app.caller("test-client", "process-1")
    for arguments in ({}, {"dry_run": False}, {"target": "cancel"}, {"summaries": [SummaryIn(cluster="c1", text="x")]}):
        with pytest.raises(NotFound) as refused:
            await app.compress(theirs, CompressIn(run_id=done.run_id, **arguments))
        with pytest.raises(NotFound) as unknown:
            await app.compress(theirs, CompressIn(run_id="run_000000000", **arguments))
        assert str(refused.value).replace(done.run_id or "", "run_000000000") == str(unknown.value)


NOTHING = ("🙂🙃🎉", "ok", "hello hello", "...", "\u0301\u0302\u0303", "— — —", "haha!!", "？！", "\u200d🙂\u200d")


async def test_memories_that_say_nothing_are_named_and_wedge_no_run(app: App, caller: Caller, clock: FakeClock) -> None:
    endless = "word without any stop " * 50_000
    odd = ["x" * 30_000, "0123456789" * 3_000, "a NUL \x00 inside the text here", endless, *NOTHING]
    ids = await file(app, caller, *odd, *TALK, thread="odd", session="odd")
    empty = await file(app, caller, *NOTHING[:4], thread="empty", session="empty")
    clock.advance(hours=1)
    await converse(app, caller, clock, 1)
    done = await compress(app, caller)
    assert done.status in ("awaiting", "done")
    opened = await app.open_episode(caller, OpenIn(id=done.run_id or ""))
    details: dict[str, Any] = opened.details or {}
    named = {entry["id"] for entry in details["left_out"]}
    assert {*ids[4 : 4 + len(NOTHING)]} <= named
    assert {entry["reason"] for entry in details["skipped"]} == {
        "its memories say nothing that a summary could tell, or are gone"
    }
    every = await everything(app, caller)
    assert all(every[one].summary_id is None for one in (*empty, *ids[4 : 4 + len(NOTHING)]) if one in every)
    (summary,) = await summaries(app, caller)
    assert {*ids[-len(TALK) :]} <= set(summary.parents)
    assert len(summary.text) < 4_000


async def test_memories_without_a_vector_are_compressed_all_the_same(
    tmp_path: Path, caller: Caller, clock: FakeClock
) -> None:
    embedder = FakeEmbedder(failing=True)
    pending = new_app(tmp_path / "pending", clock, embedder=embedder)
    async with pending.running(scheduled=False):
        await converse(pending, caller, clock, 3)
        done = await compress(pending, caller)
        assert done.report["applied"] == 2
        assert [each.embedded for each in await summaries(pending, caller)] == [False] * 2
        embedder.failing = False
        await pending.remember(caller, RememberIn(memories=["Anything that is embedded."]))
        await pending.settled()
        assert [each.embedded for each in await summaries(pending, caller)] == [True] * 2


@pytest.mark.parametrize("how", ["raises", "zero", "short"])
async def test_a_cluster_that_fails_twice_is_skipped_and_named(
    tmp_path: Path, caller: Caller, clock: FakeClock, how: str
) -> None:
    embedder = Odd(how)
    failing = new_app(tmp_path / "failing", clock, embedder=embedder)
    async with failing.running(scheduled=False):
        await converse(failing, caller, clock, 2)
        ids = await file(failing, caller, *TALK, thread="glass", session="glass")
        clock.advance(hours=1)
        await converse(failing, caller, clock, 2, start=2)
        done = await compress(failing, caller)
        assert (done.status, done.report["applied"]) == ("awaiting", 3)
        (skipped,) = done.report["skipped"]
        assert skipped["reason"].startswith("it failed twice")
        assert embedder.tries == 2
        every = await everything(failing, caller)
        assert [every[one].summary_id for one in ids] == [None] * len(ids)


@pytest.mark.parametrize(
    "fields",
    [
        {"privacy": "private"},
        {"privacy": "sensitive"},
        {"pinned": True},
        {"kind": "task"},
        {"kind": "preference", "source": "user"},
        {"expires": "P9D"},
        {"expires": "session"},
    ],
)
async def test_what_must_stay_as_it_is_becomes_part_of_no_summary(
    app: App, caller: Caller, clock: FakeClock, fields: dict[str, Any]
) -> None:
    special = MemoryIn(text="The spare key of the greenhouse hangs behind the larch frame.", **fields)
    ids = await file(app, caller, special, *TALK, thread="glass", session="glass")
    clock.advance(minutes=20)
    await converse(app, caller, clock, 1)
    for target in ("middle", ids):
        planned = await app.compress(caller, CompressIn(target=target))
        assert ids[0] not in {one for cluster in planned.clusters or () for one in cluster.memories}
    done = await compress(app, caller)
    assert done.report["applied"] == 1
    (summary,) = await summaries(app, caller)
    assert ids[0] not in summary.parents
    assert "spare" not in summary.text
