"""Resources: the same pointers as `open_episode`, for clients that attach resources instead of calling tools."""

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver import MCPServer, ResourceSecurity
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from middleout_mcp.errors import InvalidInput, MiddleoutError, NotFound
from middleout_mcp.memory.contract import OpenIn
from middleout_mcp.server import render
from middleout_mcp.server.callers import current_caller

if TYPE_CHECKING:
    from middleout_mcp.app import App

_TOKENS = 10_000  # a resource has no budget of its own: the cap of every result
_NO_PATHS = ResourceSecurity(
    reject_path_traversal=False, reject_absolute_paths=False, reject_null_bytes=False
)  # what stands in the URI is an id; a thread may well be called after a folder


class _Pointers:
    """What each resource opens; the names of the arguments are those in the URI templates."""

    def __init__(self, app: "App") -> None:
        self._app = app

    async def buffer(self) -> str:
        return await self._opened()

    async def stats(self) -> str:
        return await self._opened(id="stats")

    async def thread_buffer(self, thread: str, visible_from: str | None = None) -> str:
        return await self._opened(thread=thread, visible_from=visible_from)

    async def thread_context(self, thread: str) -> str:
        return await self._opened(id="context", thread=thread)

    async def episode(self, id: str) -> str:  # noqa: A002
        return await self._opened(id=_of_kind(id, "e_"))

    async def memory(self, id: str) -> str:  # noqa: A002
        return await self._opened(id=_of_kind(id, "m_"))

    async def _opened(self, **request: Any) -> str:
        try:
            opened = await self._app.open_episode(current_caller(), OpenIn(max_tokens=_TOKENS, **request))
        except NotFound as error:
            raise ResourceNotFoundError(str(error)) from None
        except InvalidInput as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None
        except MiddleoutError as error:
            raise ResourceError(str(error)) from None
        return render.in_zone(self._app.settings.timezone, render.opened, opened)


def _of_kind(pointer: str, prefix: str) -> str:
    if not pointer.startswith(prefix):
        raise ResourceNotFoundError(f"ids here begin with {prefix}; open_episode opens every kind of id")
    return pointer


def add_resources(server: MCPServer[Any], app: "App") -> None:
    """Register the six resources of DESIGN §4."""
    for uri, name, read, title, description in _table(_Pointers(app)):
        register = server.resource(
            uri, name=name, title=title, description=description, mime_type="text/plain", security=_NO_PATHS
        )
        register(read)


def _table(pointers: _Pointers) -> Iterator[tuple[str, str, Callable[..., Awaitable[str]], str, str]]:
    """URI, name, what reads it, title, description."""
    yield (
        "memory://buffer",
        "buffer",
        pointers.buffer,
        "Buffer of the latest conversation",
        "One line for each earlier stretch of the latest conversation, with a pointer that opens it.",
    )
    yield (
        "memory://stats",
        "stats",
        pointers.stats,
        "Statistics",
        "What is remembered, in numbers, and the latest changes.",
    )
    yield (
        "memory://threads/{thread}/buffer{?visible_from}",
        "thread_buffer",
        pointers.thread_buffer,
        "Buffer of a conversation",
        "One line for each earlier stretch of a conversation, with a pointer that opens it.",
    )
    yield (
        "memory://threads/{thread}/context",
        "thread_context",
        pointers.thread_context,
        "Context of a conversation",
        "What a new message of a conversation should see: summary, buffer and the newest messages.",
    )
    yield (
        "memory://episodes/{id}",
        "episode",
        pointers.episode,
        "Episode",
        "A stretch of a conversation, verbatim, with the memories filed from it.",
    )
    yield (
        "memory://memories/{id}",
        "memory",
        pointers.memory,
        "Memory",
        "One memory: its text, versions, evidence and history.",
    )
