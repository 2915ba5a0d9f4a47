"""The process that serves HTTP: what it binds, what it says, and how it ends."""

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import Client, MCPError

from tests.server.connect import ERAS, EXIT_SECONDS, ask, serving
from tests.server.test_command_line import run

WAYS_TO_END = ["SIGTERM", "SIGINT", "SIGHUP"]
LOST = (MCPError, httpx2.HTTPError, anyio.ClosedResourceError, anyio.BrokenResourceError)

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def is_clean(ended: tuple[int, bytes, bytes]) -> bool:
    """Exit code 0, nothing on stdout, nothing on stderr after the line that names the URL."""
    return ended == (0, b"", b"")


def stored(home: Path) -> int:
    """How many memories are there, as a later server counts them."""
    with serving(home) as (server, url):
        counts = anyio.run(_counts, url)
        assert is_clean(server.leave("SIGTERM"))
    return counts.get("live", 0)


async def _counts(url: str) -> dict[str, int]:
    async with Client(url) as client:
        return (await ask(client, "open_episode", id="stats"))["details"]["memories"]


def test_one_line_tells_the_url_and_how_to_add_it(tmp_path):
    with serving(tmp_path) as (server, url):
        assert url.startswith("http://127.0.0.1:") and url.endswith("/mcp")
        assert httpx2.get(url).status_code == 400  # there is no session yet
        if sys.platform != "win32":
            assert is_clean(server.leave("SIGTERM"))


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.2", "10.0.0.1", "example.com", "", "127.0.0.1:80", "::ffff:127.0.0.1", "[::]"]
)
def test_every_address_but_that_of_this_machine_is_refused_before_anything_is_opened(tmp_path, host):
    ended = run(tmp_path, "serve", "--http", "--host", host, "--port", "0")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert "127.0.0.1" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--port", "80"], ["--host", "::1"], ["--http", "--port", "70000"]])
def test_options_that_mean_nothing_are_refused(tmp_path, arguments):
    ended = run(tmp_path, "serve", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("host", "shown"), [("localhost", "127.0.0.1"), ("::1", "[::1]"), ("[::1]", "[::1]")])
def test_other_names_of_this_machine_are_served(tmp_path, host, shown):
    if ":" in host and not has_ipv6():
        pytest.skip("no IPv6 here")
    with serving(tmp_path, "--host", host) as (_, url):
        assert f"http://{shown}:" in url
        assert httpx2.get(url).status_code == 400  # there is no session yet


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


def test_a_port_in_use_is_one_sentence(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run(tmp_path, "serve", "--http", "--port", str(port))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
    assert f"port {port}" in ended.stderr and "in use" in ended.stderr


@posix_only
def test_a_port_of_the_system_is_one_sentence(tmp_path):
    with contextlib.suppress(PermissionError), socket.create_server(("127.0.0.1", 81)):
        pytest.skip("this user may take any port")
    ended = run(tmp_path, "serve", "--http", "--port", "81")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1


@posix_only
@pytest.mark.anyio
@pytest.mark.parametrize("how", WAYS_TO_END)
async def test_it_ends_cleanly_with_streams_open_and_idle_connections(tmp_path, how):
    with serving(tmp_path) as (server, url):
        with contextlib.suppress(*LOST):
            async with Client(url, mode="legacy") as old, Client(url) as new:
                await ask(old, "remember", memories=["The kettle is red."])
                async with new.listen(resources_list_changed=True):
                    ended = await anyio.to_thread.run_sync(server.leave, how)
        assert is_clean(ended)
    assert await anyio.to_thread.run_sync(stored, tmp_path) == 1


@posix_only
@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("signals", [["SIGTERM"], ["SIGINT", "SIGINT"], ["SIGTERM", "SIGINT", "SIGTERM"]])
async def test_it_ends_cleanly_in_the_middle_of_a_large_write_and_keeps_all_or_nothing(tmp_path, era, signals):
    memories = [f"Tea number {number} is kept in tin {number}." for number in range(2_000)]
    outcome: list[str] = []

    async def write(client: Client) -> None:
        try:
            await ask(client, "remember", memories=memories)
            outcome.append("stored")
        except MCPError as error:
            outcome.append(error.message)

    with serving(tmp_path) as (server, url):
        with contextlib.suppress(*LOST):
            async with Client(url, mode=era) as client, anyio.create_task_group() as tasks:
                tasks.start_soon(write, client)
                await client.list_tools(cache_mode="bypass")
                for name in signals[:-1]:
                    server.process.send_signal(signal.Signals[name])
                ended = await anyio.to_thread.run_sync(server.leave, signals[-1])
        assert is_clean(ended)
    (answer,) = outcome
    count = await anyio.to_thread.run_sync(stored, tmp_path)
    assert (answer, count) == ("stored", 2_000) or ("the server is stopping" in answer and count in (0, 2_000))


@pytest.mark.anyio
async def test_what_was_acknowledged_is_there_after_a_kill(tmp_path):
    with serving(tmp_path) as (server, url), contextlib.suppress(*LOST):
        async with Client(url, mode="legacy") as old, Client(url) as new:
            for number in range(5):
                await ask(old, "remember", memories=[f"Old jar {number} is full."])
                await ask(new, "remember", memories=[f"New jar {number} is full."])
            server.process.kill()
            await anyio.to_thread.run_sync(server.process.wait, EXIT_SECONDS)
    assert await anyio.to_thread.run_sync(stored, tmp_path) == 10


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_goes_away_in_the_middle_of_a_call_does_no_harm(tmp_path, era):
    memories = [f"Tea number {number} is kept in tin {number}." for number in range(2_000)]
    with serving(tmp_path) as (server, url):
        for _ in range(3):
            async with Client(url, mode=era) as client, anyio.create_task_group() as tasks:
                tasks.start_soon(ask, client, "recall")
                tasks.start_soon(_call, client, memories)
                await client.list_tools(cache_mode="bypass")
                tasks.cancel_scope.cancel()
        host, port = url.removeprefix("http://").removesuffix("/mcp").split(":")
        with socket.create_connection((host, int(port))) as half:
            half.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost:1\r\nContent-Length: 900\r\n")
            half.sendall(b'Content-Type: application/json\r\nAccept: */*\r\n\r\n{"jsonrpc"')
        async with Client(url, mode=era) as client:
            await ask(client, "remember", memories=["The kettle is red."])
            assert (await _counts(url))["live"] in (1, 2_001)
        if sys.platform != "win32":
            code, out, err = await anyio.to_thread.run_sync(server.leave, "SIGTERM")
            assert (code, out) == (0, b"")
            assert b"internal error" not in err


async def _call(client: Client, memories: list[str]) -> None:
    await client.call_tool("remember", {"memories": memories})


@posix_only
@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_the_log_holds_no_memory_text_at_any_level(tmp_path, era):
    with serving(tmp_path, MIDDLEOUT_LOG_LEVEL="DEBUG") as (server, url):
        async with Client(url, mode=era) as client:
            await ask(client, "remember", memories=["Xylophone practice at noon."], episode="Xylophone practice")
            await client.call_tool("remember", {"memories": [{"text": "Xylophone", "colour": "Xylophone"}]})
            await client.call_tool("recall", {"query": "Xylophone", "since": "Xylophone"})
            with contextlib.suppress(MCPError):
                await client.get_prompt("Xylophone")
        headers = {"content-type": "application/json", "accept": "*/*"}
        for body in ('{"jsonrpc": "2.0", "Xylophone', '{"jsonrpc": "2.0", "id": 1, "method": "Xylophone"}'):
            for version in ("2025-11-25", "2026-07-28"):
                httpx2.post(url, headers={**headers, "mcp-protocol-version": version}, content=body)
        httpx2.post(url + "?Xylophone=Xylophone", headers=headers, content="Xylophone")
        code, out, err = await anyio.to_thread.run_sync(server.leave, "SIGTERM")
    assert (code, out) == (0, b"")
    assert b"Xylophone" not in err


def test_a_corrupt_file_is_an_answer_and_no_crash_at_start(tmp_path):
    (tmp_path / "memory.db").write_bytes(b"this is no database" * 1_000)
    with serving(tmp_path) as (_, url):
        refused = anyio.run(_refused, url)
    assert refused.is_error
    assert "\n" not in refused.content[0].text
    assert os.path.getsize(tmp_path / "memory.db") == 19_000


async def _refused(url: str):
    async with Client(url) as client:
        return await client.call_tool("remember", {"memories": ["tea"]})
