"""Streamable HTTP through real sockets: the same server as over stdio, for several clients that do not mix."""

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.types import Implementation

from middleout_mcp.server.callers import COOKIE
from tests.server.connect import ERAS, ask, child, refusal, serving

HANDSHAKE, NEWEST = "2025-11-25", "2026-07-28"
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
LIST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
TOO_LARGE = 20_000_000
send = partial(httpx2.request, verify=False)  # there is no TLS here, and reading certificates takes long


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that the tests which bring their own words share."""
    with serving(tmp_path_factory.mktemp("shared")) as (_, named):
        yield named


def envelope(client: str) -> dict[str, Any]:
    """What every request of the newest era says about its client."""
    return {
        "io.modelcontextprotocol/protocolVersion": NEWEST,
        "io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }


def newest(url: str, method: str, cookie: str | None = None, client: str = "bare", **params: Any) -> httpx2.Response:
    """One request of the newest era over a connection of its own, as a client without a jar for cookies sends it."""
    headers = {**JSON, "mcp-protocol-version": NEWEST, "mcp-method": method}
    if "name" in params:
        headers["mcp-name"] = params["name"]
    if cookie is not None:
        headers["cookie"] = f"{COOKIE}={cookie}"
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": envelope(client)}}
    return send("POST", url, headers=headers, json=body)


def candidates(url: str, **who: str) -> list[str]:
    """What "forget that" could mean to a client of the newest era."""
    answer = newest(url, "tools/call", name="forget", arguments={}, **who).json()
    return [each["text"] for each in answer["result"]["structuredContent"]["candidates"]]


def remember(url: str, text: str, **who: str) -> None:
    answer = newest(url, "tools/call", name="remember", arguments={"memories": [text]}, **who).json()
    assert not answer["result"].get("isError"), answer


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_a_real_client_does_over_http_all_that_it_does_over_stdio(url, era):
    turns = [{"role": "user", "text": f"The {era} kettle whistles."}]
    async with Client(url, mode=era) as client:
        assert client.protocol_version == (NEWEST if era == "auto" else HANDSHAKE)
        stored = await ask(client, "remember", memories=[f"The {era} kettle is red."], messages=turns, thread=era)
        memory_id = stored["results"][0]["id"]
        found = await ask(client, "recall", query=f"{era} kettle red")
        assert found["items"][0]["id"] == memory_id
        opened = await ask(client, "open_episode", id=stored["episode"]["id"])
        assert [turn["text"] for turn in opened["turns"]] == [turns[0]["text"]]
        (whole,) = (await client.read_resource(f"memory://episodes/{stored['episode']['id']}")).contents
        assert "whistles" in whole.text
        assert len((await client.list_resources()).resources) == 2
        assert len((await client.list_prompts()).prompts) == 3
        (brief,) = (await client.get_prompt("brief")).messages
        assert f"The {era} kettle is red." in brief.content.text
        assert (await ask(client, "compress"))["status"] == "planned"
        assert (await ask(client, "forget", ids=[memory_id], action="erase"))["erasure"] == "complete"
        assert memory_id in await refusal(client, "forget", ids=[memory_id], action="archive")


def begun(url: str, client: str) -> dict[str, str]:
    """Begin a session of the handshake era; the headers of its requests."""
    hello = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": client, "version": "1"}}
    answer = send("POST", url, headers=JSON, json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
    return {**JSON, "mcp-session-id": answer.headers["mcp-session-id"]}


def test_the_tools_are_those_of_stdio_byte_for_byte(url, tmp_path):
    listed = send("POST", url, headers=begun(url, "bare"), content=LIST).text
    (event,) = re.findall(r"^data: (.*?)\r?$", listed, re.MULTILINE)
    with child(tmp_path) as server:
        server.shake_hands()
        server.begin("tools/list")
        assert json.dumps(json.loads(event)["result"]) == json.dumps(server.answer()["result"])
    with child(tmp_path) as server:
        server.begin("tools/list", _meta=envelope("bare"))
        over_stdio = server.answer()["result"]
        assert json.dumps(newest(url, "tools/list").json()["result"]["tools"]) == json.dumps(over_stdio["tools"])


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_two_clients_of_one_name_at_once_do_not_share_what_belongs_to_a_session(url, era):
    async with Client(url, mode=era) as ann, Client(url, mode=era) as bob:
        texts = [f"The {era} teapot number {number} is chipped." for number in range(3)]
        stored = await ask(ann, "remember", memories=texts, thread=f"{era} teapots")
        ids = {result["id"] for result in stored["results"]}
        assert ids == {each["id"] for each in (await ask(ann, "forget"))["candidates"]}
        assert (await ask(bob, "forget")).get("candidates", []) == []

        page = await ask(ann, "recall", query=f"{era} teapot chipped", limit=1)
        assert "cursor" in await refusal(bob, "recall", query=f"{era} teapot chipped", cursor=page["cursor"])
        assert (await ask(ann, "recall", query=f"{era} teapot chipped", limit=1, cursor=page["cursor"]))["items"]

        await ask(ann, "forget", ids=sorted(ids), action="suppress")
        assert not ids & {item["id"] for item in (await ask(ann, "recall", query=f"{era} teapot"))["items"]}
        assert ids & {item["id"] for item in (await ask(bob, "recall", query=f"{era} teapot"))["items"]}


@pytest.mark.anyio
async def test_the_agent_is_the_name_of_each_client(url):
    for era in ERAS:
        one = Client(url, mode=era, client_info=Implementation(name=f"{era}-one", version="1"))
        other = Client(url, mode=era, client_info=Implementation(name=f"{era}-other", version="1"))
        async with one as ann, other as bob:
            private = {"text": f"The {era} diary is locked.", "privacy": "private"}
            stored = (await ask(ann, "remember", memories=[private]))["results"][0]["id"]
            assert (await ask(ann, "open_episode", id=stored))["id"] == stored
            assert stored in await refusal(bob, "open_episode", id=stored)


def test_a_client_of_the_newest_era_that_keeps_no_cookie_has_the_sitting_of_its_name(url):
    remember(url, "The samovar hums.", client="plain")
    assert candidates(url, client="plain") == ["The samovar hums."]
    assert candidates(url, client="other") == []


def test_the_cookie_that_a_client_is_given_tells_it_from_others_of_its_name(url):
    given = newest(url, "server/discover", client="named").headers["set-cookie"]
    assert re.fullmatch(rf"{COOKIE}=[\w-]{{20,}}; Path=/mcp; HttpOnly; SameSite=Strict", given)
    mine = given.partition(";")[0].partition("=")[2]
    remember(url, "The urn drips.", client="named", cookie=mine)
    assert candidates(url, client="named", cookie=mine) == ["The urn drips."]
    assert candidates(url, client="named", cookie="another") == []
    assert candidates(url, client="named") == []
    assert "set-cookie" not in newest(url, "server/discover", client="named", cookie=mine).headers
    assert "set-cookie" not in newest(url, "tools/list", client="named").headers


@pytest.mark.anyio
async def test_many_clients_of_both_eras_write_and_read_at_once(url):
    acknowledged: list[str] = []

    async def work(number: int) -> None:
        async with Client(url, mode=ERAS[number % 2]) as client:
            for call in range(10):
                stored = await ask(client, "remember", memories=[f"Jar {number} holds sort {call} of tea."])
                acknowledged.append(stored["results"][0]["id"])
                await ask(client, "recall", query=f"jar {number} sort {call}")

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(work, number)
    assert len(set(acknowledged)) == 60
    async with Client(url) as client:
        for memory_id in acknowledged:
            assert (await ask(client, "open_episode", id=memory_id))["details"]["record"]["status"] == "live"


@pytest.mark.parametrize("version", [None, HANDSHAKE, NEWEST])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:8484"}, 421),
        ({"host": "127.0.0.1.evil.example:8484"}, 421),
        ({"host": "localhost.evil.example:80"}, 421),
        ({"host": "192.168.1.2:8484"}, 421),
        ({"host": "0.0.0.0:8484"}, 421),
        ({"host": ""}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "https://localhost.evil.example"}, 403),
        ({"origin": "http://localhost.evil.example:80"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "localhost:8484"}, None),
        ({"host": "127.0.0.1:8484"}, None),
        ({"host": "[::1]:8484"}, None),
        ({"origin": "http://localhost:3000"}, None),
        ({"origin": "http://127.0.0.1:3000"}, None),
        ({"origin": "http://[::1]:3000"}, None),
    ],
)
def test_a_foreign_host_or_origin_is_refused_and_this_machine_is_not(url, version, headers, status):
    era = {"mcp-protocol-version": version} if version else {}
    for method in ("POST", "GET", "DELETE"):
        content = LIST if method == "POST" else None
        answer = send(method, url, headers={**JSON, **era, **headers}, content=content)
        if status is None:
            assert answer.status_code not in (403, 421), answer.text
        else:
            assert answer.status_code == status
            assert "result" not in answer.text
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_paths_beside_the_endpoint_are_all_answered_alike(url):
    root = url.removesuffix("/mcp")
    paths = ("/", "/mcp/", "/mcp/x", "/MCP", "/memory.db", "/../memory.db", "/%2e%2e/memory.db", "/sse", "/healthz")
    for path in paths:
        for host in ({}, {"host": "evil.example"}):
            answer = send("POST", root + path, headers={**JSON, **host}, content=LIST)
            assert (answer.status_code, answer.text) == (404, "Not Found")
            assert "location" not in answer.headers and "server" not in answer.headers


@pytest.mark.parametrize("version", [HANDSHAKE, NEWEST])
@pytest.mark.parametrize(
    ("method", "headers", "body"),
    [
        ("POST", {}, b"no json"),
        ("POST", {}, b""),
        ("POST", {}, b"[]"),
        ("POST", {}, b"{}"),
        ("POST", {}, b"[" + LIST + b"]"),
        ("POST", {}, b"\xff\xfe"),
        ("POST", {}, b"[" * 100_000),
        ("POST", {}, LIST[:-1]),
        ("POST", {}, b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}'),
        ("POST", {"content-type": "text/plain"}, LIST),
        ("POST", {"content-type": ""}, LIST),
        ("POST", {"accept": "text/html"}, LIST),
        ("POST", {"mcp-session-id": "0" * 32}, LIST),
        ("POST", {"mcp-session-id": "\x7f"}, LIST),
        ("GET", {"accept": "text/html"}, None),
        ("GET", {}, None),
        ("PUT", {}, LIST),
        ("OPTIONS", {}, None),
        ("DELETE", {}, None),
    ],
)
def test_what_is_no_request_gets_an_error_of_the_protocol_and_the_server_goes_on(url, version, method, headers, body):
    answer = send(method, url, headers={**JSON, "mcp-protocol-version": version, **headers}, content=body)
    assert 400 <= answer.status_code < 500
    if answer.headers.get("content-type") == "application/json":
        assert answer.json()["error"]["message"]
    assert "Traceback" not in answer.text
    assert len(newest(url, "tools/list").json()["result"]["tools"]) == 5


@pytest.mark.parametrize("version", [HANDSHAKE, NEWEST])
@pytest.mark.parametrize("told", [True, False])
def test_a_body_of_many_megabytes_is_refused_whether_it_tells_its_length_or_not(url, version, told):
    whole = b" " * TOO_LARGE
    pieces = (whole[start : start + 100_000] for start in range(0, TOO_LARGE, 100_000))
    headers = {**JSON, "mcp-protocol-version": version}
    assert send("POST", url, headers=headers, content=whole if told else pieces).status_code == 413


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_the_longest_text_passes_and_a_longer_one_is_refused_as_over_stdio(tmp_path, era):
    with serving(tmp_path) as (_, named):
        async with Client(named, mode=era) as client:
            stored = await ask(client, "remember", memories=["é" * 999_990 + " okapi"])
            found = await ask(client, "recall", query="okapi")
            assert [item["id"] for item in found["items"]] == [stored["results"][0]["id"]]
            assert "2,000,000" in await refusal(client, "remember", memories=["x" * 2_000_001])


def test_an_emoji_cut_in_half_by_the_client_is_answered(url):
    cut = rb'"Tea \ud83e in the pot \ud83e\uded6"'
    call = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"remember","arguments":{"memories":[%b]}}}'
    answer = send("POST", url, headers=begun(url, "cut"), content=call % cut)
    assert '"id":7' in answer.text
    stored = re.search(r"m_\w+", answer.text)
    opened = newest(url, "tools/call", name="open_episode", arguments={"id": stored[0]}).json()
    assert opened["result"]["structuredContent"]["text"] == "Tea \ufffd in the pot 🫖"
