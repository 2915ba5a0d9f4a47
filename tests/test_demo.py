"""The demo is run for real: the server as a child process, the bundled embedder, a file on disk."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from middleout_mcp.cli.demo import FAKE_KEY, Step, load_sample

ROOT = Path(__file__).parents[1]


def demo(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The finished command."""
    command = [sys.executable, "-m", "middleout_mcp", "demo", *arguments]
    return subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8", check=False
    )


def test_the_demo_shows_each_step_and_ends_well() -> None:
    run = demo()
    assert run.returncode == 0, run.stdout + run.stderr
    assert "FAILED" not in run.stdout
    for words in (
        "Remember a conversation",
        "Recall: Which oven",
        "Open the episode",
        "Plan a compression",
        "Compress",
        "Undo",
        "Forget",
    ):
        assert words in run.stdout
    assert FAKE_KEY not in run.stdout


def test_the_demo_keeps_its_file_where_asked_and_reports_as_json(tmp_path: Path) -> None:
    run = demo("--keep", str(tmp_path / "kept"), "--json", "--out", str(tmp_path / "report.json"))
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads(run.stdout)
    assert report == json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["ok"] is True
    assert all(step["ok"] for step in report["steps"])
    assert {call["tool"] for step in report["steps"] for call in step["calls"]} == {
        *("remember", "recall", "open_episode", "compress", "forget"),
    }
    assert (tmp_path / "kept" / "memory.db").is_file()


def test_the_demo_never_writes_where_something_is_already(tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_text("mine", encoding="utf-8")
    run = demo("--keep", str(tmp_path))
    assert run.returncode == 1
    assert "is not empty" in run.stderr
    assert (tmp_path / "memory.db").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(("checks", "ok"), [({}, False), ({"a": True}, True), ({"a": True, "b": False}, False)])
def test_a_step_is_good_only_if_it_checked_something_and_all_of_it_holds(checks: dict[str, bool], ok: bool) -> None:
    assert Step("a step", checks=checks).ok is ok


def test_the_sample_is_moved_to_the_days_before_now_and_holds_a_key_that_is_none() -> None:
    sample = load_sample(datetime(2030, 5, 10, tzinfo=UTC))
    text = json.dumps(sample)
    assert set(re.findall(r"2030-05-\d\d", text)) == {"2030-05-06", "2030-05-09", "2030-05-19"}
    assert "{key}" not in text
    assert "{due}" not in text
    assert text.count(FAKE_KEY) == 2
    assert sum(len(stretch["messages"]) for stretch in sample["stretches"]) == 24
