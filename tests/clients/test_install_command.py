"""`middleout-mcp install` as a person runs it, and what it wrote as a client starts it."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from middleout_mcp.clients import jsonc
from middleout_mcp.clients.places import CLIENTS, VARIABLES
from tests.clients.machines import write
from tests.server.connect import EXIT_SECONDS, ROOT

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the home folder of Windows is not a matter of HOME alone")


def run(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command with a home folder of its own."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "middleout_mcp", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**kept, "HOME": str(home), **environment},
        timeout=4 * EXIT_SECONDS,
    )


def done(home: Path, *arguments: str, **environment: str) -> str:
    ended = run(home, "install", *arguments, **environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def entry(home: Path, client: str) -> dict:
    """What stands in the client's file on this platform, as the report names that."""
    states = json.loads(done(home, "--json"))
    (file,) = [Path(state["file"]) for state in states if state["client"] == client]
    form, section = CLIENTS[client].form, CLIENTS[client].section
    return (tomllib.loads if form == "toml" else jsonc.read)(file.read_text())[section]["memory"]


@pytest.mark.anyio
@pytest.mark.parametrize("client", ["claude-desktop", "codex"])
async def test_what_was_written_starts_a_server_that_lists_its_tools(tmp_path: Path, client: str) -> None:
    home = tmp_path / "home folder"
    done(tmp_path, client, "--home", str(home), "--namespace", "ann")
    written = entry(tmp_path, client)
    assert Path(written["command"]).is_absolute()
    server = StdioServerParameters(
        command=written["command"], args=written["args"], env=written.get("env"), cwd=tmp_path
    )
    async with Client(server, read_timeout_seconds=4 * EXIT_SECONDS) as connected:
        tools = (await connected.list_tools()).tools
        answer = await connected.call_tool("open_episode", {"id": "stats"})
    assert "recall" in [tool.name for tool in tools]
    assert answer.structured_content["details"]["namespace"] == "ann"
    assert (home / "memory.db").is_file()


def test_it_tells_what_it_did_and_what_to_do_next(tmp_path: Path) -> None:
    file = write(tmp_path / ".cursor" / "mcp.json", "{}")
    said = done(tmp_path, "cursor")
    assert f"memory is connected in {file}" in said
    (backup,) = file.parent.glob("*.bak-*")
    assert str(backup) in said
    assert said.splitlines()[-1] == "Restart Cursor."
    assert "seems not to be installed" not in said
    assert "already connected" in done(tmp_path, "cursor")
    assert "memory is removed" in done(tmp_path, "cursor", "--remove")
    assert file.read_text() == "{}"
    assert "is not connected" in done(tmp_path, "cursor", "--remove")
    assert "seems not to be installed" in done(tmp_path, "windsurf")


def test_the_help_names_every_client(tmp_path: Path) -> None:
    said = " ".join(done(tmp_path, "--help").split())
    assert all(name in said for name in CLIENTS)


def test_a_dry_run_prints_the_difference(tmp_path: Path) -> None:
    said = done(tmp_path, "cursor", "--dry-run")
    assert said.startswith("--- ")
    assert '+    "memory": {' in said
    assert list(tmp_path.iterdir()) == []


def test_the_report_is_handed_out_as_json(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    first = json.loads(done(tmp_path, "codex", "--json", "--out", str(out)))
    assert json.loads(out.read_text()) == first
    assert first["client"] == "codex"
    assert (first["changed"], first["backup"], first["action"]) == (True, None, "connected")
    second = json.loads(done(tmp_path, "codex", "--namespace", "ann", "--json"))
    assert Path(second["backup"]).is_file()
    assert "+args" in second["diff"]
    third = json.loads(done(tmp_path, "codex", "--namespace", "ann", "--json"))
    assert (third["changed"], third["backup"], third["diff"], third["next"]) == (False, None, "", None)


def test_without_a_client_all_are_listed_with_their_files(tmp_path: Path) -> None:
    done(tmp_path, "cursor")
    done(tmp_path, "gemini-cli", "--namespace", "ann")
    broken = write(tmp_path / ".codex" / "config.toml", "x = = 1\n")
    states = {state["client"]: state for state in json.loads(done(tmp_path, "--json"))}
    assert list(states) == list(CLIENTS)
    assert {name: state["connected"] for name, state in states.items() if state["connected"] != "no"} == {
        "cursor": "yes",
        "gemini-cli": "differently",
        "codex": "unreadable",
    }
    ended = run(tmp_path, "install")
    for name, state in states.items():
        assert any(line.startswith(name) and state["file"] in line for line in ended.stdout.splitlines())
    assert f"{broken}, line 1" in ended.stderr


def test_a_project_gets_a_namespace_of_its_own_in_its_own_file(tmp_path: Path) -> None:
    project = tmp_path / "tea"
    project.mkdir()
    said = done(tmp_path, "claude-code", "--project", str(project))
    written = json.loads((project / ".mcp.json").read_text())["mcpServers"]["memory"]
    assert written["args"][-2:] == ["--project", str(project)]
    assert "do not share it" in said
    assert not (tmp_path / ".claude.json").exists()


def test_options_before_the_name_of_the_command_count_too(tmp_path: Path) -> None:
    ended = run(tmp_path, "--namespace", "ann", "install", "cursor")
    assert ended.returncode == 0, ended.stderr
    assert entry(tmp_path, "cursor")["args"][-2:] == ["--namespace", "ann"]


def test_the_memory_that_a_shell_has_chosen_is_told_to_the_client(tmp_path: Path) -> None:
    moved = {"MIDDLEOUT_HOME": str(tmp_path / "m"), "MIDDLEOUT_NAMESPACE": "ann", "MIDDLEOUT_LOG_LEVEL": "DEBUG"}
    done(tmp_path, "cursor", "--namespace", "bob", **moved)
    written = entry(tmp_path, "cursor")
    assert written["env"].items() >= {"MIDDLEOUT_HOME": str(tmp_path / "m")}.items()
    assert not written["env"].keys() & {"MIDDLEOUT_NAMESPACE", "MIDDLEOUT_LOG_LEVEL"}
    assert written["args"][-2:] == ["--namespace", "bob"]


def test_what_cannot_be_done_is_one_sentence_and_exit_code_1(tmp_path: Path) -> None:
    file = write(tmp_path / ".cursor" / "mcp.json", '{"a": 1 "b": 2}')
    ended = run(tmp_path, "install", "cursor")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"middleout-mcp: {file}, line 1, column 8: ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["notepad"],
        ["--remove"],
        ["--dry-run"],
        ["cursor", "--namespace", "two words"],
        ["cursor", "--name", "a b"],
        ["cursor", "--project", "/no/such/folder"],
    ],
)
def test_options_that_make_no_sense_are_a_usage_error(tmp_path: Path, arguments: list[str]) -> None:
    ended = run(tmp_path, "install", *arguments)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []
