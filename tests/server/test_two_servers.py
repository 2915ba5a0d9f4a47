"""Two servers of one file, as two clients start them: each sees at once what the other did (CASES 10, 11, 12, 28)."""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.server.connect import ROOT, ask, refusal

pytestmark = pytest.mark.anyio
PLANTS = ("fern", "moss", "ivy", "reed", "sage", "dill", "flax", "hops", "kale", "leek", "mint", "okra")


@asynccontextmanager
async def two_clients(home: Path, *eras: str) -> AsyncIterator[list[Client]]:
    """Clients in these eras, each with a server process of its own on the one file in `home`."""
    environment = {"MIDDLEOUT_HOME": str(home), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    server = StdioServerParameters(command=sys.executable, args=["-W", "error", "-m", "middleout_mcp"], env=environment)
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Client(server, mode=era)) for era in eras]


async def texts(client: Client, query: str) -> list[str]:
    return [item["text"] for item in (await ask(client, "recall", query=query, limit=50, max_tokens=10_000))["items"]]


@pytest.mark.parametrize("eras", [("auto", "auto"), ("legacy", "legacy"), ("auto", "legacy")])
async def test_what_one_server_remembers_corrects_and_erases_the_other_knows_on_its_next_call(
    tmp_path: Path, eras: tuple[str, str]
) -> None:
    async with two_clients(tmp_path, *eras) as clients:
        kept: list[str] = []
        for number, plant in enumerate(PLANTS):
            one, other = clients[number % 2], clients[(number + 1) % 2]
            text = f"Ann waters the {plant} in room {number}."
            turn = {"role": "user", "text": f"I water the {plant} now."}
            stored = await ask(one, "remember", memories=[text], messages=[turn], thread="plants")
            memory_id = stored["results"][0]["id"]
            assert stored["results"][0]["actions"] == ["stored"]
            assert (await texts(other, f"who waters the {plant}"))[0] == text
            if number % 3 == 0:  # the other takes away what this one found a moment ago
                assert text in await texts(one, f"who waters the {plant}")
                await ask(other, "forget", ids=[memory_id], action="erase")
                assert text not in await texts(one, f"who waters the {plant}")
                unknown = await refusal(one, "open_episode", id="m_000000000")
                assert (await refusal(one, "open_episode", id=memory_id)).replace(memory_id, "m_000000000") == unknown
                continue
            text = f"Bob waters the {plant} in room {number}."
            await ask(other, "remember", memories=[{"id": memory_id, "text": text}])
            opened = await ask(one, "open_episode", id=memory_id)
            assert opened["text"] == text
            kept.append(text)
        for client in clients:
            counts = (await ask(client, "open_episode", id="stats"))["details"]["memories"]
            assert counts["live"] == len(kept)
            assert counts["pending"] == 0
            assert sorted(await texts(client, "who waters which plant in a room")) == sorted(kept)


async def test_two_servers_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    async with two_clients(tmp_path, "auto", "legacy") as clients:
        stored: list[str] = []

        async def write(client: Client, who: str, plant: str) -> None:
            turn = {"role": "user", "text": f"{who} planted {plant} today."}
            answer = await ask(
                client, "remember", memories=[f"{who} planted {plant}."], messages=[turn], thread="garden"
            )
            assert answer["results"][0]["actions"] == ["stored"]
            stored.append(f"{who} planted {plant}.")

        async with anyio.create_task_group() as tasks:
            for plant in PLANTS:
                for client, who in zip(clients, ("Ann", "Bob"), strict=True):
                    tasks.start_soon(write, client, who, plant)
        for client in clients:
            assert sorted(await texts(client, "planted")) == sorted(stored)
            counts = (await ask(client, "open_episode", id="stats"))["details"]["memories"]
            assert (counts["live"], counts["turns"]) == (2 * len(PLANTS), 2 * len(PLANTS))
