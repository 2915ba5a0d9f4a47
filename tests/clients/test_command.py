"""What a client is told to start, and how our entry is known again."""

from pathlib import Path

import pytest

from middleout_mcp.clients.command import Installation, is_ours, merged, server_entry
from tests.clients.machines import write


def installation(home: Path, *libraries: Path) -> Installation:
    return Installation(home / "bin" / "python", (home / "no", home / "bin"), libraries, home / "lib")


@pytest.mark.parametrize("script", ["middleout-mcp", "middleout-mcp.exe"])
def test_the_script_of_this_installation_is_started_by_its_full_path(tmp_path: Path, script: str) -> None:
    write(tmp_path / "bin" / script, "")
    here = installation(tmp_path)
    assert server_entry(here, [], {}) == {"command": str(tmp_path / "bin" / script)}
    with_options = server_entry(here, ["--namespace", "ann"], {"MIDDLEOUT_HOME": "/m"})
    assert with_options["args"] == ["--namespace", "ann"]
    assert with_options["env"] == {"MIDDLEOUT_HOME": "/m"}


def test_without_a_script_the_interpreter_runs_the_module(tmp_path: Path) -> None:
    entry = {"command": str(tmp_path / "bin" / "python"), "args": ["-m", "middleout_mcp", "--home", "/m"]}
    assert server_entry(installation(tmp_path, tmp_path / "lib"), ["--home", "/m"], {}) == entry
    from_a_checkout = {**entry, "env": {"PYTHONPATH": str(tmp_path / "lib")}}
    assert server_entry(installation(tmp_path), ["--home", "/m"], {}) == from_a_checkout


@pytest.mark.parametrize(
    ("entry", "ours"),
    [
        ({"command": "/a/b/middleout-mcp"}, True),
        ({"command": "C:\\a\\Scripts\\middleout-mcp.exe"}, True),
        ({"command": "python3", "args": ["-m", "middleout_mcp"]}, True),
        ({"command": "uvx", "args": ["middleout-mcp==1.2"]}, True),
        ({"command": "uvx", "args": ["--from", "middleout-mcp[web]", "x"]}, True),
        ({"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]}, False),
        ({"command": "/a/middleout-mcp/other"}, False),
        ({"command": "my-middleout-mcp-proxy"}, False),
        ({"url": "http://127.0.0.1/mcp"}, False),
        ({"command": 3, "args": "middleout-mcp"}, False),
        (None, False),
    ],
)
def test_our_entry_is_known_by_what_it_starts(entry: object, ours: bool) -> None:
    assert is_ours(entry) is ours


def test_command_and_arguments_are_ours_and_the_rest_is_the_users() -> None:
    present = {"command": "old", "args": ["x"], "env": {"MIDDLEOUT_TIMEZONE": "UTC"}, "disabled": False}
    assert merged(present, {"command": "new"}) == {
        "command": "new",
        "env": {"MIDDLEOUT_TIMEZONE": "UTC"},
        "disabled": False,
    }
    assert merged(present, {"command": "new", "args": ["y"], "env": {"A": "1"}})["env"] == {
        "MIDDLEOUT_TIMEZONE": "UTC",
        "A": "1",
    }
    assert merged(None, {"command": "new"}) == {"command": "new"}
