"""Leases, what is known of jobs, runs by status, namespaces and the journal file."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from middleout_mcp.errors import InvalidInput, StoreUnavailable
from middleout_mcp.ports import JobState, Lease, Store
from middleout_mcp.records import Grant, Run
from tests.contract.builders import NOW, OURS, STORES, THEIRS, later, memory, put

pytestmark = pytest.mark.anyio
LENGTH = 12
RUN = Run(id="run_1", namespace="ours", status="running", target="middle", plan={}, created_at=NOW, updated_at=NOW)


async def take(store: Store, holder: str, at: float = 0, *, name: str = "jobs", length: float = LENGTH) -> Lease:
    """Ask for the lease `at` seconds after NOW."""
    return await store.control.lease(name, holder, later(seconds=at), later(seconds=at + length))


async def test_a_free_lease_is_taken_and_refused_to_another(store: Store) -> None:
    taken = await take(store, "a")
    assert taken == Lease(name="jobs", holder="a", since=NOW, until=later(seconds=LENGTH))
    assert await take(store, "b", 1) == taken
    assert (await store.control.health())["leases"] == [taken]


async def test_a_lease_is_renewed_by_its_holder_and_keeps_its_beginning(store: Store) -> None:
    await take(store, "a")
    renewed = await take(store, "a", 7)
    assert renewed == Lease(name="jobs", holder="a", since=NOW, until=later(seconds=7 + LENGTH))
    assert await take(store, "b", LENGTH + 1) == renewed


async def test_a_lease_that_ran_out_is_another_s_from_that_moment_on(store: Store) -> None:
    await take(store, "a")
    assert (await take(store, "b", LENGTH - 0.001)).holder == "a"
    taken = await take(store, "b", LENGTH)
    assert (taken.holder, taken.since) == ("b", later(seconds=LENGTH))
    assert (await take(store, "a", LENGTH + 1)).holder == "b"


async def test_the_beginning_is_new_where_the_holder_let_it_run_out(store: Store) -> None:
    await take(store, "a")
    assert (await take(store, "a", LENGTH)).since == later(seconds=LENGTH)


async def test_a_lease_is_given_back_by_its_holder_only(store: Store) -> None:
    await take(store, "a")
    assert (await take(store, "b", 1, length=0)).holder == "a"
    assert (await take(store, "b", 2)).holder == "a"
    await take(store, "a", 3, length=0)
    assert (await store.control.health())["leases"] == []
    assert (await take(store, "b", 3)).holder == "b"


async def test_two_names_are_two_leases(store: Store) -> None:
    await take(store, "a")
    assert (await take(store, "b", name="other")).holder == "b"
    assert [lease.name for lease in (await store.control.health())["leases"]] == ["jobs", "other"]


async def test_a_lease_from_before_the_clock_was_set_back_holds_nobody_up(store: Store) -> None:
    await take(store, "a", 365 * 86_400)
    assert (await take(store, "b")).holder == "b"
    assert (await take(store, "a", 365 * 86_400)).holder == "a"  # and set forward again: it has long run out


async def test_who_read_the_clock_a_while_ago_takes_no_lease_from_who_read_it_later(store: Store) -> None:
    await take(store, "a", 5)
    assert (await take(store, "b", 0)).holder == "a"


@pytest.mark.parametrize("opening", STORES.values(), ids=STORES)
async def test_of_many_that_ask_at_once_one_gets_the_lease(tmp_path: Path, opening) -> None:
    stores = [await opening(tmp_path) for _ in range(4)]
    holders = set()

    async def ask(number: int) -> None:
        holders.add((await take(stores[number % 4], f"h{number}", number / 100)).holder)

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(ask, number)
    assert len(holders) == 1
    for store in stores:
        await store.control.close()


@pytest.mark.parametrize("opening", STORES.values(), ids=STORES)
async def test_what_is_known_of_a_job_comes_back_as_it_was_given_also_from_a_new_store(tmp_path: Path, opening) -> None:
    store = await opening(tmp_path)
    expiry = JobState(name="expiry")
    data = {"default": {"at": "2026-03-01T12:00:00Z", "live": 3}, "odd": [None, "東京", True]}
    other = JobState(name="backfill", last_run=NOW, next_run=later(days=1), last_error="It failed.", data=data)
    assert await store.control.jobs() == []
    await store.control.save_job(expiry)
    await store.control.save_job(other)
    assert await store.control.jobs() == [other, expiry]
    await store.control.close()
    store = await opening(tmp_path)
    again = replace(expiry, last_run=NOW)
    await store.control.save_job(again)
    assert await store.control.jobs() == [other, again]
    await store.control.close()


async def test_runs_are_listed_by_status_in_the_write_namespace_oldest_first(store: Store) -> None:
    younger = replace(RUN, id="run_0", created_at=later(seconds=1))
    for run in (younger, RUN, replace(RUN, id="run_2", status="done")):
        await store.control.save_run(OURS, run)
    await store.control.save_run(THEIRS, replace(RUN, namespace="theirs"))
    assert await store.control.runs(OURS, "running") == [RUN, younger]
    assert await store.control.runs(Grant("ours", ("ours", "theirs")), "running") == [RUN, younger]
    assert await store.control.runs(Grant("nobody", ("ours",)), "running") == []
    assert await store.control.runs(OURS, "unheard of \ud800") == []


async def test_a_run_is_overwritten_only_in_the_status_expected(store: Store) -> None:
    done = replace(RUN, status="done", updated_at=later(seconds=1))
    assert not await store.control.save_run(OURS, done, expect="running")
    assert await store.control.run(OURS, RUN.id) is None
    assert await store.control.save_run(OURS, RUN)
    await store.control.save_run(THEIRS, replace(RUN, namespace="theirs", status="planned"))
    assert not await store.control.save_run(OURS, done, expect="planned")
    assert await store.control.run(OURS, RUN.id) == RUN
    assert await store.control.save_run(OURS, done, expect="running")
    assert await store.control.run(OURS, RUN.id) == done
    assert not await store.control.save_run(OURS, RUN, expect="running")
    with pytest.raises(InvalidInput):
        await store.control.save_run(THEIRS, done, expect="done")


async def test_of_two_that_expect_the_same_status_one_writes(store: Store) -> None:
    await store.control.save_run(OURS, RUN)
    written = []

    async def finish(agent: str) -> None:
        written.append(await store.control.save_run(OURS, replace(RUN, status="done", agent=agent), expect="running"))

    async with anyio.create_task_group() as tasks:
        for agent in "abcd":
            tasks.start_soon(finish, agent)
    assert sorted(written) == [False, False, False, True]


async def test_every_namespace_is_told_by_name(store: Store) -> None:
    assert await store.control.namespaces() == {}
    await put(store, memory("theirs", THEIRS), grant=THEIRS)
    await put(store, memory("ours"))
    assert list(await store.control.namespaces()) == ["ours", "theirs"]


@pytest.mark.parametrize("opening", STORES.values(), ids=STORES)
async def test_a_checkpoint_empties_the_journal_and_loses_nothing(tmp_path: Path, opening) -> None:
    store = await opening(tmp_path)
    await put(store, *(memory(f"memory {number} " + "long " * 200) for number in range(100)))
    assert (await store.control.health())["journal_bytes"] > 0
    assert await store.control.checkpoint()
    assert (await store.control.health())["journal_bytes"] == 0
    assert (await store.memories.count(OURS))["live"] == 100
    await store.control.close()
    with pytest.raises(StoreUnavailable):
        await store.control.jobs()
