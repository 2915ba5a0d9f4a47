"""Where no embedding model loads: one warning, text search meanwhile, and vectors for everything once there is one."""

import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from middleout_mcp.memory.recall import TEXT_ONLY
from middleout_mcp.ports import JobState
from tests.fakes import NEW_YEAR
from tests.server.connect import Child, child, new_app

NOTES = [f"Ann waters plant number {number} by hand." for number in range(70)]  # more than one batch of a back-fill
MEANT = "The physician prescribed pills."
ASKED = "what did a doctor give as medicine"  # shares no word with it, so that only a vector leads there


def call(server: Child, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured content of a call that must succeed."""
    result = server.call(tool, **arguments)
    assert not result.get("isError"), result
    return result["structuredContent"]


def pending(home: Path) -> int:
    """How many memories wait for a vector. The server is not asked: work in the background waits while it is called."""
    with sqlite3.connect(f"{(home / 'memory.db').as_uri()}?mode=ro", uri=True) as connection:
        (count,) = connection.execute("SELECT count(*) FROM memory WHERE NOT embedded").fetchone()
    connection.close()
    return count


def wait_for_vectors(server: Child, home: Path) -> None:
    """Return when nothing is pending any more; the server lives on meanwhile."""
    while pending(home):
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(0.02)


@pytest.mark.parametrize(
    ("model", "cause"),
    [
        ("BAAI/bge-small-en-v1.5", "check the name in MIDDLEOUT_EMBEDDER and the network"),
        ("{home}/no such folder", "put a fastembed-compatible ONNX model into"),
        ("{home}/empty", "no .onnx file in"),
    ],
)
def test_a_model_that_does_not_load_is_one_warning_however_many_calls_need_it(
    tmp_path: Path, model: str, cause: str
) -> None:
    (tmp_path / "empty").mkdir()
    environment = {
        "MIDDLEOUT_EMBEDDER": model.format(home=tmp_path),
        "FASTEMBED_CACHE_PATH": str(tmp_path / "cache"),
    }
    with child(tmp_path, **environment) as server:
        server.shake_hands()
        for number in range(3):
            stored = call(server, "remember", memories=[f"Lake number {number} is deep."])
            assert stored["results"][0]["actions"] == ["stored", "pending"]
            found = call(server, "recall", query=f"lake number {number}")
            assert found["items"][0]["text"] == f"Lake number {number} is deep."
            assert found["notice"] == TEXT_ONLY
        assert pending(tmp_path) == 3
        code, out, err = server.leave()
    assert (code, out) == (0, b"")
    (line,) = err.decode().splitlines()
    assert " WARNING middleout_mcp." in line
    assert cause in line
    assert "Text search goes on; new memories stay pending." in line
    assert "Lake" not in line


def test_no_model_by_choice_is_no_warning_and_no_vector(tmp_path: Path) -> None:
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none", PYTHONPROFILEIMPORTTIME="1") as server:
        server.shake_hands()
        assert call(server, "remember", memories=[MEANT])["results"][0]["actions"] == ["stored", "pending"]
        assert call(server, "recall", query=ASKED)["items"] == []
        found = call(server, "recall", query="physician")
        assert ([item["text"] for item in found["items"]], found["notice"]) == ([MEANT], TEXT_ONLY)
        assert call(server, "open_episode", id="stats")["details"]["embedder"]["configured"] == "none"
        _, _, err = server.leave()
    assert b"WARNING" not in err
    assert b"onnxruntime" not in err


def test_what_was_left_pending_gets_its_vector_by_the_next_memory_of_another_process(tmp_path: Path) -> None:
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        call(server, "remember", memories=[MEANT, *NOTES])
        assert server.leave()[0] == 0
    assert pending(tmp_path) == 1 + len(NOTES)
    with child(tmp_path, MIDDLEOUT_JOBS_OFF="expiry,compression,checkpoint") as server:
        server.shake_hands()
        assert call(server, "recall", query=ASKED)["items"] == []
        assert call(server, "remember", memories=["It rains."])["results"][0]["actions"] == ["stored"]
        wait_for_vectors(server, tmp_path)
        found = call(server, "recall", query=ASKED)
        assert found["items"][0]["text"] == MEANT
        assert "notice" not in found


@pytest.mark.anyio
async def test_what_was_left_pending_gets_its_vector_by_itself_in_another_process(tmp_path: Path) -> None:
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none", MIDDLEOUT_JOBS_OFF="all") as server:
        server.shake_hands()
        call(server, "remember", memories=[MEANT, *NOTES])
        assert server.leave()[0] == 0
    app = new_app(tmp_path)
    async with app.at_hand():  # a back-fill is due a minute after the last one: here it was long ago
        await (await app.parts()).store.control.save_job(JobState(name="backfill", next_run=NEW_YEAR))
    assert pending(tmp_path) == 1 + len(NOTES)
    with child(tmp_path) as server:
        server.shake_hands()
        wait_for_vectors(server, tmp_path)
        assert call(server, "recall", query=ASKED)["items"][0]["text"] == MEANT
