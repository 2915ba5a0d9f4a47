"""What `remember` stores, merges, updates, redacts and refuses."""

from dataclasses import replace
from datetime import timedelta

import pytest

from middleout_mcp.app import App
from middleout_mcp.errors import InvalidInput, NotFound
from middleout_mcp.memory.contract import ForgetAction, ForgetIn, MemoryIn, OpenIn, RecallIn, RememberIn, TurnIn
from middleout_mcp.records import Action, Caller
from tests.fakes import FakeClock, FakeEmbedder

pytestmark = pytest.mark.anyio
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def said(*texts: str, role: str = "user") -> list[TurnIn]:
    return [TurnIn(role=role, text=text) for text in texts]


async def memory(app: App, caller: Caller, memory_id: str):
    return (await (await app.parts()).store.memories.get(caller.grant, [memory_id]))[0]


async def test_what_was_remembered_is_recalled_by_the_next_call(app: App, caller: Caller) -> None:
    stored = await app.remember(caller, RememberIn(memories=["The cellar key hangs behind the piano."]))
    found = await app.recall(caller, RecallIn(query="where is the cellar key?"))
    assert [item.id for item in found.items] == [stored.results[0].id]
    assert found.items[0].text == "The cellar key hangs behind the piano."


async def test_an_empty_call_is_refused(app: App, caller: Caller) -> None:
    with pytest.raises(InvalidInput, match="nothing to remember"):
        await app.remember(caller, RememberIn())


async def test_a_call_with_one_bad_memory_stores_none_of_its_memories(app: App, caller: Caller) -> None:
    with pytest.raises(InvalidInput, match=r"memories\[1\]"):
        await app.remember(caller, RememberIn(memories=["The roof is green.", "  "]))
    assert (await app.recall(caller, RecallIn(query="roof green"))).items == []


async def test_importance_confidence_and_trust_follow_the_source(app: App, caller: Caller) -> None:
    given = [MemoryIn(text=f"Fact {source}", source=source) for source in ("user", "agent", "import")]
    results = (await app.remember(caller, RememberIn(memories=given))).results
    stored = [await memory(app, caller, result.id or "") for result in results]
    assert [(one.importance, one.confidence, one.trust) for one in stored] == [
        (0.6, 0.9, "user"),
        (0.3, 0.6, "agent"),
        (0.35, 0.5, "import"),
    ]


async def test_a_word_that_is_no_kind_becomes_the_key_of_a_fact(app: App, caller: Caller) -> None:
    given = MemoryIn(text="Mixes up denominators.", kind="learning gap")
    result = (await app.remember(caller, RememberIn(memories=[given]))).results[0]
    stored = await memory(app, caller, result.id or "")
    assert (stored.kind, stored.key) == ("fact", "learning_gap")


async def test_a_memory_with_a_due_date_is_an_open_task(app: App, caller: Caller) -> None:
    given = MemoryIn(text="Renew the passport", due="2026-03-01")
    result = (await app.remember(caller, RememberIn(memories=[given]))).results[0]
    stored = await memory(app, caller, result.id or "")
    assert (stored.kind, stored.state) == ("task", "open")
    shown = (await app.recall(caller, RecallIn())).items[0]
    assert shown.marks is not None and "open, due 2026-03-01" in shown.marks


async def test_state_and_due_are_refused_for_other_kinds(app: App, caller: Caller) -> None:
    with pytest.raises(InvalidInput, match="belong to kind task"):
        await app.remember(caller, RememberIn(memories=[MemoryIn(text="x y", kind="fact", state="done")]))


async def test_a_summary_cannot_be_given(app: App, caller: Caller) -> None:
    with pytest.raises(InvalidInput, match="made by compress"):
        await app.remember(caller, RememberIn(memories=[MemoryIn(text="x y", kind="summary")]))


async def test_the_same_fact_told_again_is_merged_and_counted(app: App, caller: Caller) -> None:
    first = await app.remember(caller, RememberIn(memories=["User prefers Python examples."]))
    again = await app.remember(caller, RememberIn(memories=["user prefers  PYTHON examples."]))
    assert again.results[0].actions == [Action.MERGED]
    assert again.results[0].merged_into == first.results[0].id
    found = await app.recall(caller, RecallIn(query="Python examples"))
    assert [item.represents for item in found.items] == [2]


async def test_the_same_text_twice_in_one_call_becomes_one_memory(app: App, caller: Caller) -> None:
    results = (await app.remember(caller, RememberIn(memories=["Ann lives in Riga."] * 3))).results
    assert len({result.id for result in results}) == 1
    assert (await memory(app, caller, results[0].id or "")).copies == 3


async def test_look_alikes_are_not_merged(app: App, caller: Caller) -> None:
    texts = [f"{name}'s {thing} is number {n}" for name in ("Ann", "Bob") for thing in ("door", "box") for n in (3, 4)]
    results = (await app.remember(caller, RememberIn(memories=list(texts)))).results
    assert [result.actions for result in results] == [[Action.STORED]] * 8
    assert len({result.id for result in results}) == 8


@pytest.mark.parametrize(
    "limit", [{"scope": "atlas"}, {"key": "colour"}, {"privacy": "private"}, {"known_by": ["Bob"]}]
)
async def test_the_same_text_under_another_limit_is_another_memory(app: App, caller: Caller, limit: dict) -> None:
    await app.remember(caller, RememberIn(memories=["The answer is green."]))
    again = await app.remember(caller, RememberIn(memories=[MemoryIn(text="The answer is green.", **limit)]))
    assert again.results[0].actions == [Action.STORED]


async def test_the_same_event_at_another_time_is_another_event(app: App, caller: Caller) -> None:
    given = [MemoryIn(text="The build failed.", kind="event", at=f"2026-01-0{day}") for day in (1, 2, 2)]
    results = (await app.remember(caller, RememberIn(memories=given))).results
    assert [result.actions for result in results] == [[Action.STORED], [Action.STORED], [Action.MERGED]]


async def test_the_same_ref_is_the_same_memory(app: App, caller: Caller) -> None:
    first = await app.remember(caller, RememberIn(memories=[MemoryIn(text="Version 1 is out.", ref="crm/17")]))
    again = await app.remember(caller, RememberIn(memories=[MemoryIn(text="Version 2 is out.", ref="crm/17")]))
    assert again.results[0].actions == [Action.UPDATED]
    assert again.results[0].id == first.results[0].id
    found = await app.recall(caller, RecallIn(query="which version is out"))
    assert [item.text for item in found.items] == ["Version 2 is out."]


async def test_a_ref_that_was_archived_is_live_again_when_told_again(app: App, caller: Caller) -> None:
    given = RememberIn(memories=[MemoryIn(text="The lift is broken.", ref="lift")])
    first = await app.remember(caller, given)
    await app.forget(caller, ForgetIn(ids=[first.results[0].id or ""]))
    await app.remember(caller, given)
    assert len((await app.recall(caller, RecallIn(query="lift broken"))).items) == 1


async def test_an_id_corrects_a_memory_as_a_new_version(app: App, caller: Caller) -> None:
    first = (await app.remember(caller, RememberIn(memories=["Tea at 3."]))).results[0].id or ""
    changed = (await app.remember(caller, RememberIn(memories=[MemoryIn(id=first, text="Tea at 4.")]))).results[0]
    assert changed.actions == [Action.UPDATED]
    assert changed.reason == "changed text"
    opened = await app.open_episode(caller, OpenIn(id=first))
    assert opened.text == "Tea at 4."
    assert opened.details is not None
    assert [version["text"] for version in opened.details["versions"]] == ["Tea at 3."]


async def test_what_the_user_confirms_is_verified_and_no_longer_weak(app: App, caller: Caller) -> None:
    first = (await app.remember(caller, RememberIn(memories=["Owns a boat."]))).results[0].id or ""
    before = (await app.recall(caller, RecallIn(query="boat"))).items[0]
    assert before.marks == ["weak"]
    await app.remember(caller, RememberIn(memories=[MemoryIn(id=first, source="user")]))
    after = (await app.recall(caller, RecallIn(query="boat"))).items[0]
    assert (after.trust, after.marks) == ("verified", None)


async def test_an_unknown_id_stores_nothing_of_the_call(app: App, caller: Caller) -> None:
    with pytest.raises(NotFound):
        await app.remember(caller, RememberIn(memories=["A tree fell.", MemoryIn(id="m_000000000", pinned=True)]))
    assert (await app.recall(caller, RecallIn(query="tree fell"))).items == []


# CASE 19
async def test_a_secret_is_redacted_before_it_is_stored_and_the_caller_is_told(app: App, caller: Caller) -> None:
    result = (await app.remember(caller, RememberIn(memories=[f"The token is {TOKEN} for CI"]))).results[0]
    assert Action.REDACTED in result.actions
    assert result.redacted
    found = (await app.recall(caller, RecallIn(query="token for CI"))).items[0]
    assert TOKEN not in found.text and "[redacted:" in found.text


async def test_privacy_secret_is_rejected_and_the_rest_is_stored(app: App, caller: Caller) -> None:
    given = [MemoryIn(text="My PIN is nine", privacy="secret"), "The cat is called Miso."]
    results = (await app.remember(caller, RememberIn(memories=given))).results
    assert [result.actions for result in results] == [[Action.REJECTED], [Action.STORED]]
    assert results[0].id is None and results[0].reason


async def test_private_spans_are_never_stored(app: App, caller: Caller) -> None:
    await app.remember(caller, RememberIn(messages=said("Book a table <private>for my affair</private> at eight.")))
    found = (await app.recall(caller, RecallIn(query="book a table"))).items[0]
    assert "affair" not in found.text and "table" in found.text
    opened = await app.open_episode(caller, OpenIn(id=found.episode_id))
    assert opened.turns is not None and "affair" not in opened.turns[0].text


async def test_messages_without_memories_become_events_and_small_talk_does_not(app: App, caller: Caller) -> None:
    done = await app.remember(caller, RememberIn(messages=said("Hello!", "We moved to Riga in May.", "ok"), thread="t"))
    assert len(done.results) == 1
    assert done.episode is not None
    opened = await app.open_episode(caller, OpenIn(id=done.episode.id))
    assert opened.turns is not None and [turn.text for turn in opened.turns] == [
        "Hello!",
        "We moved to Riga in May.",
        "ok",
    ]
    assert opened.memories is not None and [item.kind for item in opened.memories] == ["event"]


async def test_messages_sent_again_are_not_doubled(app: App, caller: Caller) -> None:
    call = RememberIn(messages=said("We chose SQLite.", "The deadline is 12 June."), thread="t")
    first, again = await app.remember(caller, call), await app.remember(caller, call)
    assert first.episode is not None and again.episode is not None
    assert first.episode.id == again.episode.id
    assert [result.id for result in first.results] == [result.id for result in again.results]
    assert [result.actions for result in again.results] == [[Action.MERGED]] * 2
    opened = await app.open_episode(caller, OpenIn(id=first.episode.id))
    assert opened.turns is not None and len(opened.turns) == 2


async def test_an_overlapping_stretch_adds_only_its_new_turns(app: App, caller: Caller) -> None:
    await app.remember(caller, RememberIn(messages=said("Alpha is first.", "Beta is second."), thread="t"))
    await app.remember(caller, RememberIn(messages=said("Beta is second.", "Gamma is third."), thread="t"))
    turns = await (await app.parts()).store.threads.turns(caller.grant, "t")
    assert [turn.text for turn in turns] == ["Alpha is first.", "Beta is second.", "Gamma is third."]


async def test_a_memory_is_linked_to_the_turns_that_share_its_rarest_terms(app: App, caller: Caller) -> None:
    messages = said("Let us talk about trips.", "The ferry to Tallinn leaves at nine.", "Trips are fun.")
    done = await app.remember(caller, RememberIn(messages=messages, memories=["The Tallinn ferry leaves at nine."]))
    assert (await memory(app, caller, done.results[0].id or "")).turns == (2,)


async def test_given_turns_are_linked_and_an_index_out_of_range_is_refused(app: App, caller: Caller) -> None:
    messages = said("One thing.", "Another thing.")
    done = await app.remember(caller, RememberIn(messages=messages, memories=[MemoryIn(text="Things.", turns=[0])]))
    assert (await memory(app, caller, done.results[0].id or "")).turns == (1,)
    with pytest.raises(InvalidInput, match="names message 2"):
        await app.remember(caller, RememberIn(messages=messages, memories=[MemoryIn(text="Things.", turns=[2])]))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
async def test_data_with_a_number_that_is_none_is_refused_with_its_place(
    app: App, caller: Caller, number: float
) -> None:
    turns = [TurnIn(role="user", text="Fine."), TurnIn(role="user", text="Odd.", data={"a": [1, number]})]
    with pytest.raises(InvalidInput, match=r"^messages\[1\]\.data\.a\[1\] is no finite number"):
        await app.remember(caller, RememberIn(messages=turns))


async def test_data_of_a_turn_comes_back_as_given(app: App, caller: Caller) -> None:
    data = {"tool": "ls", "rows": [1, 2.5, None, {"ok": True}]}
    done = await app.remember(caller, RememberIn(messages=[TurnIn(role="tool", text="Listed the folder.", data=data)]))
    assert done.episode is not None
    opened = await app.open_episode(caller, OpenIn(id=done.episode.id))
    assert opened.details is not None and opened.details["data"] == {"1": data}


async def test_an_episode_line_without_messages_points_at_its_memories(app: App, caller: Caller) -> None:
    done = await app.remember(caller, RememberIn(memories=["Chose Riga."], episode="Travel plans; Riga chosen."))
    assert done.episode is not None and done.episode.line == "Travel plans; Riga chosen."
    opened = await app.open_episode(caller, OpenIn(id=done.episode.id))
    assert opened.memories is not None and [item.text for item in opened.memories] == ["Chose Riga."]


async def test_used_ids_count_and_unknown_ones_are_refused(app: App, caller: Caller) -> None:
    stored = (await app.remember(caller, RememberIn(memories=["Bees sleep."]))).results[0].id or ""
    await app.remember(caller, RememberIn(used=[stored]))
    assert (await memory(app, caller, stored)).use == 1.0
    with pytest.raises(NotFound, match="used"):
        await app.remember(caller, RememberIn(used=["m_nosuchone"]))


async def test_wrong_ids_are_marked_for_confirmation(app: App, caller: Caller) -> None:
    stored = (await app.remember(caller, RememberIn(memories=["Bees never sleep."]))).results[0].id or ""
    await app.remember(caller, RememberIn(wrong=[stored]))
    marks = (await app.recall(caller, RecallIn(query="bees sleep"))).items[0].marks
    assert marks is not None and "confirm before use" in marks


async def test_a_memory_for_the_session_is_gone_when_the_session_ends(app: App, caller: Caller) -> None:
    given = RememberIn(memories=[MemoryIn(text="Use a silly tone today.", expires="session")])
    await app.remember(caller, given)
    assert (await app.recall(caller, RecallIn(query="silly tone"))).items
    await app.remember(caller, RememberIn(session="end"))
    assert (await app.recall(caller, RecallIn(query="silly tone"))).items == []


async def test_an_expiry_counts_from_its_first_millisecond(app: App, caller: Caller, clock: FakeClock) -> None:
    await app.remember(caller, RememberIn(memories=[MemoryIn(text="The code word is heron.", expires="PT1H")]))
    clock.advance(timedelta(hours=1) - timedelta(milliseconds=1))
    assert (await app.recall(caller, RecallIn(query="code word"))).items
    clock.advance(milliseconds=1)
    assert (await app.recall(caller, RecallIn(query="code word"))).items == []
    shown = await app.recall(caller, RecallIn(query="code word", include=["expired"]))
    assert [item.status for item in shown.items] == ["expired"]


async def test_a_new_session_name_begins_a_new_session(app: App, caller: Caller) -> None:
    await app.remember(caller, RememberIn(memories=["Monday talk."], session="monday"))
    await app.remember(caller, RememberIn(memories=["Tuesday talk."], session="tuesday"))
    found = await app.recall(caller, RecallIn(query="talk", session="monday"))
    assert [item.text for item in found.items] == ["Monday talk."]
    with pytest.raises(InvalidInput, match="no such session"):
        await app.recall(caller, RecallIn(query="talk", session="friday"))


async def test_without_an_embedder_memories_are_pending_and_found_by_text(
    app: App, caller: Caller, embedder: FakeEmbedder
) -> None:
    embedder.failing = True
    stored = (await app.remember(caller, RememberIn(memories=["The lamp is amber."]))).results[0]
    assert stored.actions == [Action.STORED, Action.PENDING]
    found = await app.recall(caller, RecallIn(query="amber lamp"))
    assert [item.id for item in found.items] == [stored.id]
    assert found.notice is not None and "text search alone" in found.notice


async def test_pending_memories_get_their_vectors_once_the_embedder_works(
    app: App, caller: Caller, embedder: FakeEmbedder
) -> None:
    embedder.failing = True
    await app.remember(caller, RememberIn(memories=["The lamp is amber."]))
    embedder.failing = False
    await app.remember(caller, RememberIn(memories=["The chair is teal."]))
    await app.settled()
    assert (await (await app.parts()).store.memories.count(caller.grant))["pending"] == 0


async def test_of_a_very_large_call_everything_is_stored_and_the_rest_embedded_afterwards(
    app: App, caller: Caller
) -> None:
    given = [f"Shelf {number} holds book {number * 7}" for number in range(10_000)]
    results = (await app.remember(caller, RememberIn(memories=list(given)))).results
    assert len(results) == 10_000
    assert sum(Action.PENDING in result.actions for result in results) == 10_000 - 256
    found = await app.recall(caller, RecallIn(query="book 69993", limit=1))
    assert found.items[0].text == "Shelf 9999 holds book 69993"


async def test_sending_the_end_of_a_stretch_again_leaves_its_episode_whole(app: App, caller: Caller) -> None:
    turns = [TurnIn(role="user", text=f"Bike {n} is green.", at=f"2026-01-0{n}T10:00:00Z") for n in range(1, 6)]
    first = await app.remember(caller, RememberIn(messages=turns, thread="t"))
    again = await app.remember(caller, RememberIn(messages=turns[-1:], thread="t"))
    assert first.episode is not None
    assert again.episode == first.episode
    opened = await app.open_episode(caller, OpenIn(id=first.episode.id))
    assert opened.turns is not None
    assert len(opened.turns) == 5


async def test_an_overlap_becomes_an_episode_of_the_new_turns_only(app: App, caller: Caller) -> None:
    await app.remember(caller, RememberIn(messages=said("Alpha is first.", "Beta is second."), thread="t"))
    done = await app.remember(caller, RememberIn(messages=said("Beta is second.", "Gamma is third."), thread="t"))
    assert done.episode is not None
    opened = await app.open_episode(caller, OpenIn(id=done.episode.id))
    assert opened.turns is not None
    assert [turn.text for turn in opened.turns] == ["Gamma is third."]


@pytest.mark.parametrize(
    "field",
    [{"tags": ["a <private>b</private>"]}, {"scope": TOKEN}, {"ref": TOKEN}, {"key": TOKEN}, {"kind": "<private>x"}],
)
async def test_names_with_a_secret_or_private_text_are_refused(app: App, caller: Caller, field: dict) -> None:
    with pytest.raises(InvalidInput, match="never stored"):
        await app.remember(caller, RememberIn(memories=[MemoryIn(text="Something harmless.", **field)]))


async def test_a_correction_by_the_agent_is_no_longer_verified_and_a_mark_changes_no_trust(
    app: App, caller: Caller
) -> None:
    given = MemoryIn(text="Lives in Riga.", source="user")
    first = (await app.remember(caller, RememberIn(memories=[given]))).results[0].id or ""
    await app.remember(caller, RememberIn(memories=[MemoryIn(id=first, source="user")]))
    await app.remember(caller, RememberIn(memories=[MemoryIn(id=first, pinned=True, source="agent")]))
    assert (await memory(app, caller, first)).trust == "verified"
    await app.remember(caller, RememberIn(memories=[MemoryIn(id=first, text="Lives in Oslo.")]))
    corrected = await memory(app, caller, first)
    assert (corrected.source, corrected.trust, corrected.confidence) == ("agent", "agent", 0.6)


async def test_a_ref_that_another_agents_private_memory_has_is_as_free_as_one_that_nobody_used(
    app: App, caller: Caller
) -> None:
    other = replace(caller, agent="another-agent", key="process-2")
    diary = MemoryIn(text="My diary says rain.", ref="day/1", privacy="private")
    first = (await app.remember(caller, RememberIn(memories=[diary]))).results[0]
    mine = (await app.remember(other, RememberIn(memories=[MemoryIn(text="Sun.", ref="day/1")]))).results[0]
    assert mine.actions == [Action.STORED]
    assert mine.id != first.id
    for who, text, stored in ((caller, "My diary says snow.", first), (other, "Fog.", mine)):
        again = (await app.remember(who, RememberIn(memories=[MemoryIn(text=text, ref="day/1")]))).results[0]
        assert (again.id, again.actions) == (stored.id, [Action.UPDATED])
        assert (await memory(app, caller, stored.id or "")).text == text
    await app.forget(caller, ForgetIn(ids=[first.id or ""], action="erase"))
    late = replace(caller, agent="a-third-agent", key="process-3")
    assert (await app.remember(late, RememberIn(memories=[MemoryIn(text="Hail.", ref="day/1")]))).results[
        0
    ].id == mine.id


@pytest.mark.parametrize(("action", "status"), [("archive", "archived"), ("expire", "expired")])
async def test_correcting_a_memory_that_was_put_aside_says_so(
    app: App, caller: Caller, action: ForgetAction, status: str
) -> None:
    stored = await app.remember(caller, RememberIn(memories=["The office is in Rome."]))
    memory_id = stored.results[0].id or ""
    await app.forget(caller, ForgetIn(ids=[memory_id], action=action))
    done = await app.remember(caller, RememberIn(memories=[MemoryIn(id=memory_id, text="The office is in Oslo.")]))
    assert done.results[0].actions == [Action.UPDATED]
    assert (done.results[0].reason or "").endswith(f"it is {status}: restore it to find it again")
