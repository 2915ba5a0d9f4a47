"""Starts the command given as a client would: `initialize` and `tools/list` over stdio, then end of input."""

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

_TIMEOUT_SECONDS = 60


def main(command: str) -> None:
    """Exit with code 0 only if the server names itself, lists its tools, and leaves by itself with code 0."""
    with tempfile.TemporaryDirectory() as home:
        server = subprocess.Popen(
            [command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "MIDDLEOUT_HOME": home},
        )
        client = {"name": "handshake", "version": "1"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        named = ask(server, 1, "initialize", hello)["serverInfo"]
        send(server, {"method": "notifications/initialized"})
        tools = sorted(tool["name"] for tool in ask(server, 2, "tools/list", {})["tools"])
        server.communicate(timeout=_TIMEOUT_SECONDS)
    if server.returncode != 0:
        sys.exit(f"the server left with code {server.returncode}")
    print(f"{named['name']} {named['version']} answers and offers {', '.join(tools)}.")


def send(server: "subprocess.Popen[str]", message: dict[str, Any]) -> None:
    """Send one message."""
    assert server.stdin is not None
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()


def ask(server: "subprocess.Popen[str]", number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request and return its result; a server that ends instead of answering ends this, too."""
    send(server, {"id": number, "method": method, "params": params})
    assert server.stdout is not None
    for line in server.stdout:
        answer = json.loads(line)
        if answer.get("id") == number:
            result: dict[str, Any] = answer["result"]
            return result
    sys.exit(f"the server ended without an answer to {method}")


if __name__ == "__main__":
    main(sys.argv[1])
