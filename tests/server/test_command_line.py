"""The command line: options, settings that are wrong, and the commands beside serving."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from middleout_mcp import __version__
from middleout_mcp.cli.options import project_settings
from middleout_mcp.settings import NAMESPACE
from tests.server.connect import EXIT_SECONDS, ROOT, child


def run(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command with no input, so that serving ends at once."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "middleout_mcp", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "MIDDLEOUT_HOME": str(home), "HF_HUB_OFFLINE": "1", **environment},
        timeout=4 * EXIT_SECONDS,
    )


def test_version_and_help(tmp_path):
    assert __version__ in run(tmp_path, "--version").stdout
    shown = run(tmp_path, "--help").stdout
    for word in ("--namespace", "--project", "--home", "serve", "reembed", "demo"):
        assert word in shown


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"MIDDLEOUT_TIMEZONE": "Nowhere"}, "timezone"),
        ({"MIDDLEOUT_NAMESPACE": "two words"}, "namespace"),
        ({"MIDDLEOUT_SYNCHRONOUS": "sometimes"}, "'full' or 'normal'"),
        ({"MIDDLEOUT_MAX_TEXT_BYTES": "lots"}, "max_text_bytes"),
        ({"MIDDLEOUT_READ_NAMESPACES": "a, two words"}, "namespace"),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_exit_code_2(tmp_path, environment, sentence):
    for arguments in ([], ["serve"], ["reembed"]):
        ended = run(tmp_path, *arguments, **environment)
        assert ended.returncode == 2
        assert ended.stdout == ""
        assert sentence in ended.stderr
        assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("content", [b"timezone =", b"colour = 'red'\n", b"\xff = 1"])
def test_a_wrong_settings_file_is_named(tmp_path, content):
    (tmp_path / "config.toml").write_bytes(content)
    ended = run(tmp_path)
    assert ended.returncode == 2
    assert str(tmp_path / "config.toml") in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_home_moves_settings_and_memory_file(tmp_path):
    home = tmp_path / "elsewhere"
    home.mkdir()
    (home / "config.toml").write_text("timezone = 'Nowhere'\n")
    assert run(tmp_path, "--home", str(home)).returncode == 2
    (home / "config.toml").write_text("timezone = 'Europe/Berlin'\n")
    with child(tmp_path, "--home", str(home), MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        server.call("remember", memories=["tea"])
        assert server.leave()[0] == 0
    assert (home / "memory.db").exists()
    assert not (tmp_path / "memory.db").exists()


def stats(home: Path, *options: str) -> dict:
    with child(home, *options, MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        return server.call("open_episode", id="stats")["structuredContent"]["details"]


@pytest.mark.parametrize("options", [["--namespace", "ann"], ["serve", "--namespace", "ann"]])
def test_the_namespace_may_stand_before_or_after_the_command(tmp_path, options):
    assert stats(tmp_path, *options)["namespace"] == "ann"


def test_a_project_has_a_namespace_of_its_own(tmp_path):
    folder = tmp_path / "tea house"
    folder.mkdir()
    assert re.fullmatch("tea-house-[0-9a-f]{8}", stats(tmp_path, "--project", str(folder))["namespace"])
    here = stats(tmp_path, "serve", "--project")["namespace"]
    assert here == project_settings(ROOT)["namespace"]
    assert run(tmp_path, "--project", str(tmp_path / "missing")).returncode == 2


def test_project_namespaces_are_valid_and_differ_for_folders_of_one_name(tmp_path):
    names = {}
    for folder in ("a/tea", "b/tea", "with space & more", "日本語", "x" * 200, "."):
        chosen = project_settings(tmp_path / folder)
        assert NAMESPACE.fullmatch(chosen["namespace"])
        names[chosen["namespace"]] = chosen["project"]
    assert len(names) == 6
    assert project_settings(tmp_path / "a/tea")["project"] == "tea"
    assert project_settings(tmp_path / "a/../a/tea") == project_settings(tmp_path / "a/tea")


def test_reembed_gives_every_memory_a_vector_and_tells_it_as_json(tmp_path):
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        server.call("remember", memories=["Tea is hot.", "Snow is cold."])
        server.leave()
    out = tmp_path / "state.json"
    ended = run(tmp_path, "reembed", "--json", "--out", str(out))
    assert ended.returncode == 0, ended.stderr
    state = json.loads(ended.stdout)
    assert state["dimension"] == 384
    assert json.loads(out.read_text()) == state
    assert run(tmp_path, "reembed").stdout.startswith("All memories have vectors of ")
    assert json.loads(run(tmp_path, "stats", "--json").stdout)["memories"]["pending"] == 0


def test_reembed_without_an_embedder_says_what_to_do(tmp_path):
    ended = run(tmp_path, "reembed", MIDDLEOUT_EMBEDDER="none")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("middleout-mcp: no embedder is set")
    assert "Traceback" not in ended.stderr


def test_demo_refuses_options_it_would_ignore(tmp_path):
    ended = run(tmp_path, "--namespace", "ann", "demo")
    assert ended.returncode == 2
    assert "leave out --namespace" in ended.stderr


def test_a_result_that_cannot_be_written_is_one_sentence(tmp_path):
    ended = run(tmp_path, "reembed", "--out", str(tmp_path / "no such folder" / "state.json"))
    assert ended.returncode == 1
    assert "state.json cannot be written" in ended.stderr
    assert "Traceback" not in ended.stderr
