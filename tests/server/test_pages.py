"""Pages that are turned to their end: nothing is left out, nothing comes twice, whatever came in between."""

from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from middleout_mcp.budget import count_tokens
from tests.fakes import FakeClock
from tests.server.connect import ERAS, ask, connected, new_app, refusal

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("era", ERAS)]


def said(text: str) -> dict[str, str]:
    return {"role": "user", "text": text}


async def pages(client: Client, tool: str, start: str | None = None, **arguments: Any) -> list[dict[str, Any]]:
    """Every page, or those from the cursor `start` on."""
    found = [await ask(client, tool, **arguments, **({"cursor": start} if start else {}))]
    while cursor := found[-1].get("cursor"):
        assert found[-1]["truncated"]
        found.append(await ask(client, tool, **arguments, cursor=cursor))
        assert len(found) < 500
    assert not found[-1]["truncated"]
    return found


def joined(found: list[dict[str, Any]]) -> dict[int, str]:
    """The texts of the turns on all pages, a turn that goes on over several put together."""
    texts: dict[int, str] = {}
    for page in found:
        for turn in page["turns"]:
            texts[turn["seq"]] = texts.get(turn["seq"], "") + turn["text"]
    return texts


@pytest.mark.parametrize("budget", [100, 333, 2_000])
async def test_the_context_is_read_to_its_end_although_the_newest_turn_is_long(
    tmp_path: Path, era: str, budget: int
) -> None:
    tale = " ".join(f"Verse {number} tells of the harbour, 港 {number}." for number in range(700))
    async with connected(new_app(tmp_path), era) as client:
        for number in range(14):
            await ask(client, "remember", messages=[said(f"Short turn {number} about rain.")], thread="t")
        await ask(client, "remember", messages=[said(tale)], thread="t")
        found = await pages(client, "open_episode", id="context", thread="t", max_tokens=budget)
        assert len(found) > 1
        assert joined(found) == {15: tale}
        assert all(sum(count_tokens(turn["text"]) for turn in page["turns"]) <= budget for page in found)
        assert all("buffer" not in page for page in found[1:])


async def test_turns_that_come_while_the_context_is_read_are_on_its_later_pages(tmp_path: Path, era: str) -> None:
    tale = " ".join(f"Verse {number} tells of the harbour." for number in range(200))
    later = [f"Turn {number} came meanwhile." for number in range(25)]
    async with connected(new_app(tmp_path), era) as client:
        await ask(client, "remember", messages=[said(tale)], thread="t")
        first = await ask(client, "open_episode", id="context", thread="t", max_tokens=500)
        await ask(client, "remember", messages=[said(text) for text in later], thread="t")
        rest = await pages(client, "open_episode", first["cursor"], id="context", thread="t", max_tokens=500)
        assert list(joined([first, *rest]).values())[:1] == [tale]
        assert list(joined([first, *rest]).values())[1:] == later


async def test_a_stretch_that_the_budget_leaves_out_of_the_window_has_a_line(tmp_path: Path, era: str) -> None:
    async with connected(new_app(tmp_path), era) as client:
        episodes = []
        for number in range(8):
            turn = said(f"Walk {number} led along the harbour. " + "It was a long and quiet walk. " * 20)
            told = await ask(client, "remember", messages=[turn], thread="t", episode=f"Walk {number} was told.")
            episodes.append(told["episode"]["id"])
        for budget in (300, 600, 1_000, 2_000):
            context = await ask(client, "open_episode", id="context", thread="t", max_tokens=budget)
            first = context["turns"][0]["seq"]
            listed = {line["id"]: line.get("gap", 0) for line in context.get("buffer", ())}
            assert [turn["seq"] for turn in context["turns"]] == list(range(first, 9))
            assert sum(gap or 1 for gap in listed.values()) == first - 1, budget
            assert set(listed) & set(episodes) <= set(episodes[: first - 1])


async def test_a_cursor_of_something_else_is_refused_by_the_context(tmp_path: Path, era: str) -> None:
    async with connected(new_app(tmp_path), era) as client:
        await ask(client, "remember", messages=[said("It rains.")], thread="t")
        for cursor in ("t2.0", "t1.10", "t0.0", "t1", "r_000000000"):
            sentence = await refusal(client, "open_episode", id="context", thread="t", cursor=cursor)
            assert "cursor" in sentence


@pytest.mark.parametrize("budget", [100, 250, 1_000])
async def test_the_clusters_of_a_run_are_read_to_their_end_planned_and_applied(
    tmp_path: Path, era: str, budget: int
) -> None:
    app = new_app(tmp_path, active_sessions=0)
    async with connected(app, era) as client:
        clock = (await app.parts()).clock
        assert isinstance(clock, FakeClock)
        for day in range(20):
            turns = [said(f"On day {day} Ann dug step {step} of the tunnel to bay {day * step}.") for step in range(4)]
            await ask(client, "remember", messages=turns, thread=f"day {day}", session=f"day {day}")
            clock.advance(minutes=1)
        planned = await ask(client, "compress", max_tokens=budget)
        for status in ("planned", "awaiting"):
            found = await pages(client, "compress", run_id=planned["run_id"], max_tokens=budget)
            assert {page["status"] for page in found} == {status}
            clusters = [cluster for page in found for cluster in page["clusters"]]
            total = found[0]["report"]["clusters"]
            assert len(found) > 1
            assert [cluster["id"] for cluster in clusters] == [f"c{number}" for number in range(1, total + 1)]
            members = [memory for cluster in clusters for memory in cluster["memories"]]
            assert len(set(members)) == len(members) > 50
            assert all(("texts" in cluster) == (status == "awaiting") for cluster in clusters)
            if status == "planned":
                assert planned["clusters"] == found[0]["clusters"]
                await ask(client, "compress", run_id=planned["run_id"], dry_run=False)
                await app.settled()
