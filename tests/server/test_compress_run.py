"""A whole compression through a real client and a real server process, with the bundled model and real clustering."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.memory.compressing import said
from tests.server.connect import ERAS, ROOT, ask, refusal, text_of

pytestmark = pytest.mark.anyio
CONVERSATIONS = 5


@asynccontextmanager
async def served(home: Path, era: str) -> AsyncIterator[Client]:
    environment = {"MIDDLEOUT_HOME": str(home), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    environment |= {"MIDDLEOUT_ACTIVE_SESSIONS": "1"}
    server = StdioServerParameters(command=sys.executable, args=["-W", "error", "-m", "middleout_mcp"], env=environment)
    async with Client(server, mode=era) as client:
        yield client


async def texts(client: Client) -> list[tuple[str, str]]:
    """What a question about all of it finds, as (id, text)."""
    found = await ask(client, "recall", query="boxes carried to the greenhouse", limit=50, max_tokens=10_000)
    return sorted((item["id"], item["text"]) for item in found["items"])


async def ended(client: Client, run_id: str) -> dict[str, Any]:
    """The run when nothing of it is left to do."""
    with anyio.fail_after(60):
        while True:
            shown = await ask(client, "compress", run_id=run_id, max_tokens=10_000)
            if shown["status"] != "running":
                return shown
            await anyio.sleep(0.05)


@pytest.mark.parametrize("era", ERAS)
async def test_plan_apply_open_improve_undo_and_redo_as_a_client_does_it(tmp_path: Path, era: str) -> None:
    async with served(tmp_path, era) as client:
        for number in range(CONVERSATIONS):
            turns = [{"role": "user", "text": said(number, step)} for step in range(4)]
            await ask(client, "remember", messages=turns, thread=f"day{number}", session=f"sitting {number}")
        before = await texts(client)
        assert len(before) == 4 * CONVERSATIONS
        planned = await ended(client, (await ask(client, "compress"))["run_id"])
        groups = planned["report"]["clusters"]  # what recurs is one theme
        assert planned["status"] == "planned"
        members = {one for cluster in planned["clusters"] for one in cluster["memories"]}
        assert 12 <= len(members) <= 4 * (CONVERSATIONS - 1)
        assert await texts(client) == before
        started = await client.call_tool("compress", {"run_id": planned["run_id"], "dry_run": False})
        assert started.structured_content["status"] in ("running", "awaiting")
        done = await ended(client, planned["run_id"])
        assert (done["status"], done["report"]["applied"]) == ("awaiting", groups)
        compressed = await texts(client)
        assert len(compressed) == groups + len(before) - len(members)
        assert members.isdisjoint(one for one, _ in compressed)
        for cluster in done["clusters"]:
            opened = await ask(client, "open_episode", id=cluster["memories"][0])
            opened = await ask(client, "open_episode", id=opened["details"]["summary_id"], max_tokens=10_000)
            assert opened["type"] == "summary"
            assert [item["id"] for item in opened["memories"]] == cluster["memories"]
        first = done["clusters"][0]
        wrong = [{"cluster": first["id"], "text": "Ludwig Stern carried 4,711 boxes."}]
        assert "4,711" in await refusal(client, "compress", run_id=done["run_id"], summaries=wrong)
        assert await texts(client) == compressed
        better = [{"cluster": first["id"], "text": "Boxes went to the greenhouse; it rained."}]
        improved = await client.call_tool("compress", {"run_id": done["run_id"], "summaries": better})
        assert improved.structured_content["report"]["improved"] == 1
        assert "greenhouse; it rained" in str(await texts(client))
        assert improved.structured_content["status"] == ("done" if groups == 1 else "awaiting")
        assert improved.structured_content["status"] in text_of(improved)
        undone = await ask(client, "forget", ids=[done["report"]["operation_id"]], action="restore")
        assert await texts(client) == before
        assert (await ask(client, "compress", run_id=done["run_id"]))["status"] == "cancelled"
        await ask(client, "forget", ids=[undone["operation_id"]], action="restore")
        assert len(await texts(client)) == len(compressed)
    async with served(tmp_path, era) as client:  # and so it is for the next process
        assert len(await texts(client)) == len(compressed)


async def test_results_of_compress_stay_within_their_budget(tmp_path: Path) -> None:
    async with served(tmp_path, "auto") as client:
        for number in range(25):
            turns = [{"role": "user", "text": said(number, step)} for step in range(3)]
            await ask(client, "remember", messages=turns, thread=f"day{number}", session=f"sitting {number}")
        started = await ask(client, "compress", dry_run=False)
        await ended(client, started["run_id"])
        seen: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = await client.call_tool("compress", {"run_id": started["run_id"], "max_tokens": 500, **cursor})
            assert len(text_of(page)) < 4 * 1_000
            seen += [cluster["id"] for cluster in page.structured_content.get("clusters", ())]
            if "cursor" not in page.structured_content:
                break
            cursor = {"cursor": page.structured_content["cursor"]}
        assert seen == [f"c{number + 1}" for number in range(len(seen))]
        opened = await client.call_tool("open_episode", {"id": started["run_id"]})
        assert len(text_of(opened)) < 4 * 2_000
