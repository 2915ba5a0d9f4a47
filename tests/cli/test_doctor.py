"""`doctor`: what is in order, and each fault with its mend and exit code 1."""

import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from middleout_mcp.settings import JOBS
from tests.cli.conftest import Known

Run = Callable[..., Result]
Ask = Callable[..., dict[str, Any]]


def found(ended: Result) -> dict[str, dict[str, str]]:
    """The checks of a report by name."""
    return {check["name"]: check for check in json.loads(ended.stdout)["checks"]}


def test_a_file_in_order_has_no_fault(known: Known, run: Run, answer: Ask) -> None:
    report = answer(known.home, "doctor")
    assert report["ok"]
    names = [check["name"] for check in report["checks"] if check["name"] not in JOBS]
    assert names == ["version", "settings", "file", "log", "embedder", "leader", "disk", "clients", "permissions"]
    shown = run(known.home, "doctor")
    assert shown.exit_code == 0
    assert "Everything is in order." in shown.stdout
    assert "no process has scheduled work" in shown.stdout
    assert str(known.home / "memory.db") in shown.stdout


def test_where_there_is_no_file_none_is_made(tmp_path: Path, run: Run) -> None:
    report = run(tmp_path / "new", "doctor", "--json")
    assert report.exit_code == 0, report.output
    assert found(report)["file"]["state"] == "note"
    assert "embedder" in found(report)
    assert not (tmp_path / "new").exists()


def test_the_bundled_embedder_is_tried(tmp_path: Path, run: Run) -> None:
    report = run(tmp_path, "doctor", "--json", MIDDLEOUT_EMBEDDER="minilm-int8")
    assert found(report)["embedder"]["state"] == "ok"


def test_an_embedder_that_does_not_load_is_a_fault(known: Known, run: Run) -> None:
    report = run(known.home, "doctor", "--json", MIDDLEOUT_EMBEDDER=str(known.home / "missing"), HF_HUB_OFFLINE="1")
    assert report.exit_code == 1
    assert found(report)["embedder"]["state"] == "wrong"
    assert "MIDDLEOUT_EMBEDDER" in found(report)["embedder"]["mend"]


def test_vectors_of_another_model_are_a_fault_that_reembed_mends(known: Known, run: Run) -> None:
    bundled = {"MIDDLEOUT_EMBEDDER": "minilm-int8"}
    assert run(known.home, "reembed", **bundled).exit_code == 0
    assert found(run(known.home, "doctor", "--json", **bundled))["embedder"]["state"] == "ok"
    with sqlite3.connect(known.home / "memory.db") as raw:
        raw.execute("UPDATE embedding SET name = 'another-model'")
    raw.close()
    report = run(known.home, "doctor", "--json", **bundled)
    assert report.exit_code == 1, report.output
    assert found(report)["embedder"]["state"] == "wrong"
    assert "middleout-mcp reembed" in found(report)["embedder"]["mend"]


def test_a_file_that_does_not_open_is_a_fault(known: Known, run: Run) -> None:
    for name in ("memory.db-wal", "memory.db-shm"):
        (known.home / name).unlink(missing_ok=True)
    (known.home / "memory.db").write_bytes(b"no database" * 500)
    report = run(known.home, "doctor", "--json")
    assert report.exit_code == 1
    assert found(report)["file"]["state"] == "wrong"
    assert "put a backup in its place" in found(report)["file"]["mend"]
    assert "1 fault found." in run(known.home, "doctor").stdout


def test_a_log_that_was_changed_is_a_fault(known: Known, run: Run) -> None:
    with sqlite3.connect(known.home / "memory.db") as raw:
        raw.execute("UPDATE operation SET agent = 'mallory' WHERE id = ?", (known.ids["archive"],))
    raw.close()
    report = run(known.home, "doctor", "--json")
    assert report.exit_code == 1
    assert found(report)["log"]["state"] == "wrong"


def test_operations_that_the_file_lost_are_a_fault(known: Known, run: Run) -> None:
    older = (known.home / "memory.db").read_bytes()
    run(known.home, "pin", known.ids["task"])
    (known.home / "memory.db").write_bytes(older)
    for _ in range(2):  # until the proof beside the file is removed
        report = run(known.home, "doctor", "--json")
        assert report.exit_code == 1
        assert "missing in the memory file" in found(report)["log"]["found"]
        assert "remove that when you have seen this" in found(report)["log"]["mend"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
def test_a_file_that_others_can_read_is_a_fault_unless_its_folder_is_closed(known: Known, run: Run) -> None:
    (known.home / "memory.db").chmod(0o644)
    assert run(known.home, "doctor").exit_code == 0
    known.home.chmod(0o755)
    report = run(known.home, "doctor", "--json")
    assert report.exit_code == 1
    assert found(report)["permissions"]["mend"] == f"chmod go= {known.home / 'memory.db'}"


def test_a_namespace_without_anything_is_noted_where_others_have_something(known: Known, run: Run) -> None:
    report = run(known.home, "doctor", "--json", "--namespace", "empty")
    assert report.exit_code == 0
    assert found(report)["namespace"]["found"] == "nothing is in empty, but in default, garden"


def test_it_tells_which_clients_are_connected_and_which_file_cannot_be_read(known: Known, run: Run) -> None:
    user = {"HOME": str(known.home / "user"), "XDG_CONFIG_HOME": str(known.home / "user" / ".config")}
    none = found(run(known.home, "doctor", "--json", **user))["clients"]
    assert (none["state"], "install" in none["mend"]) == ("note", True)
    assert run(known.home, "install", "cursor", **user).exit_code == 0
    assert "Cursor" in found(run(known.home, "doctor", "--json", **user))["clients"]["found"]
    (known.home / "user" / ".gemini").mkdir()
    (known.home / "user" / ".gemini" / "settings.json").write_text("{")
    broken = run(known.home, "doctor", "--json", **user)
    assert broken.exit_code == 1
    assert "line 1" in found(broken)["gemini-cli"]["found"]
