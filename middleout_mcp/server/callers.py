"""Who is calling: set once a request, read by tools, resources and prompts."""

import secrets
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from middleout_mcp.records import Caller

if TYPE_CHECKING:
    from middleout_mcp.app import App

_current: ContextVar[Caller] = ContextVar("caller")


def current_caller() -> Caller:
    """The caller of the request being served. Raises LookupError outside of one."""
    return _current.get()


class CallerMiddleware:
    """Notes the caller of each request. The client's name comes with the handshake, since 2026 with every request; the
    key is that of the process: a stdio server has one client.
    """

    def __init__(self, app: "App") -> None:
        self._app = app
        self._key = secrets.token_hex(8)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one request, or notification, as its caller."""
        client = ctx.session.client_params
        token = _current.set(self._app.caller(client.client_info.name if client else None, self._key))
        try:
            return await call_next(ctx)
        finally:
            _current.reset(token)
