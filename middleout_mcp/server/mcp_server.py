"""The MCP server: five tools, six resources, three prompts over one App."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp.server.context import ServerMiddleware
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, GetPromptResult, InputRequiredResult

from middleout_mcp import __version__
from middleout_mcp.server.callers import CallerMiddleware
from middleout_mcp.server.instructions import INSTRUCTIONS
from middleout_mcp.server.prompts import add_prompts
from middleout_mcp.server.resources import add_resources
from middleout_mcp.server.tools import memory_tools

if TYPE_CHECKING:
    from middleout_mcp.app import App


class MemoryServer(MCPServer[None]):
    """A server that says what is wrong with a request for a prompt; the package answers "internal error"."""

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[None, Any] | None = None
    ) -> GetPromptResult | InputRequiredResult:
        """One prompt's messages. Raises MCPError for unknown names."""
        prompts = {prompt.name: [each.name for each in prompt.arguments or ()] for prompt in await self.list_prompts()}
        if name not in prompts:
            raise MCPError(INVALID_PARAMS, f"unknown prompt; there are {', '.join(prompts)}")
        if not set(arguments or ()) <= set(prompts[name]):
            takes = ", ".join(prompts[name]) or "no arguments"
            raise MCPError(INVALID_PARAMS, f"unknown argument of prompt {name}; it takes {takes}")
        return await super().get_prompt(name, arguments, context)


def build_server(app: "App", *around: ServerMiddleware[Any]) -> MemoryServer:
    """A server over `app`, which runs as long as the server does; its file opens in the background. What is `around`
    sees each request first.
    """

    @asynccontextmanager
    async def lifespan(_: MCPServer[None]) -> AsyncIterator[None]:
        async with app.running():
            yield

    server = MemoryServer(
        name="middleout-mcp",
        title="Middleout memory",
        version=__version__,
        instructions=INSTRUCTIONS,
        tools=memory_tools(app),
        middleware=[*around, CallerMiddleware(app)],
        lifespan=lifespan,
        log_level="WARNING",
    )
    add_resources(server, app)
    add_prompts(server, app)
    return server
