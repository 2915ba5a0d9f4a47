"""A memory file with one of everything, and two ways to run a command on a copy of it: here, or in a child process."""

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner, Result

from middleout_mcp.app import open_app
from middleout_mcp.cli.commands import cli
from middleout_mcp.memory.contract import ForgetIn, OpenIn, RememberIn
from middleout_mcp.settings import Settings
from tests.fakes import FakeClock
from tests.server.connect import EXIT_SECONDS, ROOT

SPRING = datetime(2026, 3, 5, 23, 30, tzinfo=UTC)  # the next day already in Berlin
SECRET = "Quetzalcoatl"  # said once, in a memory that tests erase


@dataclass(frozen=True)
class Known:
    """The folder of the file, and the ids in it by what they are."""

    home: Path
    ids: dict[str, str]


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Known:
    """The file that each test gets a copy of."""
    home = tmp_path_factory.mktemp("original")
    return Known(home, anyio.run(_filled, home))


async def _filled(home: Path) -> dict[str, str]:
    clock = FakeClock(SPRING)
    ids: dict[str, str] = {}
    app = open_app(Settings(home=home, embedder="none", active_sessions=0), clock=clock)
    async with app.running():
        claude = app.caller("claude", "process-1")
        for number in range(20):
            messages = [{"role": "user", "name": "Ann", "text": f"The lighthouse lamp number {number} was cleaned."}]
            asked = RememberIn.model_validate({"messages": messages, "thread": "lighthouse"})
            ids["episode"] = (await app.remember(claude, asked)).episode.id
            clock.advance(minutes=1)
        await app.remember(claude, RememberIn(session="end"))  # what was said until now is old, and may be compressed
        buffer = (await app.open_episode(claude, OpenIn(thread="lighthouse", visible_from="99"))).buffer
        ids["gap"] = next(line.id for line in buffer if line.gap)
        given: dict[str, Any] = {
            "decision": {"text": "The kitchen gets oak.", "kind": "decision", "source": "user", "tags": ["house"]},
            "task": {"text": "Call the plumber.", "kind": "task", "due": "2030-01-01", "tags": ["house"]},
            "cjk": {"text": "寿司が好きです", "kind": "preference"},
            "private": {"text": "The diary lies in the attic.", "privacy": "private"},
            "sensitive": {"text": "Ann had a heart attack in 2019.", "privacy": "sensitive"},
            "old": {"text": "The kitchen gets pine."},
            "secret": {"text": f"The cat is called {SECRET}."},
        }
        done = await app.remember(claude, RememberIn.model_validate({"memories": list(given.values())}))
        ids |= dict(zip(given, (each.id for each in done.results), strict=True))
        ids["remember"] = done.operation_id
        clock.advance(minutes=1)
        archived = await app.forget(claude, ForgetIn(ids=[ids["old"]], reason="pine is out"))
        ids["archive"] = archived.operation_id
        other = open_app(Settings(home=home, embedder="none", namespace="garden"), clock=clock)
        async with other.running():
            await other.remember(other.caller("claude", "p"), RememberIn(memories=["Roses grow by the wall."]))
    return ids


@pytest.fixture
def known(original: Known, tmp_path: Path) -> Known:
    """A copy for one test."""
    home = tmp_path / "home"
    shutil.copytree(original.home, home)
    home.chmod(0o700)
    return Known(home, original.ids)


@pytest.fixture
def run() -> Callable[..., Result]:
    """Run a command in this process, with no terminal."""

    def command(home: Path, *arguments: str, text: str | None = None, **environment: str) -> Result:
        env = {**of(home), **environment}
        return CliRunner().invoke(cli, list(arguments), input=text, env=env, prog_name="middleout-mcp")

    return command


@pytest.fixture
def answer(run: Callable[..., Result]) -> Callable[..., dict[str, Any]]:
    """The JSON of a command that must succeed."""

    def command(home: Path, *arguments: str, **environment: str) -> dict[str, Any]:
        ended = run(home, *arguments, "--json", **environment)
        assert ended.exit_code == 0, ended.output
        result: dict[str, Any] = json.loads(ended.stdout)
        return result

    return command


def of(home: Path) -> dict[str, str]:
    """The environment that names a file, without an embedder to load and with every session old."""
    return {"MIDDLEOUT_HOME": str(home), "MIDDLEOUT_EMBEDDER": "none", "MIDDLEOUT_ACTIVE_SESSIONS": "0"}


def process(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of its own, in a pipe; every warning is an error there."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "middleout_mcp", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **of(home), **environment},
        timeout=4 * EXIT_SECONDS,
    )


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command directs the log of its process to its own standard error."""
    root, ours = logging.getLogger(), logging.getLogger("middleout_mcp")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])
