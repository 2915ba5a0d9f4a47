"""No word of what was erased or redacted is left: in no label, no reason, and in whatever form it was given."""

from pathlib import Path

import pytest

from middleout_mcp.app import App
from middleout_mcp.memory.contract import CompressIn, ForgetAction, ForgetIn, MemoryIn, OpenIn, RememberIn, TurnIn
from middleout_mcp.records import Caller
from tests.memory.test_forget import holding
from tests.memory.test_recall import file

pytestmark = pytest.mark.anyio
WORDS = {
    name: f"{name}quokka{n}x"
    for n, name in enumerate(
        "text tag key value scope holder role turn name listener field deep thread session line".split()
    )
}


def everything() -> RememberIn:
    """A call with a word of its own in every field that a caller fills."""
    said = TurnIn(
        role=WORDS["role"],
        text=f"I heard of the {WORDS['turn']} today",
        name=WORDS["name"],
        present=[WORDS["listener"]],
        data={WORDS["field"]: [{"é": WORDS["deep"]}]},
    )
    given = MemoryIn(
        text=f"About the {WORDS['text']}",
        tags=[WORDS["tag"]],
        key=WORDS["key"],
        value=WORDS["value"],
        scope=WORDS["scope"],
        known_by=[WORDS["holder"]],
        turns=[0],
    )
    return RememberIn(
        messages=[said],
        memories=[given],
        thread=WORDS["thread"],
        session=WORDS["session"],
        episode=f"Told of {WORDS['line']}",
    )


async def store_all(app: App, caller: Caller) -> list[str]:
    done = await app.remember(caller, everything())
    assert done.episode is not None
    return [done.episode.id, done.results[0].id or ""]


@pytest.mark.parametrize("word", WORDS.values())
async def test_no_reason_repeats_a_word_of_what_was_erased(app: App, caller: Caller, tmp_path: Path, word: str) -> None:
    bystander = await file(app, caller, "The kite is blue.")
    await app.forget(caller, ForgetIn(ids=bystander, action="demote", reason=f"like {word}"))
    await app.remember(caller, RememberIn(session="end"))
    ids = await store_all(app, caller)
    await app.remember(caller, RememberIn(memories=[MemoryIn(id=ids[1], text="Told anew.", key="other", tags=["new"])]))
    assert holding(tmp_path, word)
    await app.forget(caller, ForgetIn(ids=ids, action="erase", reason=f"all about {word}"))
    assert holding(tmp_path, word) == []


async def test_a_reason_that_repeats_nothing_is_kept(app: App, caller: Caller) -> None:
    ids = await store_all(app, caller)
    done = await app.forget(caller, ForgetIn(ids=ids, action="erase", reason="the user asked for it"))
    operation = await (await app.parts()).store.journal.operation(caller.grant, done.operation_id or "")
    assert operation is not None
    assert operation.reason == "the user asked for it"


@pytest.mark.parametrize("word", [word for name, word in WORDS.items() if name not in ("thread", "session")])
async def test_no_reason_run_or_session_repeats_a_word_that_was_redacted(
    app: App, caller: Caller, tmp_path: Path, word: str
) -> None:
    bystander = await file(app, caller, "The kite is blue.")
    await app.forget(caller, ForgetIn(ids=bystander, action="demote", reason=f"like {word}"))
    ids = await store_all(app, caller)
    await app.compress(caller, CompressIn(target=f"tag:{WORDS['tag']}"))
    await app.forget(caller, ForgetIn(ids=ids, action="redact", spans=[word], reason=f"about {word}"))
    await app.settled()
    assert holding(tmp_path, word) == []


async def test_a_session_named_after_what_was_redacted_loses_its_name(app: App, caller: Caller, tmp_path: Path) -> None:
    call = RememberIn(memories=["The Zanzibar plan is on."], session="Zanzibar talks")
    done = await app.remember(caller, call)
    await app.forget(caller, ForgetIn(ids=[done.results[0].id or ""], action="redact", spans=["Zanzibar"]))
    await app.remember(caller, RememberIn(memories=["The kite is blue."]))
    assert holding(tmp_path, "Zanzibar") == []


@pytest.mark.parametrize(
    ("given", "spans", "left"),
    [
        (MemoryIn(text="Cafe\u0301 Zo\u0308e plan"), ["Zo\u0308e"], "Zö"),
        (MemoryIn(text="The wombat is on"), ["wom\u200bbat"], "wombat"),
        (MemoryIn(text="line wombat\r\nline two"), ["wombat\r\nline"], "wombat"),
        (MemoryIn(text="A note", key="Project-Zanzibar"), ["Project-Zanzibar"], "zanzibar"),
        (MemoryIn(text="A note", key="k", value="x²  area"), ["x²  area"], "x²"),
        (MemoryIn(text="A note", tags=["x² formula"]), ["x² formula"], "x2"),
        (MemoryIn(text="A note", scope="ＦＵＬＬ"), ["ＦＵＬＬ"], "FULL"),
        (MemoryIn(text="A note", known_by=["Zo\u0308e"]), ["Zo\u0308e"], "Zö"),
    ],
)
async def test_a_span_is_found_in_the_form_in_which_it_was_stored(
    app: App, caller: Caller, tmp_path: Path, given: MemoryIn, spans: list[str], left: str
) -> None:
    ids = await file(app, caller, given)
    await app.settled()
    assert holding(tmp_path, left)
    await app.forget(caller, ForgetIn(ids=ids, action="redact", spans=spans))
    await app.settled()
    assert holding(tmp_path, left) == []
    assert "[redacted]" in (await app.open_episode(caller, OpenIn(id=ids[0]))).model_dump_json()


async def test_redacting_the_winner_of_a_merge_covers_the_merged_copies(
    app: App, caller: Caller, tmp_path: Path
) -> None:
    ids = await file(app, caller, "Pet is quoll55 one.", "The pet: quoll55.", "A pet called quoll55.")
    action: ForgetAction = "merge"
    await app.forget(caller, ForgetIn(ids=ids[:2], action=action))
    winner = (await app.open_episode(caller, OpenIn(id=ids[0]))).details
    assert winner is not None
    first = winner.get("merged_into", ids[0])
    await app.forget(caller, ForgetIn(ids=[first, ids[2]], action=action))
    top = (await app.open_episode(caller, OpenIn(id=first))).details
    assert top is not None
    await app.forget(caller, ForgetIn(ids=[top.get("merged_into", first)], action="redact", spans=["quoll55"]))
    await app.settled()
    assert holding(tmp_path, "quoll55") == []
