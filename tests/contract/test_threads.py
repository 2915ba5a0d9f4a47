"""Threads, turns, episodes and sessions."""

from dataclasses import replace
from datetime import datetime

import pytest

from middleout_mcp.errors import Conflict, InvalidInput
from middleout_mcp.ports import Store
from middleout_mcp.records import Change, Grant, Turn
from tests.contract.builders import NOW, OURS, THEIRS, episode, later, operation, put, session, turn

pytestmark = pytest.mark.anyio
BOTH = Grant("ours", ("theirs", "ours"))


def at_time(at: datetime, *turns: Turn) -> Change:
    """A change at another time."""
    return Change(operation=operation(at=at), turns=turns)


async def test_a_turn_comes_back_as_it_was_given(store: Store) -> None:
    full = {"role": "tool", "at": later(milliseconds=1), "at_given": True, "name": "Bob>Alice", "present": ()}
    given = (turn(1, "Hi.", data=[None, 1.5, "é"], **full), turn(2, "", data=0), turn(3, "", data=False))
    await put(store, turns=given)
    assert await store.threads.turns(OURS, "t") == list(given)


@pytest.mark.parametrize("seqs", [(0,), (3, 2), (2, 4), (2, 2), (1,), (-1,)])
async def test_turns_out_of_line_are_a_conflict_and_none_of_them_is_kept(store: Store, seqs: tuple[int, ...]) -> None:
    await put(store, turns=(turn(1, "first"),))
    with pytest.raises(Conflict):
        await put(store, turns=tuple(turn(seq, "x") for seq in seqs))
    assert [each.seq for each in await store.threads.turns(OURS, "t")] == [1]


async def test_two_threads_are_appended_to_in_one_change(store: Store) -> None:
    await put(store, turns=(turn(1, "a"), turn(1, "b", thread="u"), turn(2, "c"), turn(2, "d", thread="u")))
    assert [each.text for each in await store.threads.turns(OURS, "u")] == ["b", "d"]
    assert [each.text for each in await store.threads.turns(OURS, "t")] == ["a", "c"]


async def test_slices_of_a_thread_stay_within_it(store: Store) -> None:
    await put(store, turns=tuple(turn(n, str(n)) for n in range(1, 6)))

    async def seqs(**bounds: int) -> list[int]:
        return [each.seq for each in await store.threads.turns(OURS, "t", **bounds)]

    assert await seqs(first=4) == [4, 5]
    assert await seqs(last=2) == [1, 2]
    assert await seqs(first=-3, last=99, limit=99) == [1, 2, 3, 4, 5]
    assert await seqs(first=3, last=2) == await seqs(first=6) == await seqs(limit=0) == []
    assert [each.seq for each in await store.threads.tail(OURS, "t", 99)] == [1, 2, 3, 4, 5]
    assert await store.threads.tail(OURS, "t", 0) == []
    assert await store.threads.tail(OURS, "unknown", 3) == []
    assert await store.threads.turns(OURS, "unknown") == []
    assert await store.threads.thread(OURS, "unknown") is None


async def test_a_thread_tells_when_it_began_and_was_last_written_and_the_last_written_is_the_latest(
    store: Store,
) -> None:
    await put(store, turns=(turn(1, "a"), turn(1, "b", thread="other")))
    await store.memories.commit(OURS, at_time(later(minutes=3), turn(2, "c")))
    await put(store, grant=THEIRS, turns=(turn(1, "d", thread="foreign"),))
    thread = await store.threads.thread(OURS, "t")
    assert thread is not None
    assert (thread.created_at, thread.updated_at, thread.turns, thread.namespace) == (NOW, later(minutes=3), 2, "ours")
    assert await store.threads.latest_thread(BOTH, "ann") == thread
    assert await store.threads.latest_thread(BOTH, "bob") is None
    assert await store.threads.latest_thread(Grant("nobody", ("ours",)), "ann") is None


async def test_a_thread_of_the_written_namespace_comes_before_one_that_is_only_read(store: Store) -> None:
    await put(store, grant=THEIRS, turns=(turn(1, "theirs"),), episodes=(episode(1, 1, THEIRS),))
    assert [each.text for each in await store.threads.turns(BOTH, "t")] == ["theirs"]
    await put(store, turns=(turn(1, "ours"),), episodes=(episode(1, 1),))
    assert [each.text for each in await store.threads.turns(BOTH, "t")] == ["ours"]
    assert [each.text for each in await store.threads.tail(BOTH, "t", 5)] == ["ours"]
    assert [each.namespace for each in await store.threads.episodes(BOTH, "t")] == ["ours"]


async def test_an_episode_comes_back_as_it_was_given_and_keeps_its_place_when_overwritten(store: Store) -> None:
    full = {"memory_ids": ("m_1", "m_2"), "agent": "bob", "session": "s_1", "archived": True}
    first, second = episode(1, 2, end=later(milliseconds=9), **full), episode(3, 3)
    await put(store, turns=tuple(turn(n, "x") for n in (1, 2, 3)), episodes=(second, first))
    assert await store.threads.episodes(OURS, "t") == [first, second]
    again = replace(first, last_seq=3, line="Longer.", archived=False)
    await put(store, episodes=(again,))
    assert await store.threads.episodes(OURS, "t") == [again, second]
    assert await store.threads.episode(OURS, [second.id, first.id, second.id]) == [second, again]


async def test_two_episodes_of_one_thread_cannot_share_a_retry_key(store: Store) -> None:
    first = episode(1, 1, key="end:1")
    await put(store, turns=(turn(1, "x"),), episodes=(first,))
    with pytest.raises(Conflict):
        await put(store, episodes=(episode(1, 1, key="end:1"),))
    await put(store, episodes=(episode(1, 1, key="end:1", thread="u"),))
    await put(store, grant=THEIRS, episodes=(episode(1, 1, THEIRS, key="end:2"),))
    assert await store.threads.episode_by_key(BOTH, "t", "end:1") == first
    assert await store.threads.episode_by_key(BOTH, "t", "end:2") is None


async def test_an_erased_episode_cannot_be_written_again_and_its_thread_goes_on(store: Store) -> None:
    stretch = episode(1, 2)
    await put(store, turns=(turn(1, "x"), turn(2, "y"), turn(3, "z")), episodes=(stretch,))
    await store.memories.erase(OURS, [], [stretch.id], operation(kind="erase"))
    with pytest.raises(InvalidInput, match="erased"):
        await put(store, episodes=(stretch,))
    assert await store.threads.episode_by_key(OURS, "t", stretch.key) is None
    assert await store.threads.episode(OURS, [stretch.id]) == await store.threads.episodes(OURS, "t") == []
    await put(store, turns=(turn(4, "more"),))
    left = [(each.seq, each.text, each.erased) for each in await store.threads.turns(OURS, "t")]
    assert left == [(1, "", True), (2, "", True), (3, "z", False), (4, "more", False)]


async def test_a_thread_of_which_nothing_is_left_loses_its_name_and_begins_anew(store: Store) -> None:
    stretch = episode(1, 2)
    await put(store, turns=(turn(1, "x"), turn(2, "y")), episodes=(stretch,))
    await store.memories.erase(OURS, [], [stretch.id], operation(kind="erase"))
    assert await store.threads.thread(OURS, "t") is None
    assert await store.threads.turns(OURS, "t") == []
    await put(store, turns=(turn(1, "z"),))
    assert [each.text for each in await store.threads.turns(OURS, "t")] == ["z"]


async def test_sessions_of_all_readable_namespaces_are_listed_and_cut_newest_first(store: Store) -> None:
    ours = [session(last_at=later(minutes=n), name=f"n{n}") for n in range(3)]
    theirs = session(THEIRS, last_at=later(minutes=9), ended_at=later(minutes=9), turns=3, id=ours[0].id)
    for each in ours:
        await store.threads.save_session(OURS, each)
    await store.threads.save_session(THEIRS, theirs)
    assert await store.threads.sessions(BOTH, limit=2) == [theirs, ours[2]]
    assert await store.threads.sessions(OURS) == ours[::-1]
    again = replace(ours[0], turns=7, agent="bob")
    await store.threads.save_session(OURS, again)
    assert await store.threads.sessions(OURS, agent="bob") == [again]
    assert await store.threads.sessions(Grant.only("nobody")) == []


async def test_a_thread_of_which_everything_was_erased_is_never_the_latest(store: Store) -> None:
    first, last = episode(1, 1, thread="first"), episode(1, 1, thread="last")
    for stretch in (first, last):
        await put(store, turns=(turn(1, "said", stretch.thread),), episodes=(stretch,))
    assert (await store.threads.latest_thread(OURS, "ann")).id == "last"
    await store.memories.erase(OURS, [], [last.id], operation(kind="erase"))
    assert (await store.threads.latest_thread(OURS, "ann")).id == "first"
    await store.memories.erase(OURS, [], [first.id], operation(kind="erase"))
    assert await store.threads.latest_thread(OURS, "ann") is None


async def test_a_late_note_of_a_session_takes_no_turns_away(store: Store) -> None:
    early = session(turns=199)
    await store.threads.save_session(OURS, replace(early, turns=200))
    await store.threads.save_session(OURS, replace(early, last_at=later(seconds=1)))
    (stored,) = await store.threads.sessions(OURS)
    assert (stored.turns, stored.last_at) == (200, later(seconds=1))
