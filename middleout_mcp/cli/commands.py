"""The commands of `middleout-mcp`, each imported when it is asked for."""

import importlib
from typing import Any

import click

from middleout_mcp import __version__
from middleout_mcp.cli.call import chosen, shared_options
from middleout_mcp.cli.report import Failed
from middleout_mcp.cli.start import COMPLETION
from middleout_mcp.cli.start import serve as serve_forever

_HTTP_PORT = 8484
_MODULES = {
    "recall": "reading",
    "search": "reading",
    "list": "reading",
    "show": "reading",
    "stats": "reading",
    "edit": "changing",
    "pin": "changing",
    "unpin": "changing",
    "forget": "changing",
    "undo": "changing",
    "compress": "care",
    "audit": "care",
    "reembed": "care",
    "doctor": "doctor",
    "install": "install",
    "demo": "demo",
}
_FUNCTIONS = {"list": "list_", "demo": "demo_command"}


class LateCommands(click.Group):
    """A group whose commands are imported when they are asked for: `serve` waits for none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted([*super().list_commands(ctx), *_MODULES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name not in _MODULES:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"middleout_mcp.cli.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, _FUNCTIONS.get(cmd_name, cmd_name))
        return command


@click.group(cls=LateCommands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@shared_options
@click.version_option(__version__, prog_name="middleout-mcp")
@click.pass_context
def cli(context: click.Context, /, **options: Any) -> None:
    """Memory for LLM clients that gets smaller without getting worse. Without a command: serve over stdio."""
    context.obj = chosen(context, **options)
    if context.invoked_subcommand == "demo" and context.obj:
        raise click.UsageError(f"demo has a memory file of its own; leave out --{', --'.join(context.obj)}")
    if context.invoked_subcommand is None:
        serve_forever(**context.obj)


@cli.command(short_help="Serve one client (the default).")
@shared_options
@click.option("--http", is_flag=True, help="Serve any number of clients over streamable HTTP, on this machine only.")
@click.option("--host", metavar="ADDRESS", help="With --http: the loopback address to listen on [default: 127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65535), help=f"With --http: 0 takes a free one [default: {_HTTP_PORT}].")
@click.pass_context
def serve(context: click.Context, /, http: bool, host: str | None, port: int | None, **options: Any) -> None:
    """Serve one client over standard input and output (the default), or several over HTTP."""
    if not http and (host is not None or port is not None):
        raise click.UsageError("--host and --port go with --http")
    place = ("127.0.0.1" if host is None else host, _HTTP_PORT if port is None else port)
    serve_forever(place if http else None, **chosen(context, **options))


@cli.command(short_help="Print a script for your shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands and options in a SHELL; the README says where it goes."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise Failed(f"there is no completion for {shell}")
    click.echo(kind(cli, {}, "middleout-mcp", COMPLETION).source())
