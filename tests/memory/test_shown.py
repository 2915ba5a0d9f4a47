"""What an answer shows, and says that it does not show: marks, versions, pages, candidates, and what went along."""

from pathlib import Path

import pytest

from middleout_mcp.app import App, open_app
from middleout_mcp.budget import count_tokens
from middleout_mcp.errors import InvalidInput
from middleout_mcp.memory.contract import ForgetIn, MemoryIn, OpenIn, OpenOut, RecallIn, RememberIn, TurnIn
from middleout_mcp.records import Caller
from middleout_mcp.settings import Settings
from tests.fakes import FakeClock, FakeEmbedder
from tests.memory.test_forget import holding
from tests.memory.test_recall import file, texts

pytestmark = pytest.mark.anyio
TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


async def pages(app: App, caller: Caller, memory_id: str, max_tokens: int) -> list[OpenOut]:
    """Every page of a memory."""
    found, cursor = [], None
    while True:
        page = await app.open_episode(caller, OpenIn(id=memory_id, cursor=cursor, max_tokens=max_tokens))
        found.append(page)
        cursor = page.cursor
        assert page.truncated == (cursor is not None)
        if cursor is None:
            return found


async def test_an_opened_memory_that_is_shown_whole_is_not_marked_cut(app: App, caller: Caller) -> None:
    (memory_id,) = await file(app, caller, "The gym costs 30 euros.")
    (only,) = await pages(app, caller, memory_id, 2000)
    assert only.details is not None
    assert "cut" not in only.details["record"]["marks"]


@pytest.mark.parametrize("max_tokens", [100, 700, 10_000])
async def test_earlier_versions_open_word_for_word_whatever_the_budget(
    app: App, caller: Caller, max_tokens: int
) -> None:
    said = ["".join(f"Version {number} has sentence {at}. " for at in range(60)).strip() for number in range(4)]
    (memory_id,) = await file(app, caller, said[0])
    for text in said[1:]:
        await app.remember(caller, RememberIn(memories=[MemoryIn(id=memory_id, text=text)]))
    current, earlier = "", dict.fromkeys(range(1, 4), "")
    for page in await pages(app, caller, memory_id, max_tokens):
        current += page.text or ""
        if page.text is None:
            for version in (page.details or {})["versions"]:
                earlier[version["version"]] += version["text"]
    assert current == said[3]
    assert list(earlier.values()) == said[:3]


async def test_what_does_not_fit_beside_a_memory_is_counted(app: App, caller: Caller) -> None:
    tags = [f"a long tag with the number {number}, which takes some tokens" for number in range(60)]
    (memory_id,) = await file(app, caller, MemoryIn(text="Tagged.", tags=tags, known_by=["Ann", "Bob"]))
    for number in range(30):
        await app.remember(caller, RememberIn(memories=[MemoryIn(id=memory_id, importance=number / 30)]))
    opened = await app.open_episode(caller, OpenIn(id=memory_id, max_tokens=800))
    details = opened.details or {}
    assert len(details["tags"]) + details["tags_not_listed"] == 60
    assert len(details["versions"]) + details["versions_not_listed"] == 30
    assert details["known_by"] == ["Ann", "Bob"]
    assert count_tokens(opened.model_dump_json(exclude_none=True)) < 1500


async def test_forget_that_after_a_recall_offers_its_best_hits_first(app: App, caller: Caller) -> None:
    await file(app, caller, *(f"Lake number {number} is deep." for number in range(9)))
    found = await app.recall(caller, RecallIn(query="lake number 3"))
    offered = await app.forget(caller, ForgetIn(action="erase"))
    assert [one.id for one in offered.candidates or ()] == [item.id for item in found.items[:5]]


async def test_more_that_could_be_meant_is_counted(app: App, caller: Caller) -> None:
    await file(app, caller, *(f"Lake number {number} is deep." for number in range(9)))
    offered = await app.forget(caller, ForgetIn(query="deep lake"))
    assert offered.notice is not None and "4 more" in offered.notice


async def test_a_sensitive_memory_can_be_found_to_be_forgotten_and_is_not_shown_for_that(
    app: App, caller: Caller
) -> None:
    (memory_id,) = await file(app, caller, MemoryIn(text="Takes sertraline.", privacy="sensitive"))
    offered = await app.forget(caller, ForgetIn(query="sertraline", action="erase"))
    assert [(one.id, "sertraline" in one.text) for one in offered.candidates or ()] == [(memory_id, False)]
    with pytest.raises(InvalidInput, match="is sensitive"):
        await app.open_episode(caller, OpenIn(id=memory_id))
    await app.forget(caller, ForgetIn(ids=[memory_id], action="erase"))
    assert (await app.forget(caller, ForgetIn(query="sertraline"))).candidates == []


@pytest.mark.parametrize("action", ["suppress", "archive", "erase"])
async def test_what_was_hidden_or_put_aside_meanwhile_is_on_no_later_page(
    app: App, caller: Caller, action: str
) -> None:
    await file(app, caller, *(f"Lake number {number} is deep." for number in range(6)))
    every = await app.recall(caller, RecallIn(query="deep lake", limit=6))
    first = await app.recall(caller, RecallIn(query="deep lake", limit=2))
    gone = every.items[3].id
    until = "step" if action == "suppress" else None
    done = await app.forget(caller, ForgetIn(ids=[gone], action=action, until=until))  # type: ignore[arg-type]
    assert action != "suppress" or done.notice == "Hidden until the next recall."
    rest = await app.recall(caller, RecallIn(query="deep lake", limit=2, cursor=first.cursor, max_tokens=10_000))
    shown = [item.id for item in rest.items]
    assert gone not in shown and len(shown) == 2
    again = await app.recall(caller, RecallIn(query="deep lake", limit=6))
    assert (gone in [item.id for item in again.items]) == (action == "suppress")


async def test_the_brief_has_no_scores_on_any_page(app: App, caller: Caller) -> None:
    await file(app, caller, *(f"Lake number {number} is deep." for number in range(6)))
    first = await app.recall(caller, RecallIn(limit=2))
    second = await app.recall(caller, RecallIn(limit=2, cursor=first.cursor))
    assert [item.score for item in (*first.items, *second.items)] == [None] * 4


async def test_the_event_that_is_an_erased_turn_goes_with_it_and_the_answer_says_what_went_along(
    app: App, caller: Caller, tmp_path: Path
) -> None:
    turns = [TurnIn(role="user", text="My salary is numbat88 euros."), TurnIn(role="user", text="It rains in Bergen.")]
    given = MemoryIn(text="Earns numbat88 euros.", turns=[0])
    fact = await app.remember(caller, RememberIn(messages=turns, memories=[given], thread="t"))
    await app.remember(caller, RememberIn(messages=turns, thread="t"))
    gone = await app.forget(caller, ForgetIn(ids=[fact.results[0].id or ""], action="erase"))
    assert gone.affected is not None and len(gone.affected) == 2
    assert gone.notice is not None and "With it went the message it was filed from." in gone.notice
    assert holding(tmp_path, "numbat88") == []
    assert await texts(app, caller, query="rains in Bergen") == ["It rains in Bergen."]
    opened = await app.open_episode(caller, OpenIn(id=fact.episode.id if fact.episode else ""))
    assert [turn.text for turn in opened.turns or ()] == ["[erased]", "It rains in Bergen."]


async def test_a_reason_or_purpose_that_named_what_is_erased_goes_wherever_it_stands(
    tmp_path: Path, clock: FakeClock, embedder: FakeEmbedder
) -> None:
    app = open_app(Settings(home=tmp_path, sensitive_recall=True), clock=clock, embedder=embedder)
    async with app.running(scheduled=False):
        caller = app.caller("test-client", "process-1")
        secret = MemoryIn(text="Treated for quokkaitis.", privacy="sensitive")
        ids = await file(app, caller, secret, "It rains in Bergen.", "Soup needs salt.")
        await app.recall(caller, RecallIn(query="treated for quokkaitis", purpose="quokkaitis letter"))
        await app.forget(caller, ForgetIn(ids=[ids[1]], reason="not about quokkaitis"))
        kept = await app.forget(caller, ForgetIn(ids=[ids[2]], reason="cooked already"))
        assert holding(tmp_path, "quokkaitis")
        await app.forget(caller, ForgetIn(ids=[ids[0]], action="erase"))
        assert holding(tmp_path, "quokkaitis") == []
        other = await (await app.parts()).store.journal.operation(caller.grant, kept.operation_id or "")
        assert other is not None and other.reason == "cooked already"


async def test_what_was_removed_from_messages_is_told_and_only_where_it_was(app: App, caller: Caller) -> None:
    turns = [TurnIn(role="user", text=f"The token is {TOKEN}."), TurnIn(role="user", text="It rains in Bergen.")]
    by_rule = await app.remember(caller, RememberIn(messages=turns, thread="t"))
    assert [bool(result.redacted) for result in by_rule.results] == [True, False]
    assert by_rule.notice is not None and "github" in by_rule.notice
    given = RememberIn(messages=turns, memories=["Bergen is wet."], thread="u", episode=f"Token {TOKEN} and rain")
    told = await app.remember(caller, given)
    assert told.notice is not None and told.results[0].redacted is None


async def test_with_secrets_refused_neither_a_memory_nor_an_event_of_it_is_stored(
    tmp_path: Path, clock: FakeClock, embedder: FakeEmbedder
) -> None:
    app = open_app(Settings(home=tmp_path, secrets="refuse"), clock=clock, embedder=embedder)
    async with app.running(scheduled=False):
        caller = app.caller("test-client", "process-1")
        turn = TurnIn(role="user", text=f"The token is {TOKEN}.")
        for call in (RememberIn(messages=[turn], thread="t"), RememberIn(memories=[turn.text])):
            (result,) = (await app.remember(caller, call)).results
            assert (result.id, result.actions) == (None, ["rejected"])
        assert await texts(app, caller, query="token") == []
        assert holding(tmp_path, TOKEN) == []


async def test_reporting_a_use_offers_no_undo(app: App, caller: Caller) -> None:
    ids = await file(app, caller, "Soup needs salt.")
    assert (await app.remember(caller, RememberIn(used=ids))).operation_id is None
    assert (await app.remember(caller, RememberIn(wrong=ids))).operation_id is not None


async def test_a_restored_copy_is_counted_by_itself_again(app: App, caller: Caller) -> None:
    ids = await file(app, caller, MemoryIn(text="Prefers Python.", source="user"), "Likes Python best.")
    await app.forget(caller, ForgetIn(ids=ids, action="merge"))
    await app.forget(caller, ForgetIn(ids=ids[1:], action="restore"))
    found = await app.recall(caller, RecallIn(query="Python"))
    assert {item.id: item.represents for item in found.items} == dict.fromkeys(ids)


async def test_a_correction_told_in_a_conversation_points_to_where_it_was_told(app: App, caller: Caller) -> None:
    first = await app.remember(
        caller,
        RememberIn(messages=[TurnIn(role="user", text="Rent is 1,950.")], memories=["The rent is 1,950."], thread="a"),
    )
    second = await app.remember(
        caller,
        RememberIn(
            messages=[TurnIn(role="user", text="Sorry, the rent is 1,850.")],
            memories=[MemoryIn(id=first.results[0].id, text="The rent is 1,850.")],
            thread="b",
        ),
    )
    (item,) = (await app.recall(caller, RecallIn(query="rent"))).items
    assert (item.thread, item.episode_id) == ("b", second.episode.id if second.episode else None)


async def test_a_question_about_a_time_is_answered_by_that_time_where_no_word_matches(app: App, caller: Caller) -> None:
    await file(app, caller, MemoryIn(text="Painted the boat.", at="2025-12-20"), MemoryIn(text="Old.", at="2025-11-01"))
    found = await app.recall(caller, RecallIn(query="qqq zzz", since="2025-12-15", until="2025-12-31"))
    assert [item.text for item in found.items] == ["Painted the boat."]
    assert found.notice is not None and "of the time" in found.notice
    assert (await app.recall(caller, RecallIn(query="qqq zzz"))).items == []


async def test_a_task_that_is_late_says_so_and_a_done_one_leaves_the_brief(
    app: App, caller: Caller, clock: FakeClock
) -> None:
    late = MemoryIn(text="Send the form.", kind="task", due="2026-01-02")
    done = MemoryIn(text="Buy milk.", kind="task", state="done")
    await file(app, caller, late, done)
    clock.advance(days=3)
    (item,) = (await app.recall(caller, RecallIn())).items
    assert item.text == "Send the form."
    assert "open, due 2026-01-02, overdue" in (item.marks or ())
