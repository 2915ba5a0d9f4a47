"""Runs, health and closing."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from middleout_mcp.errors import StoreUnavailable
from middleout_mcp.ports import Store
from middleout_mcp.records import Grant, Run
from tests.contract.builders import LIVE, NOW, OURS, STORES, THEIRS, found, later, memory, operation, put

pytestmark = pytest.mark.anyio
PLAN = {"clusters": [["m_1", "m_2"], ["m_3"]], "ratio": 5.0, "odd": [None, "東京", True]}
RUN = Run(id="run_1", namespace="ours", status="planned", target="middle", plan=PLAN, created_at=NOW, updated_at=NOW)


async def test_a_run_comes_back_as_it_was_given_and_is_overwritten_by_id(store: Store) -> None:
    await store.control.save_run(OURS, RUN)
    assert await store.control.run(OURS, RUN.id) == RUN
    done = replace(RUN, status="done", plan={}, updated_at=later(seconds=1), agent="ann")
    await store.control.save_run(OURS, done)
    assert await store.control.run(OURS, RUN.id) == done
    assert await store.control.run(OURS, "run_unknown") is None


async def test_one_run_id_in_two_namespaces_is_two_runs(store: Store) -> None:
    await store.control.save_run(OURS, RUN)
    assert await store.control.run(THEIRS, RUN.id) is None
    await store.control.save_run(THEIRS, replace(RUN, namespace="theirs", status="other"))
    assert await store.control.run(OURS, RUN.id) == RUN
    assert await store.control.run(Grant("nobody", ("ours",)), RUN.id) == RUN


async def test_erase_leaves_plans_without_erased_members_alone(store: Store) -> None:
    gone = memory("gone", id="m_1")
    await put(store, gone)
    other = replace(RUN, id="run_2", plan={"clusters": [["m_9"]]})
    await store.control.save_run(OURS, RUN)
    await store.control.save_run(OURS, other)
    await store.control.save_run(THEIRS, replace(RUN, namespace="theirs"))
    await store.memories.erase(OURS, [gone.id], [], operation(kind="erase"))
    assert await store.control.run(OURS, RUN.id) == replace(RUN, plan={**PLAN, "clusters": [["m_2"], ["m_3"]]})
    assert await store.control.run(OURS, other.id) == other
    assert await store.control.run(THEIRS, RUN.id) == replace(RUN, namespace="theirs")


async def test_health_tells_numbers_about_the_store(store: Store) -> None:
    await put(store, memory("x"))
    health = await store.control.health()
    assert health["bytes_on_disk"] > 0
    assert health["schema_version"] > 0


async def test_a_closed_store_is_unavailable_for_every_role(store: Store) -> None:
    await put(store, memory("x"))
    await store.control.close()
    for call in (
        found(store, LIVE),
        put(store, memory("y")),
        store.threads.thread(OURS, "t"),
        store.search.match(OURS, ["x"], LIVE, 3),
        store.journal.operations(OURS),
        store.control.health(),
        store.memories.erase(OURS, ["m_1"], [], operation(kind="erase")),
        store.memories.finish_erasures(),
    ):
        with pytest.raises(StoreUnavailable):
            await call
    await store.control.close()


async def test_many_writers_and_readers_at_once_lose_nothing(store: Store) -> None:
    async def work(number: int) -> None:
        await put(store, memory(f"n{number}"))
        await found(store, LIVE)

    async with anyio.create_task_group() as tasks:
        for number in range(60):
            tasks.start_soon(work, number)
    assert len(await found(store, LIVE)) == 60


@pytest.mark.parametrize("opening", STORES.values(), ids=STORES)
async def test_closing_waits_for_the_writes_that_were_begun(tmp_path: Path, opening) -> None:
    store = await opening(tmp_path)
    outcomes: dict[int, str] = {}

    async def write(number: int) -> None:
        try:
            await put(store, memory(f"n{number}"))
            outcomes[number] = "stored"
        except StoreUnavailable:
            outcomes[number] = "refused"

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(write, number)
        tasks.start_soon(store.control.close)
    assert len(outcomes) == 20
    again = await opening(tmp_path)
    assert sorted(await found(again, LIVE)) == sorted(f"n{n}" for n, how in outcomes.items() if how == "stored")
    await again.control.close()


async def test_a_sound_file_has_no_damage_and_a_log_without_fault(store: Store) -> None:
    await put(store, memory("tea"))
    assert (await store.control.health(thorough=True))["damage"] is None
    assert "damage" not in await store.control.health()
    assert await store.journal.first_fault() is None


async def test_every_namespace_is_counted_for_the_owner_of_the_file(store: Store) -> None:
    assert await store.control.namespaces() == {}
    await put(store, memory("tea"), memory("snow"))
    await put(store, memory("ice", THEIRS), grant=THEIRS)
    assert await store.control.namespaces() == {"ours": 2, "theirs": 1}
