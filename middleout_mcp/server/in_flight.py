"""The requests that are being served, so that a server which stops can answer every one of them."""

from typing import Any

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR


class InFlight:
    """Middleware that knows what is in flight. A write that has begun is finished first: it cannot be cancelled."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._ending = False
        self._ended = anyio.Event()

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one request, or notification, unless the server stops before it is done."""
        scope = anyio.CancelScope()
        if self._ending:
            scope.cancel()
        self._scopes.add(scope)
        try:
            with scope:
                return await call_next(ctx)
        finally:
            self._scopes.discard(scope)
            if self._ending and not self._scopes:
                self._ended.set()
        raise MCPError(INTERNAL_ERROR, "the server is stopping; what this call changed, if anything, is complete")

    async def end(self) -> None:
        """Cancel everything in flight and whatever comes later; returns when nothing is left."""
        self._ending = True
        if not self._scopes:
            return
        for scope in self._scopes:
            scope.cancel()
        await self._ended.wait()
