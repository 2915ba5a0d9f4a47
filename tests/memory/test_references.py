"""Callers' own references, and those of events filed by rule: neither is ever taken for the other."""

from pathlib import Path

import pytest

from middleout_mcp.adapters.sqlite import connection
from middleout_mcp.app import App
from middleout_mcp.errors import InvalidInput
from middleout_mcp.memory.contract import ForgetIn, MemoryIn, OpenIn, RecallIn, RememberIn, RememberOut, TurnIn
from middleout_mcp.records import Action, Caller
from tests.memory.test_forget import holding
from tests.memory.test_recall import file, texts

pytestmark = pytest.mark.anyio


async def said(app: App, caller: Caller, thread: str, *lines: str) -> RememberOut:
    """Messages without memories, which rules file."""
    turns = [TurnIn(role="user", text=line) for line in lines]
    return await app.remember(caller, RememberIn(messages=turns, thread=thread))


async def erase(app: App, caller: Caller, *ids: str | None) -> None:
    await app.forget(caller, ForgetIn(ids=[each for each in ids if each], action="erase"))


async def test_a_callers_own_reference_that_looks_like_a_turn_keeps_no_turn_from_being_filed(
    app: App, caller: Caller
) -> None:
    await file(app, caller, MemoryIn(text="Rent is due.", ref="conv9:2", kind="event"))
    done = await said(app, caller, "conv9", "The harbour froze in March.", "The ferry sank in April.")
    assert [result.actions for result in done.results] == [[Action.STORED], [Action.STORED]]
    assert "The ferry sank in April." in await texts(app, caller, query="ferry sank")
    again = await said(app, caller, "conv9", "The harbour froze in March.", "The ferry sank in April.")
    assert [result.id for result in again.results] == [result.id for result in done.results]
    opened = await app.open_episode(caller, OpenIn(id=done.results[1].id))
    assert opened.details is not None and opened.details["ref"] == "conv9:2"
    own = await app.remember(caller, RememberIn(memories=[MemoryIn(text="Rent was paid.", ref="conv9:2")]))
    assert own.results[0].actions == [Action.UPDATED]


async def test_an_erased_reference_of_the_callers_own_blocks_itself_and_no_turn(app: App, caller: Caller) -> None:
    ids = await file(app, caller, MemoryIn(text="Rent is due.", ref="conv9:1"))
    await erase(app, caller, *ids)
    done = await said(app, caller, "conv9", "The harbour froze in March.")
    assert done.results[0].actions == [Action.STORED]
    with pytest.raises(InvalidInput, match="erased"):
        await file(app, caller, MemoryIn(text="Rent is due.", ref="conv9:1"))


async def test_to_erase_a_thread_whole_takes_and_frees_no_reference_of_the_callers_own(
    app: App, caller: Caller
) -> None:
    ids = await file(app, caller, MemoryIn(text="Rent is due.", ref="proj:7"))
    await erase(app, caller, *ids)
    await file(app, caller, MemoryIn(text="Gas is due.", ref="proj:1", kind="event"))
    done = await said(app, caller, "proj", "The harbour froze in March.", "The ferry sank in April.")
    await erase(app, caller, done.episode.id if done.episode else None)
    assert await texts(app, caller, query="gas due") == ["Gas is due."]
    with pytest.raises(InvalidInput, match="erased"):
        await file(app, caller, MemoryIn(text="Rent is due.", ref="proj:7"))
    anew = await said(app, caller, "proj", "A new talk begins here.", "It is about the rent.")
    assert [result.actions for result in anew.results] == [[Action.STORED], [Action.STORED]]


async def test_events_that_were_filed_before_references_had_a_mark_are_still_known_as_such(
    app: App, caller: Caller, tmp_path: Path
) -> None:
    lines = ("The harbour froze in March.", "The ferry sank in April.")
    done = await said(app, caller, "quokka88", *lines)
    raw = connection.connect(tmp_path / "memory.db", writing=True, synchronous="full")
    raw.execute("UPDATE memory SET ref = substr(ref, 2)")
    assert raw.execute("SELECT group_concat(ref, ' ') FROM memory").get == "quokka88:1 quokka88:2"
    raw.close()
    again = await said(app, caller, "quokka88", *lines)
    assert [result.id for result in again.results] == [result.id for result in done.results]
    assert [result.actions for result in again.results] == [[Action.MERGED], [Action.MERGED]]
    turns = [TurnIn(role="user", text=lines[1])]
    given = RememberIn(memories=["A ship was lost."], messages=turns, thread="quokka88")
    (lost,) = (await app.remember(caller, given)).results
    await erase(app, caller, lost.id)
    assert await texts(app, caller, query="ferry sank") == []
    await erase(app, caller, done.episode.id if done.episode else None)
    assert (await app.recall(caller, RecallIn(query="harbour froze"))).items == []
    assert holding(tmp_path, "quokka88") == []


async def test_a_secret_redacted_from_a_turn_leaves_the_event_its_reference(app: App, caller: Caller) -> None:
    done = await said(app, caller, "conv9", "The harbour froze in March, said Zbigniew.")
    ids = [result.id for result in done.results if result.id]
    await app.forget(caller, ForgetIn(ids=ids, action="redact", spans=["Zbigniew"]))
    opened = await app.open_episode(caller, OpenIn(id=ids[0]))
    assert opened.details is not None and opened.details["ref"] == "conv9:1"


@pytest.mark.parametrize("names", ["ref", "id"])
async def test_two_texts_for_one_memory_in_a_call_are_refused_with_both_places_named(
    app: App, caller: Caller, names: str
) -> None:
    (kept,) = await file(app, caller, MemoryIn(text="The lift is old.", ref="lift"))
    name = {"ref": "new"} if names == "ref" else {"id": kept}
    given = [MemoryIn(text="The lift works.", **name), MemoryIn(text="Rain."), MemoryIn(text="The lift fell.", **name)]
    with pytest.raises(InvalidInput, match=rf"memories\[0\] and memories\[2\].* by their {names} .*differ in text"):
        await app.remember(caller, RememberIn(memories=[*given]))
    assert await texts(app, caller, query="lift rain") == ["The lift is old."]


async def test_an_id_and_the_reference_of_one_memory_in_a_call_are_seen_to_be_the_same(
    app: App, caller: Caller
) -> None:
    (kept,) = await file(app, caller, MemoryIn(text="The lift is old.", ref="lift"))
    given = [MemoryIn(text="The lift works.", id=kept), MemoryIn(text="The lift fell.", ref="lift")]
    with pytest.raises(InvalidInput, match="differ in text"):
        await app.remember(caller, RememberIn(memories=[*given]))


async def test_entries_for_one_memory_that_do_not_contradict_each_other_make_one_version(
    app: App, caller: Caller
) -> None:
    given = [
        MemoryIn(text="The lift works.", ref="lift"),
        MemoryIn(text="The lift works.", ref="lift", tags=["house"]),
        MemoryIn(text="The lift works.", ref="lift", importance=0.9),
    ]
    done = await app.remember(caller, RememberIn(memories=[*given]))
    assert [result.actions for result in done.results] == [[Action.STORED], [Action.UPDATED], [Action.UPDATED]]
    (stored,) = await (await app.parts()).store.memories.versions(caller.grant, done.results[0].id or "")
    assert (stored.tags, stored.importance) == (("house",), 0.9)
