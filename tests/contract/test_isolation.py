"""An id of another namespace is answered, by every method of the store, as an id that never existed."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from middleout_mcp.errors import InvalidInput, MiddleoutError
from middleout_mcp.ports import Store
from middleout_mcp.records import Change, Grant, Memory, Run, Status, Use
from tests.contract.builders import (
    LIVE,
    NOW,
    OURS,
    STORES,
    THEIRS,
    change,
    episode,
    memory,
    operation,
    session,
    turn,
    vector,
)

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)
NAMES = {"memory": "m_x", "episode": "e_x", "thread": "t_x", "session": "s_x", "run": "run_x", "operation": "op_x"}
RUN = Run(id=NAMES["run"], namespace="ours", status="planned", target="t", plan={}, created_at=NOW, updated_at=NOW)
UNKNOWN = {name: f"{foreign[:-1]}y" for name, foreign in NAMES.items()}


def contents(grant: Grant, words: list[str], names: dict[str, str]) -> tuple[Any, list[Any]]:
    """One of everything with these ids, and memories of these words."""
    first = memory(
        words[0],
        grant,
        id=names["memory"],
        ref="ref_" + names["memory"],
        tags=tuple(words),
        thread=names["thread"],
        turns=(1,),
    )
    stretch = episode(1, 1, grant, id=names["episode"], thread=names["thread"], key="key_" + names["memory"])
    running = session(grant, id=names["session"])
    others = [memory(word, grant, id=f"{names['memory']}{n}") for n, word in enumerate(words)]
    full = change(
        first,
        *others,
        grant=grant,
        vectors={first.id: vector(1)},
        turns=tuple(turn(n, word, thread=names["thread"]) for n, word in enumerate(words, 1)),
        episodes=(stretch,),
        session=running,
    )
    full = replace(full, operation=operation(grant, id=names["operation"]))
    return full, [first, stretch, running]


async def fill(store: Store, grant: Grant, words: list[str], names: dict[str, str]) -> Memory:
    full, (first, _, _) = contents(grant, words, names)
    await store.memories.commit(grant, full)
    await store.control.save_run(grant, replace(RUN, id=names["run"], namespace=grant.write))
    return first


def calls(store: Store, names: dict[str, str], word: str) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Every method that takes an id or looks for content, asked by our grant for these ids."""
    at = LIVE
    everything = replace(at, statuses=tuple(Status), sensitive=True, ended_sessions=False)
    rewritten = memory("x", id=names["memory"], version=2)
    return {
        "get": lambda: store.memories.get(OURS, [names["memory"]]),
        "versions": lambda: store.memories.versions(OURS, names["memory"]),
        "by_ref": lambda: store.memories.by_ref(OURS, ["ref_" + names["memory"]], agent="ann"),
        "find by thread": lambda: store.memories.find(OURS, replace(everything, thread=names["thread"]), limit=9),
        "find by session": lambda: store.memories.find(OURS, replace(at, session=names["session"]), limit=9),
        "rewrite": lambda: store.memories.rewrite(OURS, [rewritten], [], [], operation(kind="redact")),
        "rewrite turn": lambda: store.memories.rewrite(
            OURS, [], [turn(1, "x", thread=names["thread"])], [], operation(kind="redact")
        ),
        "rewrite episode": lambda: store.memories.rewrite(
            OURS, [], [], [episode(1, 1, id=names["episode"])], operation(kind="redact")
        ),
        "erase": lambda: store.memories.erase(OURS, [names["memory"]], [], operation(kind="erase")),
        "erase episode": lambda: store.memories.erase(OURS, [], [names["episode"]], operation(kind="erase")),
        "thread": lambda: store.threads.thread(OURS, names["thread"]),
        "turns": lambda: store.threads.turns(OURS, names["thread"]),
        "tail": lambda: store.threads.tail(OURS, names["thread"], 9),
        "episode": lambda: store.threads.episode(OURS, [names["episode"]]),
        "episodes": lambda: store.threads.episodes(OURS, names["thread"]),
        "episode_by_key": lambda: store.threads.episode_by_key(OURS, names["thread"], "key_" + names["memory"]),
        "vectors": lambda: store.search.vectors(OURS, [names["memory"]]),
        "match": lambda: store.search.match(OURS, ["foreignword"], everything, 9),
        "operation": lambda: store.journal.operation(OURS, names["operation"]),
        "operations": lambda: store.journal.operations(OURS, memory_id=names["memory"]),
        "undo": lambda: store.journal.undo(OURS, names["operation"], operation(kind="restore")),
        "note_uses": lambda: store.journal.note_uses(
            OURS, [Use(memory_id=names["memory"], session=names["session"], at=NOW, weight=1.0)]
        ),
        "run": lambda: store.control.run(OURS, names["run"]),
    }


def foreign_writes(store: Store, ours: Memory) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Every method that writes a record, by our grant, with the record or the operation of another namespace."""
    run = replace(RUN, namespace="theirs")
    named = memory("x", THEIRS, id=NAMES["memory"], version=2)
    gone, foreign = [ours.id], operation(THEIRS)
    return {
        "commit": lambda: store.memories.commit(OURS, change(named)),
        "commit episode": lambda: store.memories.commit(OURS, change(episodes=(episode(1, 1, THEIRS),))),
        "commit session": lambda: store.memories.commit(OURS, change(session=session(THEIRS))),
        "commit operation": lambda: store.memories.commit(OURS, Change(operation=foreign)),
        "rewrite": lambda: store.memories.rewrite(OURS, [named], [], [], operation()),
        "rewrite episode": lambda: store.memories.rewrite(OURS, [], [], [episode(1, 1, THEIRS)], operation()),
        "rewrite operation": lambda: store.memories.rewrite(OURS, [replace(ours, version=2)], [], [], foreign),
        "erase operation": lambda: store.memories.erase(OURS, gone, [], foreign),
        "undo operation": lambda: store.journal.undo(OURS, f"{NAMES['operation']}_own", foreign),
        "save_session": lambda: store.threads.save_session(OURS, session(THEIRS, id=NAMES["session"])),
        "save_run": lambda: store.control.save_run(OURS, run),
    }


async def outcome(call: Callable[[], Awaitable[Any]], names: dict[str, str]) -> str:
    """What a call gives or raises, without the ids that were asked for."""
    try:
        told = repr(await call())
    except MiddleoutError as error:
        told = f"{type(error).__name__}: {error}"
    for name in names.values():
        told = told.replace(name, "ID")
    return told


async def state(store: Store, grant: Grant) -> list[Any]:
    everything = replace(LIVE, statuses=tuple(Status), sensitive=True)
    return [
        await store.memories.find(grant, everything, limit=99, order="importance"),
        await store.memories.count(grant),
        await store.threads.turns(grant, NAMES["thread"]),
        await store.threads.episodes(grant, NAMES["thread"]),
        await store.threads.sessions(grant),
        await store.journal.operations(grant),
        await store.control.run(grant, NAMES["run"]),
    ]


async def compare(opening: Callable[[Path], Awaitable[Store]], ours: list[str], theirs: list[str]) -> None:
    with TemporaryDirectory() as folder:
        store = await opening(Path(folder))
        own = {name: f"{each}_own" for name, each in NAMES.items()}
        mine = await fill(store, OURS, ours, own)
        await fill(store, THEIRS, [f"foreignword {word}" for word in theirs], NAMES)
        before = await state(store, THEIRS)
        foreign, unknown = calls(store, NAMES, theirs[0]), calls(store, UNKNOWN, theirs[0])
        for name in foreign:
            assert await outcome(foreign[name], NAMES) == await outcome(unknown[name], UNKNOWN), name
        own_before = await state(store, OURS)
        for name, write in foreign_writes(store, mine).items():
            with pytest.raises(InvalidInput, match="'ours' may be written"):
                await write()
            assert await state(store, OURS) == own_before, name
        everything = replace(LIVE, statuses=tuple(Status), sensitive=True)
        assert {each.namespace for each in await store.memories.find(OURS, everything, limit=99)} == {"ours"}
        assert len(await store.search.nearest(OURS, vector(1), everything, 99)) == 1
        assert set(await store.memories.same_text(OURS, [f"foreignword {word}" for word in theirs])) == set()
        assert await state(store, THEIRS) == before
        await store.memories.commit(OURS, contents(OURS, ours, NAMES)[0])  # the foreign ids are free here
        assert await state(store, THEIRS) == before
        await store.control.close()


@pytest.mark.parametrize("opening", STORES.values(), ids=STORES)
@settings(max_examples=12, deadline=None)
@given(ours=st.lists(WORDS, min_size=1, max_size=4), theirs=st.lists(WORDS, min_size=1, max_size=4))
def test_foreign_ids_are_answered_like_unknown_ones_and_foreign_content_stays(
    opening: Callable[[Path], Awaitable[Store]], ours: list[str], theirs: list[str]
) -> None:
    anyio.run(compare, opening, ours, theirs)
