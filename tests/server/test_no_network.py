"""No network at start or by default (DESIGN §12.5): the whole server runs where every attempt is refused and recorded.

An audit hook in the child sees what Python code does, native code included where it goes through Python's sockets; the
second way takes the network away from the whole process, where the system lets a user do that.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.connect import ROOT, Child, child

HOOK = """
import os, sys

ATTEMPTS = ("socket.connect", "socket.getaddrinfo", "socket.gethostby", "socket.sendto", "socket.sendmsg")
ATTEMPTS += ("urllib.Request", "http.client.connect", "ftplib.connect", "smtplib.connect")


def record(event, arguments):
    if event.startswith(ATTEMPTS):
        with open(os.environ["ATTEMPTS_FILE"], "a", encoding="utf-8") as file:
            file.write(f"{event} {arguments[1:]}\\n")
        raise ConnectionRefusedError("there is no network here")


sys.addaudithook(record)
open(os.environ["ATTEMPTS_FILE"], "a").close()
"""
UNSHARE = ["unshare", "--map-root-user", "--net"]


@pytest.fixture
def attempts(tmp_path: Path) -> Path:
    """The file that attempts are recorded in; the hook beside it makes it when a process starts."""
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    return tmp_path / "attempts"


def watched(attempts: Path) -> dict[str, str]:
    """The environment of a child whose attempts are recorded, and that no setting keeps from the network."""
    return {"PYTHONPATH": str(attempts.parent / "hook"), "ATTEMPTS_FILE": str(attempts), "HF_HUB_OFFLINE": "0"}


def use_everything(server: Child) -> None:
    """Each tool with the bundled model, a resource and a prompt; every call must succeed."""

    def call(tool: str, **arguments: object) -> dict:
        result = server.call(tool, **arguments)
        assert not result.get("isError"), result
        return result["structuredContent"]

    server.shake_hands()
    server.begin("tools/list")
    assert len(server.answer()["result"]["tools"]) == 5
    turns = [{"role": "user", "text": "I moved to https://lake.example/house last Friday.", "at": "last Friday"}]
    stored = call("remember", memories=["Ann lives at https://lake.example/house."], messages=turns, thread="t")
    memory = stored["results"][0]["id"]
    assert stored["results"][0]["actions"] == ["stored"]  # and not pending: the model was there
    assert memory in [item["id"] for item in call("recall", query="where does Ann live", since="last year")["items"]]
    assert call("open_episode", id=stored["episode"]["id"])["turns"]
    assert "run_id" in call("compress")
    for method, named in (("resources/read", {"uri": "memory://stats"}), ("prompts/get", {"name": "brief"})):
        server.begin(method, **named)
        assert "result" in server.answer()
    assert memory in call("forget", ids=[memory], action="erase")["affected"]
    assert server.leave()[0] == 0


def test_no_tool_tries_to_reach_the_network(tmp_path: Path, attempts: Path) -> None:
    with child(tmp_path, **watched(attempts)) as server:
        use_everything(server)
    assert attempts.read_text() == ""


# CASE 2
def test_a_model_that_must_be_downloaded_is_looked_for_by_the_first_call_that_needs_it_and_not_before(
    tmp_path: Path, attempts: Path
) -> None:
    environment = {**watched(attempts), "FASTEMBED_CACHE_PATH": str(tmp_path / "cache")}
    with child(tmp_path, MIDDLEOUT_EMBEDDER="BAAI/bge-small-en-v1.5", **environment) as server:
        server.shake_hands()
        server.begin("tools/list")
        server.answer()
        server.call("open_episode", id="stats")
        assert attempts.read_text() == ""
        stored = server.call("remember", memories=["Ann lives at the lake."])
        assert stored["structuredContent"]["results"][0]["actions"] == ["stored", "pending"]
        assert server.call("recall", query="Ann lives")["structuredContent"]["items"]
    assert attempts.read_text() != ""  # which also shows that attempts are seen


@pytest.mark.parametrize(
    "attempt",
    [
        "import socket; socket.create_connection(('192.0.2.1', 80))",
        "import socket; socket.getaddrinfo('name.example', 80)",
        "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
        "import urllib.request; urllib.request.urlopen('https://name.example')",
        "import asyncio; asyncio.run(asyncio.open_connection('192.0.2.1', 80))",
    ],
)
def test_an_attempt_is_seen_and_fails(attempts: Path, attempt: str) -> None:
    environment = {**os.environ, **watched(attempts)}
    ended = subprocess.run([sys.executable, "-c", attempt], env=environment, capture_output=True)
    assert b"there is no network here" in ended.stderr
    assert attempts.read_text() != ""


def test_the_whole_server_works_in_a_process_without_any_network(tmp_path: Path) -> None:
    if sys.platform != "linux" or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode != 0:
        pytest.skip("this system does not let a user take the network away from a process")
    with child(tmp_path, before=UNSHARE, HF_HUB_OFFLINE="0") as server:
        use_everything(server)


LOUD = """
import asyncio, os
from middleout_mcp.adapters.fastembed import open_embedder
os.environ["ORT_DISABLE_TELEMETRY"] = ""
asyncio.run(open_embedder("minilm-int8", 30).embed(["Is anybody told of this?"]))
"""


def files_of(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())


def test_no_library_notes_or_reports_anything_in_the_home_of_the_user(tmp_path: Path) -> None:
    """ONNX Runtime reports its use over sockets of its own, which no hook sees; it begins with a file in the cache."""
    user, memory = tmp_path / "user", tmp_path / "memory"
    user.mkdir(), memory.mkdir()
    with child(memory, HOME=str(user), XDG_CACHE_HOME=str(user / "cache"), ORT_DISABLE_TELEMETRY="0") as server:
        use_everything(server)
        server.leave()
    assert files_of(user) == []
    if sys.platform == "linux":  # the control: it is really silenced, not silent
        heard = {"HOME": str(user), "XDG_CACHE_HOME": "", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        kept = {name: value for name, value in os.environ.items() if name != "CI"}  # which silences it, too
        subprocess.run([sys.executable, "-c", LOUD], env={**kept, **heard}, check=True)
        assert files_of(user) != []
