"""`forget` through a real client: secrets that were stored before they were known, restoring, and what goes along."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from middleout_mcp.app import App
from middleout_mcp.records import Change, Grant, Kind, Memory
from tests.contract.builders import episode, memory, operation, turn
from tests.fakes import FakeClock
from tests.server.connect import ERAS, ask, connected, new_app, refusal, text_of

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("era", ERAS)]
GRANT = Grant.only("default")
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
CARD = 4_111_111_111_111_111


async def put(app: App, *memories: Memory, **more: Any) -> None:
    """Store as nothing that passes the screening could be, such as what an earlier version did not know."""
    change = Change(operation=operation(GRANT), memories=memories, **more)
    await (await app.parts()).store.memories.commit(GRANT, change)


async def texts(client: Client, query: str, **more: Any) -> list[str]:
    return [item["text"] for item in (await ask(client, "recall", query=query, **more))["items"]]


def holding(folder: Path, text: str) -> list[str]:
    """Names of the files below `folder` that hold `text`."""
    return [path.name for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


async def test_redact_without_spans_takes_out_the_secrets_that_were_stored_before(tmp_path: Path, era: str) -> None:
    app = new_app(tmp_path)
    secret = memory(
        f"The deploy key is {TOKEN}, ask Ann.",
        GRANT,
        value=f"key {TOKEN}",
        tags=("deploy", TOKEN),
        scope=TOKEN,
        known_by=(TOKEN,),
        thread="t",
        turns=(1,),
    )
    stretch = episode(1, 2, GRANT, memory_ids=(secret.id,), line=f"Deploy key {TOKEN} told.")
    said = turn(1, f"It is {TOKEN}.", name=TOKEN, data={"header": [f"Bearer {TOKEN}"], TOKEN: 1})
    async with connected(app, era) as client:
        linked = replace(secret, episode_id=stretch.id)
        await put(app, linked, turns=(said, turn(2, "It rains in Bergen.")), episodes=(stretch,))
        await put(app, replace(linked, text=f"Earlier: {TOKEN}", version=2))
        await put(app, replace(linked, version=3))
        assert holding(tmp_path, TOKEN)
        assert TOKEN in (await texts(client, "deploy key"))[0]
        done = await ask(client, "forget", ids=[secret.id], action="redact")
        await app.settled()
        assert holding(tmp_path, TOKEN) == []
        assert done["affected"] == [secret.id]
        assert await texts(client, "deploy key") == ["The deploy key is [redacted:github_token], ask Ann."]
        opened = await ask(client, "open_episode", id=secret.id)
        assert "redacted" in opened["details"]["record"]["marks"]
        assert opened["details"]["value"] == "key [redacted:github_token]"
        turns = (await ask(client, "open_episode", id=stretch.id))["turns"]
        assert [each["text"] for each in turns] == ["It is [redacted:github_token].", "It rains in Bergen."]
        assert "no secret was found" in await refusal(client, "forget", ids=[secret.id], action="redact")
        assert "cannot" in await refusal(client, "forget", ids=[done["operation_id"]], action="restore")


@pytest.mark.parametrize("pointer", ["memory", "episode"])
async def test_redact_without_spans_finds_what_only_its_name_gives_away(tmp_path: Path, era: str, pointer: str) -> None:
    app = new_app(tmp_path)
    stretch = episode(1, 1, GRANT)
    named = memory("The router in the hall.", GRANT, key="password", value="sesam0pen", thread="t", turns=(1,))
    said = turn(1, "Here it is.", data={"password": "sesam0pen", "card": CARD, "calls": 7})
    async with connected(app, era) as client:
        linked = replace(named, episode_id=stretch.id)
        await put(app, linked, turns=(said,), episodes=(replace(stretch, memory_ids=(named.id,)),))
        await ask(client, "forget", ids=[named.id if pointer == "memory" else stretch.id], action="redact")
        await app.settled()
        assert holding(tmp_path, "sesam0pen") == []
        assert holding(tmp_path, str(CARD)) == []
        data = (await ask(client, "open_episode", id=stretch.id))["details"]["data"]["1"]
        assert data["calls"] == 7


@pytest.mark.parametrize("action", ["suppress", "demote", "expire", "archive"])
@pytest.mark.parametrize("pointer", ["memory", "operation"])
async def test_what_was_put_aside_is_restored_by_its_id_and_by_its_operation(
    tmp_path: Path, era: str, action: str, pointer: str
) -> None:
    async with connected(new_app(tmp_path), era) as client:
        stored = await ask(client, "remember", memories=["Blue kite in the hall.", "Blue kite in the attic."])
        first, second = [result["id"] for result in stored["results"]]

        async def ranked() -> list[str]:
            return [item["id"] for item in (await ask(client, "recall", query="blue kite in the hall"))["items"]]

        assert await ranked() == [first, second]
        before = (await ask(client, "open_episode", id=first))["details"]["record"]
        done = await ask(client, "forget", ids=[first], action=action)
        assert done["affected"] == [first]
        assert await ranked() == ([second, first] if action == "demote" else [second])
        restored = await ask(
            client, "forget", ids=[first if pointer == "memory" else done["operation_id"]], action="restore"
        )
        assert restored["affected"] == [first]
        assert await ranked() == [first, second]
        assert (await ask(client, "open_episode", id=first))["details"]["record"] == before
        again = await ask(client, "forget", ids=[first], action="restore")
        assert "affected" not in again


async def test_what_was_hidden_until_a_time_or_for_a_step_is_restored_at_once(tmp_path: Path, era: str) -> None:
    async with connected(new_app(tmp_path), era) as client:
        stored = await ask(client, "remember", memories=["Blue kite in the hall."])
        ids = [stored["results"][0]["id"]]
        for until in ("step", "in 3 days"):
            assert await texts(client, "blue kite") == ["Blue kite in the hall."]
            await ask(client, "forget", ids=ids, action="suppress", until=until)
            if until != "step":  # a recall begins another step
                assert await texts(client, "blue kite") == []
            await ask(client, "forget", ids=ids, action="restore")
            assert await texts(client, "blue kite") == ["Blue kite in the hall."]


async def test_a_merged_memory_is_restored_by_its_id_as_a_record_of_its_own(tmp_path: Path, era: str) -> None:
    async with connected(new_app(tmp_path), era) as client:
        given = [{"text": "Prefers Python."}, {"text": "Likes Python best.", "source": "user"}]
        stored = await ask(client, "remember", memories=given)
        loser, winner = [result["id"] for result in stored["results"]]
        await ask(client, "forget", ids=[loser, winner], action="merge")
        assert await texts(client, "Python") == ["Likes Python best."]
        merged = await ask(client, "open_episode", id=loser)
        assert (merged["details"]["merged_into"], merged["details"]["record"]["status"]) == (winner, "superseded")
        restored = await ask(client, "forget", ids=[loser], action="restore")
        assert restored["affected"][0] == loser
        assert set(await texts(client, "Python")) == {"Prefers Python.", "Likes Python best."}
        alone = await ask(client, "open_episode", id=loser)
        assert "merged_into" not in alone["details"]
        assert "valid_to" not in alone["details"]["record"]


async def test_an_expired_memory_that_is_restored_stays(tmp_path: Path, era: str) -> None:
    app = new_app(tmp_path)
    async with connected(app, era) as client:
        stored = await ask(client, "remember", memories=[{"text": "Blue kite in the hall.", "expires": "PT1H"}])
        clock = (await app.parts()).clock
        assert isinstance(clock, FakeClock)
        clock.advance(hours=2)
        assert await texts(client, "blue kite") == []
        await ask(client, "forget", ids=[stored["results"][0]["id"]], action="restore")
        for _ in range(2):
            assert await texts(client, "blue kite") == ["Blue kite in the hall."]
            clock.advance(days=30)


async def test_erasing_a_member_drops_the_summary_and_says_so(tmp_path: Path, era: str) -> None:
    app = new_app(tmp_path)
    async with connected(app, era) as client:
        stored = await ask(client, "remember", memories=["The kite is quagga7 blue.", "The kite is in the hall."])
        store = (await app.parts()).store.memories
        members = await store.get(GRANT, [result["id"] for result in stored["results"]])
        parents = tuple(member.id for member in members)
        summary = memory("The quagga7 blue kite is in the hall.", GRANT, kind=Kind.SUMMARY, parents=parents)
        compressed = [replace(member, summary_id=summary.id, version=member.version + 1) for member in members]
        await put(app, summary, *compressed)
        assert await texts(client, "the kite in the hall") == [summary.text]
        result = await client.call_tool("forget", {"ids": [members[0].id], "action": "erase"})
        erased = result.structured_content
        assert (erased["affected"], erased["derived"]) == ([members[0].id], [summary.id])
        assert erased["erasure"] == "complete"
        assert summary.id in text_of(result)
        assert await texts(client, "the kite in the hall") == ["The kite is in the hall."]
        unknown = await refusal(client, "open_episode", id="m_000000000")
        for gone in (members[0].id, summary.id):
            assert (await refusal(client, "open_episode", id=gone)).replace(gone, "m_000000000") == unknown
        assert holding(tmp_path, "quagga7") == []
