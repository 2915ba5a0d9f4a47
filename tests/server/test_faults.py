"""A file or a disk at fault: the server starts, every call that needs it says why, and nothing is lost."""

import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from middleout_mcp.app import App, open_app
from middleout_mcp.settings import Settings
from tests.disks import small_disk
from tests.fakes import FakeClock, FakeEmbedder
from tests.server.connect import ask, child, connected, new_app, refusal

pytestmark = pytest.mark.anyio


def app_with(home: Path, **embedder: Any) -> App:
    return open_app(Settings(home=home), clock=FakeClock(), embedder=FakeEmbedder(**embedder))


async def test_a_file_of_a_newer_version_is_refused_untouched_with_both_versions_named(tmp_path: Path) -> None:
    async with connected(new_app(tmp_path), "auto") as client:
        await ask(client, "remember", memories=["Kept as it is."])
    file = tmp_path / "memory.db"
    with sqlite3.connect(file) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {version + 7}")
    connection.close()
    before = file.read_bytes()
    async with connected(new_app(tmp_path), "auto") as client:
        assert len((await client.list_tools()).tools) == 5
        for tool, arguments in (("recall", {"query": "kept"}), ("remember", {"memories": ["New."]})):
            sentence = await refusal(client, tool, **arguments)
            assert str(version) in sentence
            assert str(version + 7) in sentence
    assert file.read_bytes() == before


async def test_a_corrupt_file_is_told_and_works_again_once_it_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "memory.db"
    file.write_bytes(b"no database at all " * 500)
    async with connected(new_app(tmp_path), "auto") as client:
        assert "damaged" in await refusal(client, "recall", query="anything")
        file.unlink()
        await ask(client, "remember", memories=["A new beginning."])
        assert (await ask(client, "recall", query="new beginning"))["items"]


def test_a_file_that_is_not_of_the_version_it_names_is_told_and_the_server_stays(tmp_path: Path) -> None:
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        server.call("remember", memories=["Kept as it is."])
        server.leave()
    for statement in ("PRAGMA user_version = -5", "PRAGMA user_version = 0"):
        with sqlite3.connect(tmp_path / "memory.db") as connection:
            connection.execute(statement)
        connection.close()
        with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
            server.shake_hands()
            first = server.process.stderr.readline()  # the background work has met the file by then
            answers = [server.call("recall", query="kept"), server.call("remember", memories=["New."])]
            code, _, log = server.leave()
        assert b"schema version" in first
        assert all("schema version" in answer["content"][0]["text"] for answer in answers)
        assert (code, log) == (0, b"")


class Unforeseen:
    """An embedder that fails in a way nobody foresaw, as soon as the file is to be opened."""

    def __init__(self) -> None:
        self.asked = anyio.Event()

    @property
    def name(self) -> str:
        self.asked.set()
        raise ZeroDivisionError("a word of some memory")


async def test_what_nobody_foresaw_in_the_background_is_logged_without_its_words_and_ends_no_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    embedder: Any = Unforeseen()
    async with connected(open_app(Settings(home=tmp_path), clock=FakeClock(), embedder=embedder), "auto") as client:
        await embedder.asked.wait()
        await anyio.wait_all_tasks_blocked()
        assert "internal error" in await refusal(client, "recall", query="anything")
        assert len((await client.list_tools()).tools) == 5
    assert "a background job failed (ZeroDivisionError)" in caplog.text
    assert "a word of some memory" not in caplog.text


@pytest.mark.parametrize("back", [False, True])
async def test_a_file_taken_from_under_a_server_is_told_by_the_next_call_and_opened_anew_by_the_one_after(
    tmp_path: Path, back: bool
) -> None:
    home = tmp_path / "home"
    async with connected(new_app(home), "auto") as client:
        await ask(client, "remember", memories=["It rains in Bergen."])
        for aside in (tmp_path / "first", tmp_path / "second"):
            home.rename(aside)
            assert "was removed, moved or replaced" in await refusal(client, "remember", memories=["Lost."])
            if back:
                aside.rename(home)
            await ask(client, "remember", memories=["Soup needs salt."])
        items = (await ask(client, "recall", query="Bergen soup rains salt"))["items"]
    assert sorted(item["text"] for item in items) == [*["It rains in Bergen."] * back, "Soup needs salt."]


async def test_damage_in_the_middle_of_the_file_is_told_by_every_tool_in_the_same_sentence(tmp_path: Path) -> None:
    async with connected(new_app(tmp_path), "auto") as client:
        result = await ask(client, "remember", memories=[f"Lake number {n}, {'deep ' * 99}" for n in range(60)])
    file = tmp_path / "memory.db"
    content = bytearray(file.read_bytes())
    for table in ("memory", "full_text_data", "vector_1_vector_chunks00", "operation"):
        with sqlite3.connect(file) as reader:
            (page,) = reader.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
        reader.close()
        content[(page - 1) * 4096 : page * 4096] = b"\xee" * 4096
    file.write_bytes(content)
    calls = (
        ("recall", {"query": "lake number"}),
        ("recall", {}),
        ("remember", {"memories": ["New."]}),
        ("forget", {"ids": [result["results"][0]["id"]]}),
        ("forget", {"query": "lake number"}),
        ("open_episode", {"id": "stats"}),
        ("open_episode", {"id": result["results"][0]["id"]}),
        ("compress", {}),
    )
    async with connected(new_app(tmp_path), "auto") as client:
        assert len((await client.list_tools()).tools) == 5
        told = {
            (await refusal(client, tool, **arguments)).replace("; nothing of this call was stored", ".")
            for tool, arguments in calls
        }
        with pytest.raises(MCPError) as raised:
            await client.read_resource("memory://stats")
        assert told == {str(raised.value)}
    assert "damaged" in told.pop()


def test_operations_that_were_lost_are_told_on_stderr_once_and_in_the_stats(tmp_path: Path) -> None:
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        for number in range(3):
            server.call("remember", memories=[f"Lake {number}"])
        server.process.kill()
        server.process.wait()
    (tmp_path / "memory.db-wal").write_bytes((tmp_path / "memory.db-wal").read_bytes()[:-100])
    logs = b""
    for _ in range(2):
        with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
            server.shake_hands()
            stats = server.call("open_episode", id="stats")["structuredContent"]["details"]
            code, _, log = server.leave()
            assert code == 0
            logs += log
        assert stats["memories"]["live"] == 2
        (sentence,) = stats["file"]["lost"]
        assert "Operation 3 is missing" in sentence
    assert logs.decode().count(sentence) == 1


async def test_a_file_that_may_only_be_read_answers_and_refuses_to_store(tmp_path: Path) -> None:
    home = tmp_path / "disk"
    with small_disk(home, 24):
        async with connected(new_app(home), "auto") as client:
            await ask(client, "remember", memories=["Read me."])
        await anyio.run_process(["mount", "-o", "remount,ro", str(home)])
        async with connected(new_app(home), "auto") as client:
            assert [item["text"] for item in (await ask(client, "recall", query="read me"))["items"]] == ["Read me."]
            assert "read-only" in await refusal(client, "remember", memories=["Not this."])
            assert len((await ask(client, "recall", query="read me"))["items"]) == 1


async def test_a_full_disk_refuses_in_a_sentence_loses_nothing_and_still_erases(tmp_path: Path) -> None:
    home = tmp_path / "disk"
    with small_disk(home, 24):
        async with connected(new_app(home), "auto") as client:
            stored: list[str] = []
            while True:
                text = f"Memory {len(stored)} " + "of a long and winding tale " * 4000
                result = await client.call_tool("remember", {"memories": [text]})
                if result.is_error:
                    break
                stored.append(result.structured_content["results"][0]["id"])
                assert len(stored) < 200
            assert "full" in result.content[0].text
            counts = (await ask(client, "open_episode", id="stats"))["details"]["memories"]
            assert counts["live"] == len(stored)
            gone = await ask(client, "forget", ids=stored[:1], action="erase")
            assert gone["affected"] == stored[:1]
        async with connected(new_app(home), "auto") as client:
            for memory_id in stored[1:]:
                await ask(client, "open_episode", id=memory_id)


# CASE 21
async def test_another_embedder_is_a_sentence_with_the_mend_and_nothing_is_mixed(tmp_path: Path) -> None:
    async with connected(app_with(tmp_path, dimension=64), "auto") as client:
        await ask(client, "remember", memories=["The first model saw this."])
    for other in ({"dimension": 32}, {"dimension": 64, "name": "other-words"}):
        async with connected(app_with(tmp_path, **other), "auto") as client:
            assert len((await client.list_tools()).tools) == 5
            for tool, arguments in (("recall", {"query": "first model"}), ("remember", {"memories": ["Second."]})):
                assert "reembed" in await refusal(client, tool, **arguments)
            assert len((await ask(client, "recall"))["items"]) == 1
    async with connected(app_with(tmp_path, dimension=64), "auto") as client:
        assert len((await ask(client, "recall", query="first model saw"))["items"]) == 1


async def test_a_reembedding_makes_the_other_embedder_the_right_one(tmp_path: Path) -> None:
    async with connected(app_with(tmp_path, dimension=64), "auto") as client:
        await ask(client, "remember", memories=[f"Note {n} about lakes" for n in range(150)])
    other = app_with(tmp_path, dimension=32)
    heard: list[tuple[int, int]] = []
    async with other.running():
        state = await other.reembed(lambda done, total: heard.append((done, total)))
    assert (state.dimension, state.target_name) == (32, None)
    assert heard[0] == (0, 150)
    async with connected(app_with(tmp_path, dimension=32), "auto") as client:
        assert len((await ask(client, "recall", query="note about lakes", limit=20))["items"]) > 10


# CASE 21
async def test_a_model_whose_dimension_is_not_known_yet_is_never_mixed_with_another(tmp_path: Path) -> None:
    async with connected(app_with(tmp_path, dimension=64), "auto") as client:
        await ask(client, "remember", memories=["The first model saw this."])
    late = FakeEmbedder(dimension=0, name="other-words")
    async with connected(open_app(Settings(home=tmp_path), clock=FakeClock(), embedder=late), "auto") as client:
        late.dimension = 64  # as if the first call had loaded it
        assert "reembed" in await refusal(client, "remember", memories=["Second."])


async def test_a_new_file_takes_a_model_whose_dimension_shows_with_its_first_vector(tmp_path: Path) -> None:
    late = FakeEmbedder(dimension=0, name="late-words")
    async with connected(open_app(Settings(home=tmp_path), clock=FakeClock(), embedder=late), "auto") as client:
        await ask(client, "open_episode", id="stats")
        late.dimension = 32
        await ask(client, "remember", memories=["Seen late."])
        stats = (await ask(client, "open_episode", id="stats"))["details"]
        assert stats["embedder"]["dimension"] == 32
        assert stats["memories"]["pending"] == 0
