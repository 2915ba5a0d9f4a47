"""The start of serving: nothing is imported here that it does not need, and collecting garbage waits."""

import gc
import os
import signal
from typing import Any, NoReturn

COMPLETION = "_MIDDLEOUT_MCP_COMPLETE"
"""The variable with which a shell's completion script, which click prints, starts this command without arguments."""


def serve(http: tuple[str, int] | None = None, /, **chosen: Any) -> NoReturn:
    """Serve over standard input and output, or on host and port over HTTP, with the settings, of which `chosen` wins;
    never returns.
    """
    gc.disable()  # imports make nothing but survivors: collecting among them takes a quarter of the start
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave_at_once)
    from middleout_mcp.cli.options import settings_or_exit

    settings = settings_or_exit(**chosen)
    if http is not None:
        from middleout_mcp.server.http import serve_http

        serve_http(settings, *http)
    from middleout_mcp.server.stdio import serve_stdio

    serve_stdio(settings)


def _leave_at_once(_number: int, _frame: object) -> NoReturn:
    """While starting there is nothing to clean up; on Windows, later too: the file is left as after a crash."""
    os._exit(0)
