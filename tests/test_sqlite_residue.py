"""A planted string is in the files of the store while it is stored, and in none once it was erased or redacted."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from middleout_mcp.adapters.sqlite import audit, connection, open_store, schema
from middleout_mcp.ports import Store
from middleout_mcp.records import Episode, Memory, Status
from tests.contract.builders import LIVE, OURS, episode, memory, operation, put, turn, vector

pytestmark = pytest.mark.anyio
WORD = "axolotlquux"  # one that the Porter stemmer leaves alone
EVERYTHING = replace(LIVE, statuses=tuple(Status), sensitive=True)


def holding(folder: Path) -> list[str]:
    """Names of the files that hold the word, or its CJK companion, in any encoding used."""
    needles = [WORD.encode(), WORD.encode("utf-16-le"), "秘密鍵".encode(), "秘密".encode(), b"\\u79d8\\u5bc6"]
    return sorted(
        path.name for path in folder.iterdir() if any(needle in path.read_bytes().lower() for needle in needles)
    )


def planted(**fields: Any) -> Memory:
    """A memory with the word in every field that takes a text of its own."""
    given = {
        "tags": (f"{WORD} tag", "秘密鍵"),
        "key": f"{WORD} key",
        "value": f"{WORD} value",
        "scope": f"{WORD} scope",
        "known_by": (f"{WORD} holder",),
        "thread": "t",
        "turns": (1, 2),
    }
    return memory(f"The {WORD} text: 秘密鍵", **{**given, **fields})


TURNS = (
    turn(1, f"{WORD} said 秘密鍵", name=f"{WORD} name", present=(f"{WORD} witness",), data={WORD: ["秘密鍵"]}),
    turn(2, f"{WORD} again"),
    turn(3, "rain"),
)


async def plant(store: Store) -> tuple[Memory, Episode]:
    """The word in text, earlier versions, undo content, turns and an episode's line, key and undo content."""
    first = planted()
    stretch = episode(1, 2, line=f"{WORD} line", key=f"turns:{WORD}", memory_ids=(first.id,))
    vectors = {first.id: vector(1)}
    await put(store, first, vectors=vectors, episodes=(stretch,), turns=TURNS)
    second = replace(first, text=f"Changed {WORD}.", version=2)
    done = await put(store, second, vectors=vectors, episodes=(replace(stretch, line=f"Another {WORD} line"),))
    await store.journal.undo(OURS, done.id, operation(kind="restore"))
    summary = memory(f"Summary of {WORD}", parents=(first.id,))
    copy = memory(f"Copy of {WORD}", merged_into=first.id, status=Status.SUPERSEDED)
    await put(store, summary, copy, memory("bystander"))
    return first, stretch


async def opened(folder: Path) -> Store:
    return await open_store(folder / "memory.db", embedder_name="fake-words", dimension=8)


async def by_memory(store: Store, first: Memory, stretch: Episode) -> None:
    assert (await store.memories.erase(OURS, [first.id], [], operation(kind="erase"))).complete


async def by_episode(store: Store, first: Memory, stretch: Episode) -> None:
    assert (await store.memories.erase(OURS, [], [stretch.id], operation(kind="erase"))).complete


async def by_rewriting(store: Store, first: Memory, stretch: Episode) -> None:
    """As redaction does: what is derived and the merged copy are erased, everything else is overwritten."""
    derived = [each.id for each in await store.memories.find(OURS, EVERYTHING, limit=9) if WORD in each.text]
    await store.memories.erase(OURS, [each for each in derived if each != first.id], [], operation(kind="erase"))
    clean = replace(
        first, text="[redacted]", tags=(), key=None, value=None, scope=None, known_by=None, version=4, redacted=True
    )
    turns = [turn(seq, "[redacted]") for seq in (1, 2)]
    await store.memories.rewrite(OURS, [clean], turns, [replace(stretch, line="[redacted]")], operation(kind="redact"))


@pytest.mark.parametrize("remove", [by_memory, by_episode, by_rewriting])
async def test_no_file_holds_the_word_afterwards(
    tmp_path: Path, remove: Callable[[Store, Memory, Episode], Awaitable[None]]
) -> None:
    store = await opened(tmp_path)
    planted_ = await plant(store)
    assert holding(tmp_path)
    await remove(store, *planted_)
    assert holding(tmp_path) == []
    counts = await store.memories.count(OURS)
    assert counts["live"] >= 1
    await store.control.close()
    assert holding(tmp_path) == []
    assert (tmp_path / "memory.db").stat().st_size > 0
    raw = connection.connect(tmp_path / "memory.db", writing=True, synchronous="full")
    assert audit.first_fault(raw, tmp_path) is None
    assert raw.execute("PRAGMA integrity_check").get == "ok"
    raw.close()


async def test_the_word_is_found_in_the_file_itself_while_it_is_stored(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await plant(store)
    await store.control.close()
    assert holding(tmp_path) == ["memory.db"]


async def test_a_vector_leaves_no_bytes_behind_either(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    gone, left = memory("gone"), memory("left")
    peculiar = vector(0.123, 0.456, 0.789, 0.321, 0.654, 0.987, 0.111, 0.222)
    await put(store, gone, left, vectors={gone.id: peculiar, left.id: vector(1)})
    assert any(peculiar in path.read_bytes() for path in tmp_path.iterdir())
    await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"))
    assert not [path.name for path in tmp_path.iterdir() if peculiar in path.read_bytes()]
    await store.control.close()


async def test_what_a_long_text_took_in_overflow_pages_is_overwritten(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    gone = memory(f"{WORD} " * 20_000)
    await put(store, gone)
    await put(store, replace(gone, text="short", version=2))
    await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"))
    await store.control.close()
    assert holding(tmp_path) == []


async def test_a_tombstone_keeps_the_reference_and_nothing_of_the_text(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    gone = planted(ref="crm/17", turns=(), thread=None)
    await put(store, gone)
    await store.memories.erase(OURS, [gone.id], [], operation(kind="erase", reason="asked"))
    await store.control.close()
    assert holding(tmp_path) == []
    raw = connection.connect(tmp_path / "memory.db", writing=True, synchronous="full")
    assert schema.check(raw, tmp_path) == len(schema.MIGRATIONS)
    assert raw.execute("SELECT id, ref, reason FROM tombstone").fetchall() == [(gone.id, "crm/17", "asked")]
    raw.close()


async def test_many_memories_erased_one_by_one_leave_nothing_in_the_text_index(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    many = [memory(f"{WORD}{number} among words {number}") for number in range(60)]
    for each in many:
        await put(store, each)
    for each in many:
        await store.memories.erase(OURS, [each.id], [], operation(kind="erase"))
    assert holding(tmp_path) == []
    await store.control.close()
