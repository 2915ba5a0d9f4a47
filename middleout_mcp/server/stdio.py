"""Serving one client over standard input and output, and leaving at once when it is gone.

There is one way out. A signal and a hang-up end the input (`wire`), the end of input ends the SDK's loop, that cancels
what is in flight and closes the App, which waits for a running write; then the process ends without waiting for threads
that still load a model. Whatever gets stuck on the way is given up after `_GRACE_SECONDS`: an unfinished write was
not acknowledged, and the file undoes it.
"""

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import anyio
from mcp.server.mcpserver import MCPServer

from middleout_mcp.app import open_app
from middleout_mcp.server.leaving import give_up_later, leave, on_signals
from middleout_mcp.server.logs import log_to_stderr
from middleout_mcp.server.mcp_server import build_server
from middleout_mcp.server.wire import take_input, take_output
from middleout_mcp.settings import Settings

logger = logging.getLogger(__name__)

_EXPLANATION = """\
middleout-mcp serves the Model Context Protocol on standard input and output: a client starts it, you rarely do.
Memory file: {file}
To connect a client, give it this command, for example:
  claude mcp add memory -- {command}
To see what it does: {command} demo
All commands: {command} --help
It now waits for protocol messages; leave with Ctrl-C.
"""


def serve_stdio(settings: Settings) -> NoReturn:
    """Serve until the client closes the input or a signal comes; never returns."""
    log_to_stderr(settings.log_level)
    if sys.stdin is None or sys.stdout is None:
        logger.error("standard input or output is closed; a client starts middleout-mcp with both connected to it")
        os._exit(2)
    if sys.stdin.isatty():
        sys.stderr.write(_EXPLANATION.format(file=settings.file, command=_command()))
    server = build_server(open_app(settings))
    end_input = take_input(take_output(), give_up_later)
    gc.freeze()  # what start-up made stays: no collection needs to look at it again
    gc.enable()
    if sys.platform != "win32":
        on_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), lambda: _end(end_input))
    anyio.run(_serve, server)
    raise AssertionError("_serve leaves the process")


def _command() -> str:
    """How this program was started, in full: a client finds no program by the PATH of somebody's shell."""
    import shlex
    import shutil

    program = Path(sys.argv[0])
    if program.name == "__main__.py":
        return shlex.join([sys.executable, "-m", program.parent.name])
    return shlex.join([os.path.abspath(shutil.which(program) or program)])


def _end(end_input: Callable[[], None]) -> None:
    """Begin the end, in whatever thread. The input may not be read at this moment: what limits the end starts here."""
    give_up_later()
    end_input()


async def _serve(server: MCPServer[None]) -> NoReturn:
    try:
        await server.run_stdio_async()
    finally:
        leave(sys.exception())
