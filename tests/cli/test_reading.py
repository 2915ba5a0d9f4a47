"""`recall`, `list`, `show`, `stats`: what a person finds out, and that looking changes nothing."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli.conftest import Known

Run = Callable[..., Result]
Ask = Callable[..., dict[str, Any]]

READING = [
    ("recall",),
    ("recall", "kitchen"),
    ("search", "what", "is", "the", "kitchen", "made", "of"),
    ("list",),
    ("stats",),
    ("audit",),
    ("audit", "--verify"),
    *(("show", name) for name in ("decision", "episode", "gap", "remember")),
]


def texts(result: dict[str, Any]) -> list[str]:
    return [item["text"] for item in result["items"]]


def with_ids(known: Known, arguments: tuple[str, ...]) -> list[str]:
    """The arguments, names of known things replaced by their ids."""
    return [known.ids.get(word, word) if arguments[0] == "show" else word for word in arguments]


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_json_is_the_same_each_time_and_looking_changes_nothing(
    known: Known, run: Run, answer: Ask, arguments: tuple[str, ...]
) -> None:
    before = answer(known.home, "stats"), answer(known.home, "audit")
    first, second = (answer(known.home, *with_ids(known, arguments)) for _ in range(2))
    for result in (first, second):
        result.pop("recall_id", None)  # drawn anew for each recall
    assert first == second
    assert (answer(known.home, "stats"), answer(known.home, "audit")) == before
    shown = run(known.home, *with_ids(known, arguments))
    assert shown.exit_code == 0
    assert shown.stdout.strip()
    assert shown.stderr == ""


@pytest.mark.parametrize("arguments", [*READING, ("compress", "--dry-run")], ids=" ".join)
def test_out_writes_what_json_prints_and_prints_nothing(
    known: Known, run: Run, answer: Ask, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    out = tmp_path / "out.json"
    written = run(known.home, *with_ids(known, arguments), "--out", str(out))
    assert (written.exit_code, written.output) == (0, "")
    assert json.loads(out.read_text(encoding="utf-8")).keys() == answer(known.home, *with_ids(known, arguments)).keys()


def test_an_out_file_that_cannot_be_is_refused_before_anything_is_done(known: Known, run: Run, answer: Ask) -> None:
    before = answer(known.home, "audit")
    refused = run(known.home, "pin", known.ids["task"], "--out", str(known.home / "missing" / "out.json"))
    assert refused.exit_code == 1
    assert refused.stderr.endswith("out.json cannot be written: there is no such folder\n")
    assert answer(known.home, "audit") == before


def test_list_narrows_by_kind_tag_status_time_and_pages(known: Known, answer: Ask) -> None:
    home = known.home
    assert set(texts(answer(home, "list", "--tag", "house"))) == {"Call the plumber.", "The kitchen gets oak."}
    assert texts(answer(home, "list", "--kind", "decision")) == ["The kitchen gets oak."]
    assert texts(answer(home, "list", "--status", "archived")) == ["The kitchen gets pine."]
    assert len(answer(home, "list", "--status", "all", "--limit", "100")["items"]) == 26
    assert answer(home, "list", "--until", "2026-01-01")["items"] == []
    assert answer(home, "list", "--pinned")["items"] == []
    assert len(answer(home, "list", "--thread", "lighthouse", "--limit", "100")["items"]) == 20
    first, second = answer(home, "list", "--limit", "5"), answer(home, "list", "--limit", "5", "--offset", "5")
    assert first["more"]
    every = answer(home, "list", "--limit", "100")
    assert [*first["items"], *second["items"]] == every["items"][: len(first["items"]) + len(second["items"])]
    assert not every["more"]


def test_an_empty_answer_says_what_to_do(known: Known, run: Run, answer: Ask) -> None:
    assert "leave some out, or add --status all" in run(known.home, "list", "--kind", "error").stdout
    elsewhere = run(known.home, "list", "--namespace", "empty").stdout
    assert "Nothing is remembered in the namespace empty." in elsewhere
    assert "--namespace garden" in elsewhere
    assert answer(known.home, "list", "--namespace", "empty")["namespaces"] == {"default": 27, "garden": 1}
    assert "`middleout-mcp list` shows what is" in run(known.home, "recall", "submarine").stdout
    assert "No operation is recorded here" in run(known.home, "audit", "--namespace", "empty").stdout
    assert "nothing to compress" in run(known.home, "compress", "--dry-run", "tag:nothing").stdout
    assert "nothing was found that could be meant" in run(known.home, "forget", "--query", "submarine").stdout


def test_the_owner_sees_private_memories_of_every_agent_and_no_sensitive_ones(
    known: Known, run: Run, answer: Ask
) -> None:
    assert "The diary lies in the attic." in texts(answer(known.home, "list"))
    assert "The diary lies in the attic." in texts(answer(known.home, "recall", "diary"))
    assert "diary" in answer(known.home, "show", known.ids["private"])["text"]
    assert answer(known.home, "forget", "--query", "diary")["candidates"][0]["id"] == known.ids["private"]
    listed = run(known.home, "list")
    assert "1 memory withheld, sensitive" in listed.stdout
    assert "heart" not in listed.stdout
    assert run(known.home, "show", known.ids["sensitive"]).exit_code == 1
    allowed = {"MIDDLEOUT_SENSITIVE_RECALL": "true"}
    assert "heart" not in run(known.home, "recall", "heart attack", **allowed).stdout
    assert "heart" in run(known.home, "recall", "heart attack", "--purpose", "for the doctor", **allowed).stdout


def test_show_accepts_every_pointer(known: Known, run: Run, answer: Ask) -> None:
    run_id = answer(known.home, "compress", "--dry-run")["run_id"]
    expected = {
        known.ids["decision"]: ("The kitchen gets oak.", "History", "confidence"),
        known.ids["episode"]: ("lamp number 19", "Ann, 2026-03-05 23:49", "Memories"),
        known.ids["gap"]: ("Stretches", "lamp"),
        known.ids["remember"]: ("remember", "The kitchen gets oak.", f"middleout-mcp undo {known.ids['remember']}"),
        run_id: ("planned", "searchable bytes", f"--run-id {run_id}"),
    }
    for pointer, parts in expected.items():
        shown = run(known.home, "show", pointer)
        assert shown.exit_code == 0, shown.output
        for part in (pointer, *parts):
            assert part in shown.stdout
        assert answer(known.home, "show", pointer)["id"] == pointer


def test_show_opens_a_long_text_whole(known: Known, run: Run, answer: Ask) -> None:
    words = " ".join(f"word{n}" for n in range(12_000))
    run(known.home, "edit", known.ids["task"], "--text", words)
    assert answer(known.home, "show", known.ids["task"])["text"] == words
    assert "word11999" in run(known.home, "show", known.ids["task"]).stdout
    (line,) = [each for each in run(known.home, "list").stdout.splitlines() if known.ids["task"] in each]
    assert len(line) < 400


def test_times_are_local_for_people_and_utc_in_json(known: Known, run: Run, answer: Ask) -> None:
    berlin = {"MIDDLEOUT_TIMEZONE": "Europe/Berlin"}
    assert "2026-03-05 23:50" in run(known.home, "show", known.ids["decision"]).stdout
    assert "2026-03-06 00:50" in run(known.home, "show", known.ids["decision"], **berlin).stdout
    assert "2026-03-06 00:51" in run(known.home, "audit", **berlin).stdout
    assert answer(known.home, "show", known.ids["decision"], **berlin)["details"]["record"]["at"].endswith("23:50:00Z")
    every = json.dumps(answer(known.home, "list", **berlin))
    assert re.findall(r"2026-03-06", every) == []
    assert texts(answer(known.home, "list", "--since", "2026-03-06", **berlin)) != []
    assert answer(known.home, "list", "--since", "2026-03-06")["items"] == []


def test_stats_tell_numbers_and_nothing_of_the_command_itself(known: Known, run: Run, answer: Ask) -> None:
    stats = answer(known.home, "stats")
    assert stats["memories"]["archived"] == 1
    assert stats["memories"]["turns"] == 20
    assert "session" not in stats
    shown = run(known.home, "stats").stdout
    assert re.search(r"live +26", shown)
    assert known.ids["archive"] in shown
