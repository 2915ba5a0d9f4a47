"""Bad input and bad files: one sentence, the right exit code, and nothing changed."""

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from middleout_mcp.app import open_app
from middleout_mcp.errors import MiddleoutError
from middleout_mcp.settings import Settings
from tests.cli.conftest import Known, of, process
from tests.server.connect import child

Run = Callable[..., Result]
Ask = Callable[..., dict[str, Any]]

REFUSED = [
    (("recall", "x", "--limit", "0"), "limit must be at least 1"),
    (("recall", "x", "--since", "the day of the fish"), "since is not a time"),
    (("recall", "x", "--kind", "colour"), "kinds holds a word that is no kind"),
    (("recall", "x", "--session", "nowhere"), "no such session"),
    (("recall", " "), "query is empty"),
    (("list", "--limit", "99999"), "limit must be at most 10000"),
    (("list", "--offset", "-1"), "offset must be at least 0"),
    (("list", "--tag", ""), "tags[0] is empty"),
    (("show", "m_nothing"), "there is nothing 'm_nothing' to open"),
    (("show", ""), "there is nothing"),
    (("show", "stats"), "middleout-mcp stats"),
    (("show", "op_nothing"), "there is nothing"),
    (("edit", "m_nothing", "--text", "x"), "there is no memory 'm_nothing'"),
    (("edit", "decision"), "say what to change"),
    (("edit", "decision", "--text", " "), "text is empty"),
    (("edit", "decision", "--importance", "2"), "importance must be at most 1"),
    (("edit", "decision", "--due", "2030-01-01", "--kind", "fact"), "state and due belong to kind task"),
    (("edit", "decision", "--expires", "session"), "a command has no session"),
    (("pin", "decision", "m_nothing"), "there is no memory 'm_nothing'"),
    (("forget", "m_nothing"), "there is no 'm_nothing' to forget"),
    (("forget", "decision", "--action", "merge"), "merge needs at least two ids"),
    (("forget", "decision", "--query", "x"), "not both"),
    (("forget", "decision", "--span", "x"), "spans belongs to action redact"),
    (("undo", "decision"), "is no operation"),
    (("undo", "op_nothing"), "There is no operation 'op_nothing' to undo."),
    (("compress", "--dry-run", "elsewhere"), "target is none of middle"),
    (("compress", "--dry-run", "--run-id", "run_nothing"), "there is no run"),
    (("compress", "cancel", "--dry-run"), "no compression is running"),
    (("audit", "--limit", "0"), "limit must be at least 1"),
]
MISUSED = [
    ("nonsense",),
    ("show",),
    ("undo",),
    ("pin",),
    ("forget",),
    ("list", "--status", "lost"),
    ("forget", "m_x", "--action", "burn"),
    ("recall", "x", "--limit", "many"),
    ("recall", "--include", "discarded"),
    ("completion", "tcsh"),
]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_refused_is_one_sentence_and_changes_nothing(
    known: Known, run: Run, answer: Ask, arguments: tuple[str, ...], sentence: str
) -> None:
    before = answer(known.home, "stats"), answer(known.home, "audit")
    refused = run(known.home, *(known.ids.get(word, word) for word in arguments), "--json")
    assert refused.exit_code == 1, refused.output
    assert refused.stdout == ""
    assert refused.stderr.startswith("middleout-mcp: ")
    assert refused.stderr.count("\n") == 1
    assert sentence in refused.stderr
    assert (answer(known.home, "stats"), answer(known.home, "audit")) == before


@pytest.mark.parametrize("arguments", MISUSED, ids=" ".join)
def test_what_is_misused_is_told_with_exit_code_2(known: Known, run: Run, arguments: tuple[str, ...]) -> None:
    misused = run(known.home, *arguments)
    assert misused.exit_code == 2
    assert misused.stdout == ""
    assert "Error: " in misused.stderr


def test_without_a_memory_file_it_says_what_to_do_and_makes_none(tmp_path: Path, run: Run) -> None:
    for arguments in (("list",), ("recall", "x"), ("edit", "m_x", "--text", "x"), ("audit",), ("compress",)):
        told = run(tmp_path / "new", *arguments)
        assert told.exit_code == 1
        assert "connect a client first" in told.stderr
        assert not (tmp_path / "new").exists()


def _damaged(file: Path) -> None:
    file.write_bytes(b"This is no database, and was never one." * 100)


def _newer(file: Path) -> None:
    with sqlite3.connect(file) as raw:
        raw.execute("PRAGMA user_version = 999")
    raw.close()


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.anyio
@pytest.mark.parametrize("spoil", [_damaged, _newer, _folder])
async def test_a_file_that_does_not_open_is_told_in_the_words_of_the_server(
    known: Known, spoil: Callable[[Path], None]
) -> None:
    for name in ("memory.db-wal", "memory.db-shm"):
        (known.home / name).unlink(missing_ok=True)
    spoil(known.home / "memory.db")
    with pytest.raises(MiddleoutError) as raised:
        await open_app(Settings(home=known.home, embedder="none")).parts()
    with child(known.home, **of(known.home)) as server:
        server.shake_hands()
        told = server.call("recall")["content"][0]["text"]
    assert told == str(raised.value)
    ended = process(known.home, "list")
    assert (ended.returncode, ended.stdout.decode(), ended.stderr.decode()) == (1, "", f"middleout-mcp: {told}\n")


def test_a_file_that_another_process_keeps_writing_to_is_read_but_not_written(known: Known) -> None:
    raw = sqlite3.connect(known.home / "memory.db", isolation_level=None)
    raw.execute("BEGIN IMMEDIATE")
    assert b"The kitchen gets oak." in process(known.home, "list").stdout
    refused = process(known.home, "pin", known.ids["task"])
    raw.close()
    assert refused.returncode == 1
    assert refused.stderr.startswith(b"middleout-mcp: Another process has been writing to ")
    assert process(known.home, "list", "--pinned", "--json").stdout.count(b'"id"') == 0


@pytest.mark.skipif(sys.platform == "win32", reason="an argument is always text there")
def test_an_argument_that_is_no_text_is_searched_for_as_such(known: Known) -> None:
    ended = process(known.home, "recall", "kitchen \udcff oak")
    assert ended.returncode == 0, ended.stderr
    assert b"The kitchen gets oak." in ended.stdout
