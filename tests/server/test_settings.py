"""Each setting does what it says, in a process that was started with it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.fakes import FakeClock
from tests.server.connect import Child, ask, child, connected, new_app


@contextmanager
def serving(home: Path, *options: str, **settings: str) -> Iterator[Child]:
    """A server with these settings, ready to be called."""
    environment = {f"MIDDLEOUT_{name.upper()}": value for name, value in {"embedder": "none", **settings}.items()}
    with child(home, *options, **environment) as server:
        server.shake_hands()
        yield server


def call(server: Child, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured content of a call that must succeed."""
    result = server.call(tool, **arguments)
    assert not result.get("isError"), result
    return result["structuredContent"]


def refusal(server: Child, tool: str, **arguments: Any) -> str:
    """The sentence of a call that must be refused."""
    result = server.call(tool, **arguments)
    assert result["isError"]
    return result["content"][0]["text"]


def texts(found: dict[str, Any]) -> list[str]:
    return [item["text"] for item in found["items"]]


@pytest.mark.parametrize("query", [{"query": "diagnosis in May"}, {}])
def test_sensitive_recall_returns_what_is_sensitive_for_a_purpose_that_is_audited(
    tmp_path: Path, query: dict[str, str]
) -> None:
    text = "The diagnosis was made in May."
    with serving(tmp_path) as server:
        call(server, "remember", memories=[{"text": text, "privacy": "sensitive"}])
        for purpose in ({}, {"purpose": "care plan"}):
            found = call(server, "recall", **query, **purpose)
            assert (found["items"], found["withheld"][0]["count"]) == ([], 1)
            assert "MIDDLEOUT_SENSITIVE_RECALL is off" in found["withheld"][0]["reason"]
        server.leave()
    with serving(tmp_path, sensitive_recall="true") as server:
        for purpose in ({}, {"purpose": "  "}):
            found = call(server, "recall", **query, **purpose)
            assert found["items"] == []
            assert "say what they are needed for in purpose" in found["withheld"][0]["reason"]
        kinds = [each["kind"] for each in call(server, "open_episode", id="stats")["details"]["operations"]]
        assert "disclose" not in kinds
        found = call(server, "recall", **query, purpose="care plan")
        assert texts(found) == [text]
        assert "withheld" not in found
        newest = call(server, "open_episode", id="stats")["details"]["operations"][0]
        assert (newest["kind"], newest["reason"], newest["undoable"]) == ("disclose", "care plan", False)
        audited = call(server, "open_episode", id=newest["id"])
        assert audited["details"]["counts"] == {"offered": 1}


@pytest.mark.anyio
@pytest.mark.parametrize(("setting", "number"), [({}, 2), ({"synchronous": "full"}, 2), ({"synchronous": "normal"}, 1)])
async def test_synchronous_is_how_the_one_writer_of_the_file_waits_for_the_disk(
    tmp_path: Path, setting: dict[str, str], number: int
) -> None:
    opened: list[apsw.Connection] = []
    apsw.connection_hooks.append(opened.append)
    try:
        app = new_app(tmp_path, jobs_off="all", **setting)
        async with connected(app, "auto") as client:
            await ask(client, "remember", memories=["Soup needs salt."])
            await app.settled()
            of_file = [each for each in opened if each.filename.endswith("memory.db") and not each.pragma("query_only")]
            assert [each.pragma("synchronous") for each in of_file] == [number]
    finally:
        apsw.connection_hooks.remove(opened.append)


@pytest.mark.anyio
@pytest.mark.parametrize(("setting", "active"), [({}, 5), ({"active_sessions": 2}, 2), ({"active_sessions": 0}, 0)])
async def test_active_sessions_is_how_many_compression_leaves_alone(
    tmp_path: Path, setting: dict[str, int], active: int
) -> None:
    app = new_app(tmp_path, **setting)
    async with connected(app, "auto") as client:
        clock = (await app.parts()).clock
        assert isinstance(clock, FakeClock)
        for number in range(7):
            turns = [
                {"role": "user", "text": f"On day {number} step {step} of the tunnel went well."} for step in "abc"
            ]
            await ask(client, "remember", messages=turns, thread=f"day {number}", session=f"day {number}")
            clock.advance(minutes=1)
        bands = (await ask(client, "compress"))["report"]["bands"]
    assert bands == {"foundation": 0, "middle": 3 * (7 - active), "active": 3 * active}


def test_a_text_of_more_than_max_text_bytes_is_refused_and_never_cut(tmp_path: Path) -> None:
    whole, long = "é" * 499 + "xx", "é" * 500 + "x"
    assert (len(whole.encode()), len(long.encode())) == (1_000, 1_001)
    with serving(tmp_path, max_text_bytes="1000") as server:
        turn = {"role": "user", "text": whole}
        stored = call(server, "remember", memories=[whole], messages=[turn], thread="t")
        for given in (
            {"memories": ["Fine.", long]},
            {"memories": ["Fine."], "messages": [{**turn, "text": long}]},
            {"memories": [{"id": stored["results"][0]["id"], "text": long}]},
        ):
            assert "1,001 bytes, over the limit of 1,000" in refusal(server, "remember", **given)
        assert call(server, "open_episode", id=stored["results"][0]["id"])["text"] == whole
        assert call(server, "open_episode", id=stored["episode"]["id"])["turns"][0]["text"] == whole
        counts = call(server, "open_episode", id="stats")["details"]["memories"]
        assert (counts["live"], counts["turns"]) == (1, 1)
        server.leave()
    with serving(tmp_path) as server:
        call(server, "remember", memories=[long])


def test_project_is_what_this_project_means_as_a_scope(tmp_path: Path) -> None:
    with serving(tmp_path, project="atlas") as server:
        given = [
            {"text": "Deploy on Friday.", "scope": "This project"},
            {"text": "Deploy by hand.", "scope": "borealis"},
        ]
        stored = call(server, "remember", memories=given)
        opened = call(server, "open_episode", id=stored["results"][0]["id"])
        assert opened["details"]["record"]["scope"] == "atlas"
        for scope in ("atlas", "this project"):
            assert texts(call(server, "recall", query="deploy", scope=scope)) == ["Deploy on Friday."]
        server.leave()
    with serving(tmp_path, project="borealis") as server:
        assert texts(call(server, "recall", query="deploy", scope="this project")) == ["Deploy by hand."]


def test_the_option_project_sets_it_with_a_namespace_of_its_own(tmp_path: Path) -> None:
    for name in ("atlas", "borealis"):
        (tmp_path / name).mkdir()
        with serving(tmp_path, "serve", "--project", str(tmp_path / name)) as server:
            stored = call(server, "remember", memories=[{"text": f"Deploy {name}.", "scope": "this project"}])
            opened = call(server, "open_episode", id=stored["results"][0]["id"])
            assert opened["details"]["record"]["scope"] == name
            assert texts(call(server, "recall", query="deploy")) == [f"Deploy {name}."]
            server.leave()


@pytest.mark.parametrize(("level", "lines"), [(None, 1), ("DEBUG", 1), ("WARNING", 1), ("ERROR", 0)])
def test_log_level_is_from_where_on_something_goes_to_stderr(tmp_path: Path, level: str | None, lines: int) -> None:
    setting = {} if level is None else {"log_level": level}
    with serving(tmp_path, embedder=str(tmp_path / "nowhere"), **setting) as server:
        call(server, "remember", memories=["Soup needs salt."])
        _, _, err = server.leave()
    assert err.count(b" WARNING middleout_mcp.") == len(err.splitlines()) == lines


def test_read_namespaces_are_read_and_not_written(tmp_path: Path) -> None:
    ids = {}
    for name in ("ann", "bob", "cleo"):
        with serving(tmp_path, namespace=name) as server:
            ids[name] = call(server, "remember", memories=[f"The harbour of {name}."])["results"][0]["id"]
            server.leave()
    with serving(tmp_path, namespace="ann", read_namespaces="bob, ann") as server:
        assert set(texts(call(server, "recall", query="harbour"))) == {"The harbour of ann.", "The harbour of bob."}
        assert call(server, "open_episode", id=ids["bob"])["text"] == "The harbour of bob."
        assert "cleo" not in refusal(server, "open_episode", id=ids["cleo"]).replace(ids["cleo"], "")
        for arguments in ({"ids": [ids["bob"]], "action": "erase"}, {"ids": [ids["bob"]]}):
            refusal(server, "forget", **arguments)
        refusal(server, "remember", memories=[{"id": ids["bob"], "text": "Changed."}])
        server.leave()
    with sqlite3.connect(tmp_path / "memory.db") as connection:
        rows = connection.execute("SELECT id, text, version, status FROM memory ORDER BY n").fetchall()
    connection.close()
    assert rows == [(ids[name], f"The harbour of {name}.", 1, "live") for name in ids]
