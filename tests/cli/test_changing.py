"""`edit`, `pin`, `unpin`, `forget`, `undo`, `compress` and the log of it all."""

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from tests.cli.conftest import SECRET, Known

Run = Callable[..., Result]
Ask = Callable[..., dict[str, Any]]


def text_of(answer: Ask, known: Known, name: str) -> str:
    return answer(known.home, "show", known.ids[name])["text"]


def test_an_edit_is_a_new_verified_version_and_undo_brings_the_old_one_back(
    known: Known, run: Run, answer: Ask
) -> None:
    done = answer(known.home, "edit", known.ids["decision"], "--text", "The kitchen gets ash.", "--importance", "0.9")
    assert done["results"][0]["actions"] == ["updated", "pending"]
    shown = answer(known.home, "show", known.ids["decision"])
    assert shown["text"] == "The kitchen gets ash."
    assert shown["details"]["record"]["trust"] == "verified"
    assert shown["details"]["importance"] == 0.9
    assert [old["text"] for old in shown["details"]["versions"]] == ["The kitchen gets oak."]
    assert "Earlier versions" in run(known.home, "show", known.ids["decision"]).stdout
    undone = run(known.home, "undo", done["operation_id"])
    assert "1 record put back" in undone.stdout
    assert text_of(answer, known, "decision") == "The kitchen gets oak."
    log = answer(known.home, "audit")["operations"]
    assert [(each["kind"], each["agent"]) for each in log[:2]] == [
        ("restore", "command line"),
        ("remember", "command line"),
    ]
    assert (log[0]["undoes"], log[1]["undone_by"]) == (done["operation_id"], log[0]["id"])
    assert f"undone by {log[0]['id']}" in run(known.home, "audit").stdout
    again = run(known.home, "undo", done["operation_id"])
    assert again.exit_code == 1
    assert "was undone already" in again.stderr
    run(known.home, "undo", log[0]["id"])
    assert text_of(answer, known, "decision") == "The kitchen gets ash."


def test_an_edit_reads_its_text_from_standard_input_and_removes_secrets(known: Known, run: Run, answer: Ask) -> None:
    done = run(known.home, "edit", known.ids["task"], "--text", "-", text="Call 日本. The password: hunter2hunter2\n")
    assert done.exit_code == 0, done.output
    assert "removed: " in done.stdout
    assert text_of(answer, known, "task").startswith("Call 日本. The password: [redacted")


def test_an_edit_of_anothers_private_memory_leaves_it_private_to_them(known: Known, answer: Ask) -> None:
    answer(known.home, "edit", known.ids["private"], "--text", "The diary lies in the cellar.")
    details = answer(known.home, "show", known.ids["private"])["details"]
    assert (details["privacy"], details["agent"]) == ("private", "claude")


def test_what_the_owner_confirms_is_verified_and_reads_as_before(known: Known, answer: Ask) -> None:
    done = answer(known.home, "edit", known.ids["cjk"], "--confirm")
    shown = answer(known.home, "show", known.ids["cjk"])
    assert (shown["text"], shown["details"]["record"]["trust"]) == ("寿司が好きです", "verified")
    answer(known.home, "undo", done["operation_id"])
    assert answer(known.home, "show", known.ids["cjk"])["details"]["record"]["trust"] == "agent"


def test_an_edit_that_policy_refuses_is_a_failure(known: Known, run: Run, answer: Ask) -> None:
    strict = {"MIDDLEOUT_SECRETS": "refuse"}
    refused = run(known.home, "edit", known.ids["task"], "--text", "The password: hunter2hunter2", **strict)
    assert refused.exit_code == 1
    assert "it holds a secret" in refused.stdout
    assert text_of(answer, known, "task") == "Call the plumber."


def test_pin_and_unpin_change_that_alone(known: Known, run: Run, answer: Ask) -> None:
    pinned = run(known.home, "pin", known.ids["task"], known.ids["cjk"])
    assert pinned.stdout.count("changed pinned") == 2
    assert {item["id"] for item in answer(known.home, "list", "--pinned")["items"]} == {
        known.ids["task"],
        known.ids["cjk"],
    }
    assert answer(known.home, "show", known.ids["task"])["details"]["record"]["trust"] == "agent"
    assert "nothing was different" in run(known.home, "pin", known.ids["task"]).stdout
    run(known.home, "unpin", known.ids["task"], known.ids["cjk"])
    assert answer(known.home, "list", "--pinned")["items"] == []


def test_what_is_forgotten_is_archived_and_can_be_undone(known: Known, run: Run, answer: Ask) -> None:
    done = answer(known.home, "forget", known.ids["decision"], "--reason", "no more kitchen")
    assert done["affected"] == [known.ids["decision"]]
    assert "no more kitchen" in run(known.home, "audit").stdout
    archived = answer(known.home, "list", "--status", "archived")["items"]
    assert known.ids["decision"] in [item["id"] for item in archived]
    assert f"middleout-mcp undo {done['operation_id']}" in run(known.home, "show", done["operation_id"]).stdout
    run(known.home, "undo", done["operation_id"])
    assert len(answer(known.home, "list", "--status", "archived")["items"]) == 1


def test_a_query_only_looks(known: Known, run: Run, answer: Ask) -> None:
    before = answer(known.home, "audit")
    looked = run(known.home, "forget", "--query", "kitchen", "--action", "erase")
    assert known.ids["decision"] in looked.stdout
    assert "Nothing was changed. Go on with: middleout-mcp forget ID --action erase" in looked.stdout
    assert answer(known.home, "audit") == before


@pytest.mark.parametrize("action", ["erase", "redact"])
def test_what_is_for_good_is_refused_in_a_pipe_without_yes(known: Known, run: Run, answer: Ask, action: str) -> None:
    before = answer(known.home, "audit")
    refused = run(known.home, "forget", known.ids["secret"], "--action", action, text="y\n")
    assert refused.exit_code == 1
    assert refused.stderr == f"middleout-mcp: {action} cannot be undone; add --yes to do it without being asked\n"
    assert answer(known.home, "audit") == before


def test_with_yes_no_byte_of_it_is_left(known: Known, run: Run) -> None:
    def on_disk() -> bool:
        return any(SECRET.encode() in path.read_bytes() for path in known.home.iterdir())

    assert on_disk()
    erased = run(known.home, "forget", known.ids["secret"], "--action", "erase", "--yes")
    assert erased.exit_code == 0, erased.output
    assert "in no file of the store any more" in erased.stdout
    assert "undo" not in erased.stdout
    assert not on_disk()


def test_suppress_needs_a_time_and_list_shows_what_is_hidden(known: Known, run: Run, answer: Ask) -> None:
    for until in ((), ("--until", "step")):
        refused = run(known.home, "forget", known.ids["cjk"], "--action", "suppress", *until)
        assert refused.exit_code == 2
        assert "suppress needs --until TIME" in refused.stderr
    done = run(known.home, "forget", known.ids["cjk"], "--action", "suppress", "--until", "2099-01-01")
    assert done.exit_code == 0
    assert known.ids["cjk"] not in run(known.home, "recall", "寿司").stdout
    (line,) = [each for each in run(known.home, "list").stdout.splitlines() if known.ids["cjk"] in each]
    assert "suppressed until 2099-01-01" in line


def test_compress_shows_its_plan_and_changes_nothing(known: Known, run: Run, answer: Ask) -> None:
    before = answer(known.home, "list", "--status", "all"), answer(known.home, "audit")
    plan = answer(known.home, "compress", "--dry-run")
    assert plan["status"] == "planned"
    assert set(plan["report"]["bands"]) == {"foundation", "middle", "active"}
    assert plan["report"]["searchable_bytes"]["before"] > plan["report"]["searchable_bytes"]["after_estimate"]
    assert len(plan["clusters"]) == plan["report"]["clusters"] > 0
    shown = run(known.home, "compress", "--dry-run", "--run-id", plan["run_id"]).stdout
    for cluster in plan["clusters"]:
        assert cluster["line"][:40] in shown
    for words in ("bands", "searchable bytes", "Nothing was changed", plan["run_id"]):
        assert words in shown
    assert (answer(known.home, "list", "--status", "all"), answer(known.home, "audit")) == before


def test_audit_verify_finds_what_was_changed_behind_its_back(known: Known, run: Run, answer: Ask) -> None:
    assert answer(known.home, "audit", "--verify")["chain"] == {"intact": True}
    assert "The log is whole" in run(known.home, "audit", "--verify").stdout
    with sqlite3.connect(known.home / "memory.db") as raw:
        raw.execute("UPDATE operation SET agent = 'mallory' WHERE id = ?", (known.ids["archive"],))
    raw.close()
    found = run(known.home, "audit", "--verify", "--json")
    assert found.exit_code == 1
    assert '"intact": false' in found.stdout
    assert known.ids["archive"] in found.stderr
    assert found.stderr.startswith("middleout-mcp: Operation ")


def test_audit_is_paged_and_narrowed_to_a_memory(known: Known, run: Run, answer: Ask) -> None:
    every = answer(known.home, "audit", "--limit", "100")
    assert len(every["operations"]) == 22
    assert answer(known.home, "audit", "--limit", "3", "--offset", "2")["operations"] == every["operations"][2:5]
    assert "--offset 3 shows the next" in run(known.home, "audit", "--limit", "3").stdout
    touched = answer(known.home, "audit", "--memory", known.ids["old"])["operations"]
    assert [each["id"] for each in touched] == [known.ids["archive"], known.ids["remember"]]
