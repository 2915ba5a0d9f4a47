"""Hiding, archiving, merging, redacting, erasing and restoring."""

from pathlib import Path

import pytest

from middleout_mcp.app import App
from middleout_mcp.errors import InvalidInput, NotFound
from middleout_mcp.memory.contract import CompressIn, ForgetIn, MemoryIn, OpenIn, RecallIn, RememberIn, TurnIn
from middleout_mcp.records import Caller
from tests.memory.test_recall import file, texts

pytestmark = pytest.mark.anyio


def holding(folder: Path, text: str) -> list[str]:
    """Names of the files below `folder` that hold `text`."""
    return [path.name for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


async def test_without_ids_nothing_is_changed_and_the_last_memories_are_offered(app: App, caller: Caller) -> None:
    await file(app, caller, *(f"Note {number} about chess" for number in range(7)))
    offered = await app.forget(caller, ForgetIn(action="erase"))
    assert offered.candidates is not None and len(offered.candidates) == 5
    assert offered.candidates[0].text == "Note 6 about chess"
    assert (offered.affected, offered.operation_id) == (None, None)
    assert len(await texts(app, caller, query="chess note")) == 7


async def test_a_query_offers_candidates_and_changes_nothing(app: App, caller: Caller) -> None:
    ids = await file(app, caller, "The gym costs 30 euros.", "Soup needs salt.")
    offered = await app.forget(caller, ForgetIn(query="gym costs", action="erase"))
    assert offered.candidates is not None and [one.id for one in offered.candidates] == ids[:1]
    assert len(await texts(app, caller, query="gym costs")) == 1


@pytest.mark.parametrize("action", ["archive", "expire"])
async def test_what_was_put_aside_leaves_recall_and_restore_brings_it_back(
    app: App, caller: Caller, action: str
) -> None:
    ids = await file(app, caller, "The gym costs 30 euros.")
    done = await app.forget(caller, ForgetIn(ids=ids, action=action))  # type: ignore[arg-type]
    assert done.affected == ids
    assert await texts(app, caller, query="gym costs") == []
    await app.forget(caller, ForgetIn(ids=ids, action="restore"))
    assert await texts(app, caller, query="gym costs") == ["The gym costs 30 euros."]


@pytest.mark.parametrize("action", ["archive", "expire", "suppress", "demote"])
async def test_an_operation_is_undone_to_the_same_state(app: App, caller: Caller, action: str) -> None:
    ids = await file(app, caller, MemoryIn(text="The gym costs 30 euros.", tags=["money"]))
    store = (await app.parts()).store.memories
    before = (await store.get(caller.grant, ids))[0]
    done = await app.forget(caller, ForgetIn(ids=ids, action=action))  # type: ignore[arg-type]
    await app.forget(caller, ForgetIn(ids=[done.operation_id or ""], action="restore"))
    after = (await store.get(caller.grant, ids))[0]
    assert (after.status, after.tags, after.demoted, after.suppressed_in, after.expires_at, after.text) == (
        before.status,
        before.tags,
        before.demoted,
        before.suppressed_in,
        before.expires_at,
        before.text,
    )


async def test_undoing_a_remember_takes_its_memories_out_of_recall(app: App, caller: Caller) -> None:
    done = await app.remember(caller, RememberIn(memories=["Added by mistake."]))
    await app.forget(caller, ForgetIn(ids=[done.operation_id or ""], action="restore"))
    assert await texts(app, caller, query="added by mistake") == []


async def test_merge_keeps_the_best_source_and_unites_the_rest(app: App, caller: Caller) -> None:
    ids = await file(
        app,
        caller,
        MemoryIn(text="Prefers Python.", tags=["code"]),
        MemoryIn(text="Likes Python best.", source="user", tags=["language"]),
    )
    done = await app.forget(caller, ForgetIn(ids=ids, action="merge"))
    found = (await app.recall(caller, RecallIn(query="Python"))).items
    assert [item.id for item in found] == [ids[1]]
    assert found[0].represents == 2
    shown = await app.recall(caller, RecallIn(query="Python", include=["superseded"]))
    assert {item.id for item in shown.items} == set(ids)
    await app.forget(caller, ForgetIn(ids=[done.operation_id or ""], action="restore"))
    assert len((await app.recall(caller, RecallIn(query="Python"))).items) == 2


# CASE 34
async def test_an_id_that_was_just_listed_can_be_deleted(app: App, caller: Caller) -> None:
    await file(app, caller, *(f"Page {number} of the atlas" for number in range(10)))
    listed = (await app.recall(caller, RecallIn(query="page of the atlas", limit=10))).items
    done = await app.forget(caller, ForgetIn(ids=[item.id for item in listed], action="erase"))
    assert done.affected is not None and len(done.affected) == 10
    assert await texts(app, caller, query="page of the atlas") == []


async def test_a_planted_text_is_in_the_files_before_an_erase_and_in_none_afterwards(
    app: App, caller: Caller, tmp_path: Path
) -> None:
    planted = "xylophonic7zebra"
    turns = [TurnIn(role="user", text=f"My nickname is {planted}.", data={"again": planted}, name=planted)]
    done = await app.remember(caller, RememberIn(messages=turns, episode=f"Nickname {planted} told.", thread="t"))
    given = MemoryIn(text=f"Nickname: {planted}", tags=[planted], key=planted, value=planted, turns=[0])
    extra = await app.remember(caller, RememberIn(memories=[given], messages=turns, thread="t"))
    ids = [done.results[0].id or "", extra.results[0].id or ""]
    await app.remember(caller, RememberIn(memories=[MemoryIn(id=ids[1], text=f"The nickname {planted}, corrected")]))
    await app.recall(caller, RecallIn(query=planted))
    await app.settled()
    assert holding(tmp_path, planted)
    gone = await app.forget(caller, ForgetIn(ids=ids, action="erase"))
    assert gone.erasure == "complete"
    assert holding(tmp_path, planted) == []
    assert await texts(app, caller, query=planted) == []
    for target in ids:
        with pytest.raises(NotFound):
            await app.open_episode(caller, OpenIn(id=target))


async def test_erasing_an_episode_takes_its_turns_line_and_memories(app: App, caller: Caller, tmp_path: Path) -> None:
    turns = [TurnIn(role="user", text="The vault word is quokka88."), TurnIn(role="user", text="It rains in Bergen.")]
    done = await app.remember(caller, RememberIn(messages=turns, thread="t"))
    assert done.episode is not None
    await app.forget(caller, ForgetIn(ids=[done.episode.id], action="erase"))
    assert holding(tmp_path, "quokka88") == []
    with pytest.raises(NotFound):
        await app.open_episode(caller, OpenIn(id=done.episode.id))


async def test_the_line_of_an_episode_that_lost_a_turn_is_written_from_the_rest(app: App, caller: Caller) -> None:
    turns = [TurnIn(role="user", text="The vault word is quokka88."), TurnIn(role="user", text="It rains in Bergen.")]
    done = await app.remember(caller, RememberIn(messages=turns, thread="t", episode="Vault word quokka88, rain"))
    await app.forget(caller, ForgetIn(ids=[done.results[0].id or ""], action="erase"))
    assert done.episode is not None
    opened = await app.open_episode(caller, OpenIn(id=done.episode.id))
    assert opened.line is not None and "Bergen" in opened.line and "quokka88" not in opened.line


async def test_an_erased_ref_stays_erased(app: App, caller: Caller) -> None:
    ids = await file(app, caller, MemoryIn(text="Lives in Riga.", ref="crm/9"))
    await app.forget(caller, ForgetIn(ids=ids, action="erase"))
    with pytest.raises(InvalidInput, match="erased"):
        await file(app, caller, MemoryIn(text="Lives in Riga.", ref="crm/9"))
    await file(app, caller, "Lives in Riga.")
    assert len(await texts(app, caller, query="lives in Riga")) == 1


async def test_an_erase_cannot_be_undone_and_says_so(app: App, caller: Caller) -> None:
    ids = await file(app, caller, "A thing to erase.")
    done = await app.forget(caller, ForgetIn(ids=ids, action="erase"))
    with pytest.raises(InvalidInput):
        await app.forget(caller, ForgetIn(ids=[done.operation_id or ""], action="restore"))


async def test_redact_removes_the_span_everywhere_and_keeps_the_rest(app: App, caller: Caller, tmp_path: Path) -> None:
    turns = [TurnIn(role="user", text="My landlord is called Zbigniewitz and he is kind.")]
    done = await app.remember(caller, RememberIn(messages=turns, thread="t", episode="Landlord Zbigniewitz is kind"))
    ids = [done.results[0].id or ""]
    await app.remember(caller, RememberIn(memories=[MemoryIn(id=ids[0], text="Landlord Zbigniewitz is very kind.")]))
    done_redact = await app.forget(caller, ForgetIn(ids=ids, action="redact", spans=["Zbigniewitz"]))
    await app.settled()
    assert holding(tmp_path, "Zbigniewitz") == []
    assert await texts(app, caller, query="landlord very kind") == ["Landlord [redacted] is very kind."]
    with pytest.raises(InvalidInput):
        await app.forget(caller, ForgetIn(ids=[done_redact.operation_id or ""], action="restore"))


async def test_redacting_what_is_not_there_changes_nothing(app: App, caller: Caller) -> None:
    ids = await file(app, caller, "Nothing to see.")
    with pytest.raises(InvalidInput, match="nothing was changed"):
        await app.forget(caller, ForgetIn(ids=ids, action="redact", spans=["absent"]))
    with pytest.raises(InvalidInput, match="no secret"):
        await app.forget(caller, ForgetIn(ids=ids, action="redact"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ids": []}, "ids is empty"),
        ({"ids": ["m_1"], "query": "x"}, "not both"),
        ({"query": " "}, "query is empty"),
        ({"ids": ["m_1"], "action": "merge"}, "at least two"),
        ({"ids": ["m_1"], "spans": ["x"]}, "belongs to action redact"),
        ({"ids": ["m_1"], "until": "step"}, "belongs to action suppress"),
        ({"ids": ["op_1"], "action": "archive"}, "can only be restored"),
    ],
)
async def test_arguments_that_do_not_fit_together_are_refused(
    app: App, caller: Caller, arguments: dict, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        await app.forget(caller, ForgetIn(**arguments))


@pytest.mark.parametrize("target", ["m_000000000", "e_000000000", "op_00000000", "nonsense", ""])
async def test_unknown_ids_are_refused_in_one_sentence(app: App, caller: Caller, target: str) -> None:
    action = "restore" if target.startswith("op_") else "archive"
    with pytest.raises(InvalidInput):
        await app.forget(caller, ForgetIn(ids=[target], action=action))  # type: ignore[arg-type]


async def test_a_reason_that_repeats_what_is_erased_is_not_kept(app: App, caller: Caller, tmp_path: Path) -> None:
    ids = await file(app, caller, "The alias is wombat77.")
    await app.forget(caller, ForgetIn(ids=ids, action="erase", reason="user wants wombat77 gone"))
    assert holding(tmp_path, "wombat77") == []
    other = await file(app, caller, "The alias is numbat88.")
    done = await app.forget(caller, ForgetIn(ids=other, action="erase", reason="privacy request"))
    operation = await (await app.parts()).store.journal.operation(caller.grant, done.operation_id or "")
    assert operation is not None
    assert operation.reason == "privacy request"


async def test_erasing_the_winner_of_a_merge_takes_the_merged_copies_along(
    app: App, caller: Caller, tmp_path: Path
) -> None:
    ids = await file(app, caller, MemoryIn(text="Pet is quoll55.", source="user"), "The pet: quoll55, a marsupial.")
    await app.forget(caller, ForgetIn(ids=ids, action="merge"))
    gone = await app.forget(caller, ForgetIn(ids=ids[:1], action="erase"))
    assert set(gone.affected or ()) == set(ids)
    assert holding(tmp_path, "quoll55") == []


async def test_an_archived_memory_is_offered_so_that_it_can_be_erased(app: App, caller: Caller) -> None:
    ids = await file(app, caller, "The gym costs 30 euros.")
    await app.forget(caller, ForgetIn(ids=ids))
    offered = await app.forget(caller, ForgetIn(query="gym costs", action="erase"))
    assert offered.candidates is not None
    assert [one.id for one in offered.candidates] == ids


def everything_named(planted: str, ref: str | None = None) -> RememberIn:
    """A call that puts `planted` into every field a caller fills."""
    said = TurnIn(role=f"role-{planted}", text=f"It was {planted}.", name=planted, present=[planted], data={planted: 1})
    given = MemoryIn(
        text=f"About {planted}",
        tags=[planted],
        key=planted,
        value=planted,
        scope=planted,
        known_by=[planted],
        turns=[0],
        ref=ref,
    )
    return RememberIn(
        messages=[said], memories=[given], thread=f"talk-{planted}", session=f"sit-{planted}", episode=f"Told {planted}"
    )


async def test_labels_that_repeat_what_was_erased_go_with_the_last_thing_they_name(
    app: App, caller: Caller, tmp_path: Path
) -> None:
    planted = "bandicoot31"
    done = await app.remember(caller, everything_named(planted))
    assert done.episode is not None
    ids = [done.episode.id, *(result.id or "" for result in done.results)]
    await app.compress(caller, CompressIn(target=f"tag:{planted}"))
    await app.forget(caller, ForgetIn(ids=ids[1:2], reason=f"{planted} is old"))
    await app.forget(caller, ForgetIn(ids=ids[1:2], action="restore"))
    await app.remember(caller, RememberIn(session="another sitting"))
    await app.settled()
    assert holding(tmp_path, planted)
    await app.forget(caller, ForgetIn(ids=ids, action="erase"))
    await app.recall(caller, RecallIn(query="anything"))
    await app.settled()
    assert holding(tmp_path, planted) == []


async def test_a_thread_keeps_its_name_while_something_of_it_is_left(app: App, caller: Caller) -> None:
    first = await app.remember(caller, RememberIn(messages=[TurnIn(role="user", text="Soup needs salt.")], thread="t"))
    await app.remember(caller, RememberIn(messages=[TurnIn(role="user", text="It rains in Bergen.")], thread="t"))
    assert first.episode is not None
    await app.forget(caller, ForgetIn(ids=[first.episode.id], action="erase"))
    assert [item.thread for item in (await app.recall(caller, RecallIn(query="rains in Bergen"))).items] == ["t"]


async def test_a_conversation_can_be_filed_anew_under_the_name_of_one_that_was_erased(app: App, caller: Caller) -> None:
    call = RememberIn(messages=[TurnIn(role="user", text="The vault word is quokka88.")], thread="t")
    first = await app.remember(caller, call)
    assert first.episode is not None
    await app.forget(caller, ForgetIn(ids=[first.episode.id], action="erase"))
    again = await app.remember(caller, call)
    assert again.episode is not None
    assert again.episode.id != first.episode.id
    assert len(await texts(app, caller, query="vault word")) == 1


async def test_redacting_takes_a_span_out_of_every_field_and_names_what_stays(
    app: App, caller: Caller, tmp_path: Path
) -> None:
    planted = "bandicoot31"
    done = await app.remember(caller, everything_named(planted, ref=f"crm/{planted}"))
    assert done.episode is not None
    redacted = await app.forget(caller, ForgetIn(ids=[done.episode.id], action="redact", spans=[planted]))
    assert redacted.notice is not None and "name of the thread" in redacted.notice
    opened = await app.open_episode(caller, OpenIn(id=done.episode.id))
    assert planted not in opened.model_dump_json().replace(f"talk-{planted}", "")
    assert opened.turns is not None and opened.turns[0].text == "It was [redacted]."
    kept = await app.open_episode(caller, OpenIn(id=done.results[0].id))
    assert kept.details is not None and "ref" not in kept.details


async def test_redacting_an_episode_leaves_memories_without_the_span_as_they_are(app: App, caller: Caller) -> None:
    turns = [TurnIn(role="user", text="Call Zbigniewitz."), TurnIn(role="user", text="It rains in Bergen.")]
    done = await app.remember(caller, RememberIn(messages=turns, thread="t"))
    assert done.episode is not None
    redacted = await app.forget(caller, ForgetIn(ids=[done.episode.id], action="redact", spans=["Zbigniewitz"]))
    assert redacted.affected == [done.results[0].id, done.episode.id]
    store = (await app.parts()).store.memories
    assert [memory.redacted for memory in await store.get(caller.grant, [done.results[1].id or ""])] == [False]


@pytest.mark.parametrize("spans", [["["], ["d"], ["redacted", "old"], ["redacted]", "dog"], ["[redacted] old"]])
async def test_marks_of_an_earlier_redaction_are_no_text_to_redact(app: App, caller: Caller, spans: list[str]) -> None:
    ids = await file(app, caller, "Abel [is] kind, Zbigniewitz old dog")
    await app.forget(caller, ForgetIn(ids=ids, action="redact", spans=["Zbigniewitz"]))
    await app.forget(caller, ForgetIn(ids=ids, action="redact", spans=spans))
    shown = (await app.recall(caller, RecallIn(query="Abel"))).items[0].text
    assert (
        shown
        == {
            "[": "Abel [redacted]is] kind, [redacted] old dog",
            "d": "Abel [is] kin[redacted], [redacted] ol[redacted] [redacted]og",
            "redacted": "Abel [is] kind, [redacted] [redacted] dog",
            "redacted]": "Abel [is] kind, [redacted] old [redacted]",
            "[redacted] old": "Abel [is] kind, [redacted] dog",
        }[spans[0]]
    )


async def test_undoing_says_what_was_erased_since(app: App, caller: Caller) -> None:
    done = await app.remember(caller, RememberIn(memories=["Soup needs salt.", "It rains in Bergen."]))
    await app.forget(caller, ForgetIn(ids=[done.results[0].id or ""], action="erase"))
    undone = await app.forget(caller, ForgetIn(ids=[done.operation_id or ""], action="restore"))
    assert undone.notice == "1 was erased or redacted since and cannot come back."
