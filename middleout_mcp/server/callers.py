"""Who is calling: set once a request, read by tools, resources and prompts."""

import hashlib
import secrets
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request

from middleout_mcp.records import Caller

if TYPE_CHECKING:
    from middleout_mcp.app import App

COOKIE = "middleout_client"
"""In it a client over HTTP carries the name that the server gave it, where the protocol has no session."""

_current: ContextVar[Caller] = ContextVar("caller")


def current_caller() -> Caller:
    """The caller of the request being served. Raises LookupError outside of one."""
    return _current.get()


class CallerMiddleware:
    """Notes the caller of each request. The client's name comes with the handshake, since 2026 with every request. The
    key is that of the process over stdio, where it has one client; over HTTP it is drawn from what tells clients apart.
    """

    def __init__(self, app: "App") -> None:
        self._app = app
        self._key = secrets.token_hex(8)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one request, or notification, as its caller."""
        client = ctx.session.client_params
        name = client.client_info.name if client else None
        token = _current.set(self._app.caller(name, self._key_of(ctx, name)))
        try:
            return await call_next(ctx)
        finally:
            _current.reset(token)

    def _key_of(self, ctx: ServerRequestContext[Any, Any], name: str | None) -> str:
        """A digest, as the key is stored with the session and what it is made of may open a connection."""
        if not isinstance(ctx.request, Request):
            return self._key
        return hashlib.blake2b(
            f"{self._key} {_sign(ctx.request, ctx.protocol_version, name)}".encode(), digest_size=8
        ).hexdigest()


def _sign(request: Request, version: str, name: str | None) -> str:
    """What tells a client over HTTP from the others: the session of the handshake, the cookie that it was given since
    there are no sessions, else no more than its name.

    The connection tells nothing: clients open several and close idle ones, and each of them would be a new sitting.
    """
    session = request.headers.get("mcp-session-id")
    if session and version in HANDSHAKE_PROTOCOL_VERSIONS:  # the SDK knows it, or the call is not here
        return f"session {session}"
    cookie = request.cookies.get(COOKIE)
    return f"cookie {cookie}" if cookie else f"name {name}"
