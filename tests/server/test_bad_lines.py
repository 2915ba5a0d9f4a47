"""Lines that are no message: each is answered in one sentence, by id where it can be read, and the server works on."""

import json
import re
import subprocess
import sys

import pytest

from middleout_mcp.server.lines import refusals
from tests.server.connect import ROOT, Child, child

PARSE_ERROR, INVALID_REQUEST = -32700, -32600
ERAS = ("handshake", "2026")


def request(arguments: str, request_id: str = "7") -> bytes:
    """A call of remember as raw JSON."""
    params = f'{{"name": "remember", "arguments": {arguments}}}'
    return f'{{"jsonrpc": "2.0", "id": {request_id}, "method": "tools/call", "params": {params}}}'.encode()


def nested(depth: int) -> bytes:
    """A call whose turn carries data of that depth."""
    data = "[" * depth + "]" * depth
    return request(f'{{"messages": [{{"role": "user", "text": "Okapi", "data": {data}}}]}}')


def digits(count: int) -> bytes:
    """A call whose turn carries a number of that many digits."""
    return request(f'{{"messages": [{{"role": "user", "text": "Okapi", "data": {"7" * count}}}]}}')


BAD_LINES = [
    (b"no json Okapi", PARSE_ERROR, None),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "Okapi', PARSE_ERROR, None),
    (request("{}") + request("{}"), PARSE_ERROR, None),
    (b"\xff\xfe", PARSE_ERROR, None),
    (rb'{"jsonrpc": "2.0", "id": 7, "method": "\ud8', PARSE_ERROR, None),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "a\tb"}', PARSE_ERROR, None),
    (nested(200), INVALID_REQUEST, 7),
    (nested(100_000), INVALID_REQUEST, 7),
    (b"[" * 100_000, INVALID_REQUEST, None),
    (digits(5_000), INVALID_REQUEST, 7),
    (digits(1_000_000), INVALID_REQUEST, 7),
    (request("{}", "7" * 5_000), INVALID_REQUEST, None),
    (request('"Okapi"').replace(b'"params": {', b'"params": [').replace(b"}}", b"]}"), PARSE_ERROR, None),
    (b'{"jsonrpc": "2.0", "id": "seven", "method": "tools/call", "params": ["Okapi"]}', INVALID_REQUEST, "seven"),
    (b'{"id": 7, "method": "tools/list"}', INVALID_REQUEST, 7),
    (b'{"jsonrpc": "1.0", "id": 7, "method": "tools/list"}', INVALID_REQUEST, 7),
    (b'{"jsonrpc": "2.0", "id": 7, "result": "Okapi"}', INVALID_REQUEST, None),
    (b'{"jsonrpc": "2.0", "method": 5}', INVALID_REQUEST, None),
    (request("{}", "null"), INVALID_REQUEST, None),
    (request("{}", "7.5"), INVALID_REQUEST, None),
    (request("{}", '{"Okapi": 1}'), INVALID_REQUEST, None),
    (b"{}", INVALID_REQUEST, None),
    (b"[]", INVALID_REQUEST, None),
    (b'"Okapi"', INVALID_REQUEST, None),
    (b"5", INVALID_REQUEST, None),
    (b"null", INVALID_REQUEST, None),
]
MESSAGES = [
    nested(150),
    digits(4_000),
    request('{"memories": ["\ufffd"]}'),
    request("{}", '"any \\" text"'),
    b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7, "id": 1}}',
    b'{"jsonrpc": "2.0", "id": 7, "result": {}}',
    b'{"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "x"}}',
    b" \n",
    b"",
]


def begin(server: Child, era: str) -> None:
    """Open the connection in that era."""
    if era == "handshake":
        server.shake_hands()
    else:
        recall(server, era)


def recall(server: Child, era: str) -> None:
    """A whole call, which must succeed."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    sent = server.begin("tools/call", name="recall", arguments={}, **({"_meta": meta} if era == "2026" else {}))
    answer = server.answer()
    assert answer["id"] == sent
    assert not answer["result"].get("isError")


@pytest.mark.parametrize("era", ERAS)
def test_each_line_that_is_no_message_is_answered_and_the_server_works_on(tmp_path, era):
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        begin(server, era)
        for line, code, request_id in BAD_LINES:
            server.send(line)
            answer = server.answer()
            assert (answer["error"]["code"], answer["id"]) == (code, request_id), line[:100]
            assert re.fullmatch(r"[^\n]{20,160}", answer["error"]["message"])
            assert "Okapi" not in json.dumps(answer)
        recall(server, era)
        code, out, err = server.leave()
    assert (code, out) == (0, b"")
    assert b"Okapi" not in err


def test_a_line_that_is_no_message_is_answered_before_the_connection_is_open(tmp_path):
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.send(b"no json")
        assert server.answer()["error"]["code"] == PARSE_ERROR
        server.shake_hands()
        recall(server, "handshake")


def test_an_answer_to_the_last_line_is_written_before_the_server_leaves(tmp_path):
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.process.stdin.write(b"no json, and no line end")
        code, out, _ = server.leave()
    assert code == 0
    assert json.loads(out)["error"]["code"] == PARSE_ERROR


def test_a_client_may_send_thousands_of_bad_lines_before_it_reads_an_answer(tmp_path):
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        for _ in range(5_000):
            server.send(b"{}")
        sent = server.begin("tools/list")
        answers = [server.answer() for _ in range(5_001)]
    assert sum("error" in answer for answer in answers) == 5_000
    assert [answer["id"] for answer in answers if "result" in answer] == [sent]


def test_answers_to_bad_lines_never_fall_into_another_answer(tmp_path):
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        server.call("remember", memories=["Okapis sleep. " * 20_000])
        for _ in range(50):
            server.begin("tools/list")  # larger than what a pipe writes at once
            server.send(b"{}")
        answers = [server.answer() for _ in range(100)]
    assert sum("tools" in answer.get("result", ()) for answer in answers) == 50


def test_each_request_of_a_batch_is_told_that_batches_are_not_supported():
    batch = b"[" + request("{}", "1") + b", " + request('{"deep": [[1]]}', '"two"') + b', {"method": "x"}, 5]'
    answers = [json.loads(answer) for answer in refusals(batch.decode())]
    assert [answer["id"] for answer in answers] == [1, "two"]
    assert all("batches are not supported" in answer["error"]["message"] for answer in answers)


@pytest.mark.parametrize("line", MESSAGES)
def test_what_is_a_message_is_not_refused(line):
    assert refusals(line.decode()) == []


def test_data_nested_too_deep_to_keep_is_a_sentence_of_the_tool(tmp_path):
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        server.send(nested(150))
        answer = server.answer()
    assert answer["id"] == 7
    assert "100 levels" in answer["result"]["content"][0]["text"]


def test_a_carriage_return_inside_a_message_is_a_blank(tmp_path):
    with child(tmp_path, MIDDLEOUT_EMBEDDER="none") as server:
        server.shake_hands()
        server.send(b'{"jsonrpc": "2.0",\r"id": 7,\r"method": "ping"}\r')
        assert server.answer()["id"] == 7


def test_what_is_printed_while_serving_goes_to_stderr_and_the_protocol_to_stdout():
    program = (
        "import os, sys\n"
        "from middleout_mcp.server.wire import take_output\n"
        "output = take_output()\n"
        "print('printed', flush=True)\n"
        "os.write(1, b'written\\n')\n"
        "output.write(b'half a ')\n"
        "output.answer([b'an answer'])\n"
        "output.wait_for_answers()\n"
        "output.write(b'line\\nand')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True)
    assert ended.stdout.splitlines() == [b"an answer", b"half a line"]
    assert ended.stderr.splitlines() == [b"printed", b"written"]
