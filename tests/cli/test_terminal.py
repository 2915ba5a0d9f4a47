"""Real processes: on a terminal, in a pipe, on a console that knows no Unicode, and in a shell that completes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

import pytest

from middleout_mcp.cli.page import Page
from tests.cli.conftest import SECRET, Known, of, process
from tests.server.connect import EXIT_SECONDS, ROOT

on_posix = pytest.mark.skipif(sys.platform == "win32", reason="there is no pseudo-terminal")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def terminal(home: Path, *arguments: str, typed: bytes = b"", columns: int = 80, **environment: str) -> tuple[int, str]:
    """Run a command on a terminal of that width and type to it; its exit code and all that the screen showed."""
    import pty

    ours, theirs = pty.openpty()
    size = {"COLUMNS": str(columns), "LINES": "50", "TERM": "xterm"}
    started = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "middleout_mcp", *arguments],
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, **of(home), **size, **environment},
        start_new_session=True,
    )
    os.close(theirs)
    os.write(ours, typed)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # how Linux tells that the other end is closed
        pass
    os.close(ours)
    return started.wait(EXIT_SECONDS), shown.decode().replace("\r\n", "\n")


@on_posix
def test_a_table_fits_the_terminal_and_a_pipe_gets_one_line_a_row(known: Known) -> None:
    text = "The lighthouse keeper wrote that the lamp must be cleaned each morning before the ships come in, 寿司 too."
    assert process(known.home, "edit", known.ids["task"], "--text", text).returncode == 0
    code, shown = terminal(known.home, "list", columns=60)
    assert code == 0
    plain = _COLOURS.sub("", shown)
    assert plain != shown
    assert max(map(len, plain.splitlines())) <= 60
    assert text not in plain
    piped = process(known.home, "list").stdout.decode()
    assert "\x1b" not in piped
    (row,) = [line for line in piped.splitlines() if known.ids["task"] in line]
    assert row.endswith(text)


@on_posix
@pytest.mark.parametrize(("typed", "code", "gone"), [(b"n\n", 1, False), (b"\n", 1, False), (b"y\n", 0, True)])
def test_on_a_terminal_erase_shows_what_it_would_take_and_asks(
    known: Known, typed: bytes, code: int, gone: bool
) -> None:
    ended, shown = terminal(known.home, "forget", known.ids["secret"], "--action", "erase", typed=typed)
    assert f"The cat is called {SECRET}." in shown
    assert "Erase this for good? [y/N]" in shown
    assert ended == code
    assert gone != any(SECRET.encode() in path.read_bytes() for path in known.home.iterdir())


@on_posix
def test_an_edit_without_options_opens_the_editor(known: Known) -> None:
    code, shown = terminal(known.home, "edit", known.ids["decision"], EDITOR="sed -i.bak s/oak/ash/", VISUAL="")
    assert code == 0, shown
    assert "changed text, trust" in shown
    assert b"The kitchen gets ash." in process(known.home, "list").stdout
    code, shown = terminal(known.home, "edit", known.ids["decision"], EDITOR="true", VISUAL="")
    assert code == 1
    assert "nothing was changed" in shown


@on_posix
def test_a_console_without_unicode_gets_escapes_and_valid_json(known: Known) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    code, shown = terminal(known.home, "list", **ascii_only)
    assert code == 0
    assert "\\u5bff\\u53f8" in shown
    code, shown = terminal(known.home, "show", known.ids["cjk"], "--json", **ascii_only)
    assert shown.isascii()
    assert json.loads(shown)["text"] == "寿司が好きです"
    code, shown = terminal(known.home, "show", "m_寿司", **ascii_only)
    assert code == 1
    assert "middleout-mcp: there is nothing" in shown


def test_a_pipe_gets_utf_8_whatever_the_console_has(known: Known) -> None:
    for environment in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        assert "寿司が好きです" in process(known.home, "list", **environment).stdout.decode()
        shown = process(known.home, "list", "--json", **environment).stdout.decode()
        assert "寿司が好きです" in [item["text"] for item in json.loads(shown)["items"]]


def test_control_characters_are_spelt_out(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page(UTC)
    page.line("red \x1b[31m bell \x07")
    page.table(("ID", "TEXT"), [("m_1", "two\nlines \x9b2J")])
    assert capsys.readouterr().out == "red \\x1b[31m bell \\x07\nID   TEXT\nm_1  two lines \\x9b2J\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_asks_this_command(known: Known, shell: str) -> None:
    script = process(known.home, "completion", shell).stdout.decode()
    assert "middleout-mcp" in script
    assert f"_MIDDLEOUT_MCP_COMPLETE={shell}_complete" in script


def test_completing_names_commands_and_options_and_does_not_serve(known: Known) -> None:
    def completed(words: str, count: str) -> str:
        asked = {"_MIDDLEOUT_MCP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": count}
        return process(known.home, **asked).stdout.decode()

    assert "plain,recall" in completed("middleout-mcp re", "1").splitlines()
    assert "plain,--status" in completed("middleout-mcp list --st", "2").splitlines()
    assert "plain,archived" in completed("middleout-mcp list --status a", "3").splitlines()


def test_serving_loads_nothing_of_the_command_line(known: Known) -> None:
    code = (
        "import sys, middleout_mcp.cli.main, middleout_mcp.server.stdio\n"
        "print([name for name in ('rich', 'middleout_mcp.cli.call', 'middleout_mcp.cli.page') if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_a_reader_that_leaves_early_is_no_traceback(known: Known) -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "middleout_mcp", "list", "--limit", "100"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **of(known.home)},
    )
    started.stdout.close()
    assert b"Traceback" not in started.stderr.read()
    started.stderr.close()
    started.wait(EXIT_SECONDS)


def test_the_memory_of_a_project_is_reached_with_its_option(tmp_path: Path, run: Callable[..., object]) -> None:
    folder = tmp_path / "tea house"
    folder.mkdir()
    told = process(tmp_path / "home", "list", "--project", str(folder))
    assert told.returncode == 1
    assert b"no memory file" in told.stderr
