"""The command `middleout-mcp`. A client waits for serving, so it starts before the other commands are imported."""

import os
import sys

from middleout_mcp.cli.start import COMPLETION, serve


def main() -> None:
    """Entry of the script and of `python -m middleout_mcp`."""
    if sys.argv[1:] in ([], ["serve"]) and COMPLETION not in os.environ:
        serve()
    from middleout_mcp.cli.commands import cli

    cli(prog_name="middleout-mcp", complete_var=COMPLETION)
