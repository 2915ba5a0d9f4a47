"""Damage in the middle of the file, and files beside it in the way: an answer or one sentence, never a crash."""

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from middleout_mcp.adapters.sqlite import connection
from middleout_mcp.errors import StoreCorrupt, StoreUnavailable
from middleout_mcp.ports import Store
from middleout_mcp.records import Status
from tests.contract.builders import LIVE, OURS, episode, found, memory, open_sqlite, operation, put, turn, vector

pytestmark = pytest.mark.anyio
PAGE = 4096
EVERYTHING = replace(LIVE, statuses=tuple(Status), sensitive=True)


async def filled(folder: Path) -> str:
    """A file with some of everything; the id of its first memory."""
    store = await open_sqlite(folder)
    many = [memory(f"lake {n} " + "house word " * 60, tags=("a",), thread="t", ref=f"r{n}") for n in range(20)]
    turns = tuple(turn(n + 1, "said " * 99, data={"n": [n]}) for n in range(20))
    stretch = episode(1, 20, memory_ids=(many[0].id,))
    await put(store, *many, vectors={each.id: vector(1, n) for n, each in enumerate(many)}, turns=turns)
    await put(store, replace(many[0], text="other", version=2), episodes=(stretch,))
    await store.control.close()
    return many[0].id


def calls(store: Store, memory_id: str) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Calls that together read and write every table."""
    new = memory("new lake")
    return {
        "find": lambda: store.memories.find(OURS, EVERYTHING, limit=99),
        "versions": lambda: store.memories.versions(OURS, memory_id),
        "same_text": lambda: store.memories.same_text(OURS, ["other"]),
        "count": lambda: store.memories.count(OURS),
        "match": lambda: store.search.match(OURS, ["lake", "house"], EVERYTHING, 9),
        "nearest": lambda: store.search.nearest(OURS, vector(1), LIVE, 9),
        "nearest of all": lambda: store.search.nearest(OURS, vector(1), EVERYTHING, 9),
        "turns": lambda: store.threads.turns(OURS, "t"),
        "episodes": lambda: store.threads.episodes(OURS, "t"),
        "operations": lambda: store.journal.operations(OURS),
        "health": store.control.health,
        "commit": lambda: put(store, new, vectors={new.id: vector(1)}),
        "erase": lambda: store.memories.erase(OURS, [memory_id], [], operation(kind="erase")),
    }


async def tried(call: Callable[[], Awaitable[Any]]) -> bool:
    """Whether a call answered; else it must say that the file is damaged."""
    try:
        await call()
    except StoreCorrupt:
        return False
    return True


def bent(page: bytes, how: int, random: Random) -> bytes:
    """A damaged page: overwritten, empty, or with some bytes changed."""
    if how == 0:
        return b"\xee" * PAGE
    if how == 1:
        return bytes(PAGE)
    changed = bytearray(page)
    for _ in range(40):
        changed[random.randrange(100, PAGE)] ^= random.randrange(1, 256)
    return bytes(changed)


async def test_whatever_page_is_damaged_each_call_answers_or_says_that_the_file_is_damaged(tmp_path: Path) -> None:
    memory_id = await filled(tmp_path)
    whole = (tmp_path / "memory.db").read_bytes()
    random = Random(7)
    refused = 0
    for number in range(1, len(whole) // PAGE):
        folder = tmp_path / str(number)
        folder.mkdir()
        start = number * PAGE
        page = bent(whole[start : start + PAGE], number % 3, random)
        (folder / "memory.db").write_bytes(whole[:start] + page + whole[start + PAGE :])
        try:
            store = await open_sqlite(folder)
        except StoreCorrupt:
            refused += 1
            continue
        answered = [await tried(call) for call in calls(store, memory_id).values()]
        refused += answered.count(False)
        await store.control.close()
    assert refused > 50


async def test_damage_in_the_log_of_operations_keeps_no_memory_from_being_read(tmp_path: Path) -> None:
    await filled(tmp_path)
    raw = connection.connect(tmp_path / "memory.db", writing=False, synchronous="full")
    page = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'operation'").get
    raw.close()
    content = bytearray((tmp_path / "memory.db").read_bytes())
    content[(page - 1) * PAGE : page * PAGE] = b"\xee" * PAGE
    (tmp_path / "memory.db").write_bytes(content)
    store = await open_sqlite(tmp_path)
    assert len(await found(store, LIVE)) == 20
    with pytest.raises(StoreCorrupt):
        await put(store, memory("new"))
    await store.control.close()


async def test_an_erase_whose_tombstones_cannot_be_written_stands_and_is_finished_later(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path)
    gone, clean = memory("axolotl"), memory("axolotl two")
    await put(store, gone, clean)
    (tmp_path / "tombstones.log").mkdir()
    erased = await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"))
    assert not erased.complete
    await store.memories.rewrite(OURS, [replace(clean, text="two", version=2)], [], [], operation(kind="redact"))
    assert await found(store, LIVE) == ["two"]
    with pytest.raises(StoreUnavailable, match=r"tombstones\.log is in the way"):
        await store.memories.finish_erasures()
    (tmp_path / "tombstones.log").rmdir()
    assert await store.memories.finish_erasures()
    assert (tmp_path / "tombstones.log").read_text().split() == [gone.id]
    await store.control.close()
    assert not [path for path in tmp_path.iterdir() if b"axolotl" in path.read_bytes()]


async def test_a_folder_in_the_place_of_the_journal_is_told(tmp_path: Path) -> None:
    await (await open_sqlite(tmp_path)).control.close()
    (tmp_path / "memory.db-wal").mkdir()
    with pytest.raises(StoreUnavailable, match=r"memory\.db"):
        await open_sqlite(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
@pytest.mark.parametrize("shut", ["memory.db", "."])
async def test_what_this_user_may_not_read_is_told_with_the_mend(tmp_path: Path, shut: str) -> None:
    home = tmp_path / "home"
    await (await open_sqlite(home)).control.close()
    (home / shut).chmod(0)
    with pytest.raises(StoreUnavailable, match="MIDDLEOUT_HOME"):
        await open_sqlite(home)
    (home / shut).chmod(0o700)
