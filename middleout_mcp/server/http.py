"""Serving any number of clients over streamable HTTP, on an address of this machine only.

All clients share one App. Which of them calls is told by `callers`; the protocol's newest era has no sessions, so a
client that asks what the server offers is handed a name in a cookie. The SDK refuses foreign Host and Origin headers,
which is what keeps web pages out. There is one way out here, too: after a signal what is in flight is cancelled and
answered, every client is hung up on, the App closes, which waits for a running write, and the process ends.
"""

import asyncio
import errno
import gc
import ipaddress
import secrets
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import anyio
import uvicorn
from mcp.server.transport_security import RequestBodyLimitMiddleware, TransportSecuritySettings
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from middleout_mcp.app import open_app
from middleout_mcp.server.callers import COOKIE
from middleout_mcp.server.in_flight import InFlight
from middleout_mcp.server.leaving import give_up_later, leave
from middleout_mcp.server.logs import log_to_stderr
from middleout_mcp.server.mcp_server import MemoryServer, build_server
from middleout_mcp.server.wire import mended
from middleout_mcp.settings import Settings

_PATH = "/mcp"
_BODY_BYTES = 4 * 1024 * 1024  # what a request may take beside its longest text
_ESCAPED = 3  # JSON that escapes all but ASCII writes six bytes for a character of two
_KEEP_ALIVE_SECONDS = 75  # more than clients keep an idle connection: they are to close it, not to find it closed
_ANSWER_SECONDS = 0.15  # so long a last answer may take to reach its client
_NAMES = ("127.0.0.1", "localhost", "[::1]")
_READY = "middleout-mcp serves {url} (add it with: claude mcp add --transport http memory {url}); leave with Ctrl-C\n"


def serve_http(settings: Settings, host: str, port: int) -> NoReturn:
    """Serve on a loopback address until a signal comes; port 0 takes a free one. Never returns."""
    log_to_stderr(settings.log_level)
    listening = _listening(_loopback(host), port)
    in_flight = InFlight()
    server = build_server(open_app(settings), in_flight)
    gc.freeze()  # what start-up made stays: no collection needs to look at it again
    gc.enable()
    anyio.run(_serve, server, in_flight, listening, _BODY_BYTES + _ESCAPED * settings.max_text_bytes)
    raise AssertionError("_serve leaves the process")


async def _serve(server: MemoryServer, in_flight: InFlight, listening: socket.socket, body_bytes: int) -> NoReturn:
    try:
        address, port = listening.getsockname()[:2]
        name = f"[{address}]" if ":" in address else address
        listener = _Listener(_configured(server, name, body_bytes))
        stop = anyio.Event()
        _on_signals(stop)
        async with server.session_manager.run(), anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, [listening])
            sys.stderr.write(_READY.format(url=f"http://{name}:{port}{_PATH}"))
            sys.stderr.flush()
            await stop.wait()
            await listener.hang_up(in_flight)
            tasks.cancel_scope.cancel()
    finally:
        leave(sys.exception())


def _loopback(host: str) -> str:
    """The address to listen on; leaves with code 2 where others than this machine could reach it."""
    address = "127.0.0.1" if host.lower() == "localhost" else host.removeprefix("[").removesuffix("]")
    if not _of_this_machine(address):
        sentence = "is no address of this machine alone; without tokens only 127.0.0.1 and ::1 are served"
        _refuse(2, f"{host!r} {sentence}")
    return address


def _of_this_machine(address: str) -> bool:
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return False
    return known.is_loopback and getattr(known, "ipv4_mapped", None) is None


def _listening(address: str, port: int) -> socket.socket:
    """A socket that listens; leaves with code 1 where there can be none."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=256)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            _refuse(1, f"port {port} of {address} is in use; choose another with --port, 0 takes a free one")
        if isinstance(error, PermissionError):
            _refuse(1, f"port {port} needs more rights than you have; choose another with --port, from 1024 on")
        _refuse(1, f"port {port} of {address} cannot be opened: {error.strerror or error}")


def _refuse(code: int, sentence: str) -> NoReturn:
    sys.stderr.write(f"middleout-mcp: {sentence}\n")
    raise SystemExit(code)


def _configured(server: MemoryServer, name: str, body_bytes: int) -> uvicorn.Config:
    """What uvicorn serves: the SDK's application behind `Door`; nothing is logged but what goes wrong."""
    hosts = [f"{each}:*" for each in dict.fromkeys((*_NAMES, name))]
    web = server.streamable_http_app(
        streamable_http_path=_PATH,
        max_request_body_size=body_bytes,
        transport_security=TransportSecuritySettings(
            allowed_hosts=hosts, allowed_origins=[f"http://{each}" for each in hosts]
        ),
    )
    web.router.redirect_slashes = False  # it would redirect to wherever the Host header says
    return uvicorn.Config(
        RequestBodyLimitMiddleware(Door(web), body_bytes),
        interface="asgi3",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )


class Door:
    """What every request passes: half surrogate pairs in its body are mended, and a new client is named.

    Only `server/discover` names: a client that never asks, or drops cookies, keeps to the name it gives itself.
    """

    def __init__(self, inside: ASGIApp) -> None:
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, whose body arrives in one piece unless the client left in the middle of it."""
        first = await receive()
        if first["type"] != "http.request" or first.get("more_body"):
            return
        waiting: list[Message] = [{**first, "body": mended(first.get("body", b""))}]

        async def whole() -> Message:
            return waiting.pop() if waiting else await receive()

        async def naming(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                cookie = f"{COOKIE}={secrets.token_urlsafe(16)}; Path={_PATH}; HttpOnly; SameSite=Strict"
                MutableHeaders(scope=message).append("set-cookie", cookie)
            await send(message)

        request = Request(scope)
        new = request.headers.get("mcp-method") == "server/discover" and COOKIE not in request.cookies
        await self._inside(scope, whole, naming if new else send)


class _Listener(uvicorn.Server):
    """uvicorn, which waits for open streams when it ends, ended from outside."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield

    async def hang_up(self, in_flight: InFlight) -> None:
        """Take no more connections, answer what is in flight, and hang up on every client."""
        for server in self.servers if self.started else ():
            server.close()
        for connection in list(self.server_state.connections):
            scope: Any = getattr(connection, "scope", None)
            if scope and scope["method"] == "GET":
                connection.transport.abort()  # a stream of the handshake era, which has no end
            else:
                connection.shutdown()  # at once, or after the answer
        await in_flight.end()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=_ANSWER_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks)


def _on_signals(stop: anyio.Event) -> None:
    """Let the signals that end a process set `stop`; further ones change nothing."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        if not stop.is_set():
            give_up_later()
            stop.set()

    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores the hang-up
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(end))
