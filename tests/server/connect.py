"""What the tests of the server share: an app on a temporary file, a client in either era, and the child process."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.types import CallToolResult

from middleout_mcp.app import App, open_app
from middleout_mcp.server.mcp_server import build_server
from middleout_mcp.settings import Settings
from tests.fakes import FakeClock, FakeEmbedder

ERAS = ("auto", "legacy")
ROOT = Path(__file__).parents[2]
EXIT_SECONDS = 15  # a limit against hanging, not a measure


def new_app(home: Path, **settings: Any) -> App:
    """The real app on a file in `home`, with a clock that stands still and an embedder that needs no model."""
    return open_app(Settings(home=home, **settings), clock=FakeClock(), embedder=FakeEmbedder())


@asynccontextmanager
async def connected(app: App, era: str) -> AsyncIterator[Client]:
    """A client of a server over `app`, in memory."""
    async with Client(build_server(app), mode=era) as client:
        yield client


def text_of(result: CallToolResult) -> str:
    """The one text block of a result."""
    (block,) = result.content
    return block.text


async def ask(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured content of a call that must succeed."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    return result.structured_content


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """The sentence of a call that must be refused."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return text_of(result)


META = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}
"""What each request says since 2026, in place of a handshake."""


class Child:
    """`middleout-mcp` as a client starts it, spoken to line by line, in the handshake era unless told otherwise.

    `before` is a command that starts the server in its place, such as one that takes the network away.
    """

    def __init__(self, home: Path, *options: str, before: Sequence[str] = (), **environment: str) -> None:
        self.process = subprocess.Popen(
            [*before, sys.executable, "-W", "error", "-m", "middleout_mcp", *options],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "MIDDLEOUT_HOME": str(home), "HF_HUB_OFFLINE": "1", **environment},
        )
        self.calls = 1
        self.meta: dict[str, Any] = {}

    def send(self, message: Mapping[str, Any] | bytes) -> None:
        """Write one line."""
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Read one line, which must be JSON."""
        return json.loads(self.process.stdout.readline())

    def shake_hands(self) -> dict[str, Any]:
        """Initialize; the answer."""
        client = {"name": "test", "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        self.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        answer = self.answer()
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def connect(self, era: str) -> None:
        """Begin as a client of that era does: with the handshake, or with a request that says what the client is."""
        if era == "legacy":
            self.shake_hands()
            return
        self.meta = META
        asked = self.begin("server/discover")
        answer = self.answer()
        assert answer["id"] == asked
        assert answer["result"]["capabilities"]["tools"] is not None

    def begin(self, method: str, **params: Any) -> int:
        """Send a request without waiting for the answer; its id."""
        self.calls += 1
        params = {**params, **self.meta}
        self.send({"jsonrpc": "2.0", "id": self.calls, "method": method, "params": params})
        return self.calls

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The result of a tool call."""
        self.begin("tools/call", name=tool, arguments=arguments)
        return self.answer()["result"]

    def leave(self, how: str = "end of input") -> tuple[int, bytes, bytes]:
        """Make the process end; its exit code and all that was left on stdout and stderr."""
        if how == "end of input":
            self.process.stdin.close()
        else:
            self.process.send_signal(signal.Signals[how])
        code = self.process.wait(EXIT_SECONDS)
        return code, self.process.stdout.read(), self.process.stderr.read()


@contextmanager
def child(home: Path, *options: str, before: Sequence[str] = (), **environment: str) -> Iterator[Child]:
    """A child process that does not outlive the test."""
    started = Child(home, *options, before=before, **environment)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()
        for stream in (started.process.stdin, started.process.stdout, started.process.stderr):
            stream.close()


@contextmanager
def serving(home: Path, *options: str, **environment: str) -> Iterator[tuple[Child, str]]:
    """A child process that serves over HTTP on a free port, and the URL that it names."""
    environment = {"MIDDLEOUT_EMBEDDER": "none", **environment}
    with child(home, "serve", "--http", "--port", "0", *options, **environment) as started:
        named = re.search(r"http://\S+", started.process.stderr.readline().decode())
        assert named, started.process.stderr.read()
        yield started, named[0]
