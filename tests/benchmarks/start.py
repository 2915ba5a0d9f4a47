"""Start, memory and exit beside an empty server on the same SDK, interleaved; calls while a model loads; exits.

    python -m tests.benchmarks.start [--rounds 15] [--exits 5]

Prints medians, and ratios to the empty server. Aims: answer and memory ≤ 1.25 ×, CPU named; a trivial call while the
embedder loads p95 < 20 ms; ≤ 300 MiB with the embedder loaded; exit < 500 ms whatever ends it.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
EMPTY = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("empty")
@server.tool()
async def ping() -> str:
    "Answer."
    return "pong"
server.run("stdio")
"""
OURS = [sys.executable, "-m", "middleout_mcp"]
THEIRS = [sys.executable, "-c", EMPTY]
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}


class Server:
    """A server process, spoken to line by line."""

    def __init__(self, command: list[str], home: str) -> None:
        self.began = time.perf_counter()
        environment = {**os.environ, "MIDDLEOUT_HOME": home, "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self.watched = psutil.Process(self.process.pid)
        self.number = 0

    def send(self, method: str, params: dict[str, Any] | None = None, *, notify: bool = False) -> int:
        """Send a request or notification; the request's number."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if not notify:
            self.number += 1
            message["id"] = self.number
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return self.number

    def answer(self) -> dict[str, Any]:
        """The next line."""
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        self.send(method, params)
        return self.answer()

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that must succeed."""
        result: dict[str, Any] = self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]
        assert not result.get("isError"), result
        return result

    def shake_hands(self) -> float:
        """Initialize and list the tools; milliseconds since the process was started."""
        self.ask("initialize", HELLO)
        self.send("notifications/initialized", notify=True)
        self.ask("tools/list")
        return (time.perf_counter() - self.began) * 1000

    def mebibytes(self) -> float:
        """Resident memory."""
        return float(self.watched.memory_info().rss) / 2**20

    def cpu(self) -> float:
        """Seconds of CPU used so far."""
        times = self.watched.cpu_times()
        return float(times.user + times.system)

    def leave(self, how: str = "closed stdin") -> float:
        """Close the input, or send the signal of that name; milliseconds until the process is gone."""
        assert self.process.stdin is not None
        began = time.perf_counter()
        if how == "closed stdin":
            self.process.stdin.close()
        else:
            self.process.send_signal(signal.Signals[how])
        self.process.wait(30)
        return (time.perf_counter() - began) * 1000


@contextmanager
def started(command: list[str]) -> Iterator[Server]:
    """A server on a folder of its own that does not outlive the block."""
    with tempfile.TemporaryDirectory() as home:
        server = Server(command, home)
        try:
            yield server
        finally:
            server.process.kill()
            server.process.wait()
            for stream in (server.process.stdin, server.process.stdout):
                if stream is not None:
                    stream.close()


def one_start(command: list[str]) -> dict[str, float]:
    """Answer, CPU, memory one second later (the file is open by then), and exit."""
    with started(command) as server:
        answered = server.shake_hands()
        cpu = server.cpu()
        time.sleep(1.0)
        memory = server.mebibytes()
        return {"answer_ms": answered, "answer_cpu_s": cpu, "idle_mib": memory, "exit_ms": server.leave()}


def compare(rounds: int) -> dict[str, dict[str, float]]:
    """Medians of both servers, started in turn, and their ratios."""
    measured: dict[str, list[dict[str, float]]] = {"empty": [], "middleout": []}
    for command in (OURS, THEIRS):  # the first start of each only writes bytecode and fills caches
        one_start(command)
    for _ in range(rounds):
        measured["empty"].append(one_start(THEIRS))
        measured["middleout"].append(one_start(OURS))
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for name, runs in measured.items()
    }
    medians["ratio"] = {key: medians["middleout"][key] / medians["empty"][key] for key in medians["empty"]}
    return medians


def while_loading() -> dict[str, float]:
    """A trivial call again and again while the first remember loads the embedder; then memory with it loaded."""
    with started(OURS) as server:
        server.shake_hands()
        loading = server.send("tools/call", {"name": "remember", "arguments": {"memories": ["A first memory."]}})
        waits = []
        while True:
            began = time.perf_counter()
            number = server.send("ping")
            answers = [server.answer()]
            while answers[-1]["id"] != number:
                answers.append(server.answer())
            waits.append((time.perf_counter() - began) * 1000)
            if loading in [answer["id"] for answer in answers]:
                break
            time.sleep(0.002)
        time.sleep(1.0)
        waits.sort()
        return {
            "calls": len(waits),
            "p50_ms": statistics.median(waits),
            "p95_ms": waits[int(len(waits) * 0.95)],
            "max_ms": waits[-1],
            "loaded_mib": server.mebibytes(),
            "exit_ms": server.leave(),
        }


def be_idle(server: Server) -> None:
    """Nothing is going on, and the file is open."""
    server.call("open_episode", id="stats")


def load_the_model(server: Server) -> None:
    """The first call that needs the model is under way, and so is its loading."""
    be_idle(server)
    server.send("tools/call", {"name": "recall", "arguments": {"query": "tea"}})
    server.ask("ping")
    time.sleep(0.1)


def write_much(server: Server) -> None:
    """The model is loaded, and a call embeds and writes 500 memories."""
    server.call("remember", memories=["A first memory."])
    memories = [f"Tin {number} holds tea number {number}." for number in range(500)]
    server.send("tools/call", {"name": "remember", "arguments": {"memories": memories}})
    server.ask("ping")
    time.sleep(0.1)


WAYS = ("closed stdin", "SIGTERM", "SIGINT")
STATES = {"idle": be_idle, "model loads": load_the_model, "call in flight": write_much}


def exits(rounds: int) -> dict[tuple[str, str], list[float]]:
    """Milliseconds to the exit of each round, for each state and way to end."""
    measured: dict[tuple[str, str], list[float]] = {(state, way): [] for state in STATES for way in WAYS}
    for _ in range(rounds):
        for (state, way), times in measured.items():
            with started(OURS) as server:
                server.shake_hands()
                STATES[state](server)
                times.append(server.leave(way))
    return measured


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--exits", type=int, default=5)
    options = parser.parse_args()
    medians = compare(options.rounds)
    print(f"{'':14}{'empty':>10}{'middleout':>12}{'ratio':>8}")
    for key in medians["empty"]:
        row = [medians[name][key] for name in ("empty", "middleout", "ratio")]
        print(f"{key:14}{row[0]:10.2f}{row[1]:12.2f}{row[2]:8.2f}")
    runs = [while_loading() for _ in range(5)]
    print("\nping while the embedder loads, medians of 5 starts")
    for key in runs[0]:
        print(f"{key:14}{statistics.median(run[key] for run in runs):10.2f}")
    print(f"\n{'ms to exit':16}{'ended by':14}{'median':>8}{'max':>8}")
    for (state, way), times in exits(options.exits).items():
        print(f"{state:16}{way:14}{statistics.median(times):8.0f}{max(times):8.0f}")


if __name__ == "__main__":
    main()
