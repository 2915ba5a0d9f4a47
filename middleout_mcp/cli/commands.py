"""Everything `middleout-mcp` does beside serving."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import click

from middleout_mcp import __version__
from middleout_mcp.cli.options import settings_or_exit
from middleout_mcp.cli.report import report, report_options
from middleout_mcp.cli.start import serve as serve_forever
from middleout_mcp.errors import MiddleoutError
from middleout_mcp.records import EmbeddingState

if TYPE_CHECKING:
    from middleout_mcp.app import App

LATE = ("demo", "install")
"""Commands in modules of their own name."""
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_HTTP_PORT = 8484
_FOLDER = click.Path(file_okay=False, path_type=Path)
_OPTIONS = (
    click.option("--namespace", metavar="NAME", help="The isolation boundary to write and read."),
    click.option(
        "--project",
        metavar="[DIR]",
        is_flag=False,
        flag_value=".",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="A namespace of its own for this project folder; without DIR, the current one.",
    ),
    click.option("--home", metavar="DIR", type=_FOLDER, help="Folder of config.toml and of the memory file."),
)


def shared_options(command: FunctionT) -> FunctionT:
    """`--namespace`, `--project` and `--home`, which may stand before or after the name of a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def chosen(context: click.Context, **options: Any) -> dict[str, Any]:
    """The options given after the command's name, then those given before it."""
    before: dict[str, Any] = context.obj or {}
    return {**before, **{name: value for name, value in options.items() if value is not None}}


class LateCommands(click.Group):
    """A group some of whose commands are imported when they are asked for: what they need is needed by no other."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted([*super().list_commands(ctx), *LATE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name in LATE:
            command: click.Command = getattr(import_module(f"middleout_mcp.cli.{cmd_name}"), f"{cmd_name}_command")
            return command
        return super().get_command(ctx, cmd_name)


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


@cli.command()
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


@cli.command()
@shared_options
@report_options
@click.pass_context
def reembed(context: click.Context, /, as_json: bool, out: Path | None, **options: Any) -> None:
    """Make the vectors of all memories anew, with the embedder of the settings. Can be interrupted and run again."""
    settings = settings_or_exit(**chosen(context, **options))
    from middleout_mcp.app import open_app
    from middleout_mcp.server.logs import log_to_stderr

    log_to_stderr(settings.log_level)
    with click.progressbar(length=1, label="Embedding", file=sys.stderr) as bar:

        def show(done: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.update(done - bar.pos)

        state = anyio.run(_reembed, open_app(settings), show)
    if isinstance(state, MiddleoutError):
        raise click.ClickException(str(state))
    report(asdict(state), as_json=as_json, out=out)
    if not as_json and out is None:
        click.echo(f"All memories have vectors of {state.name}, {state.dimension} dimensions.")


async def _reembed(app: "App", progress: Callable[[int, int], None]) -> EmbeddingState | MiddleoutError:
    """What became of it. An error is returned, as one that passes `running` would come out inside a group."""
    async with app.running():
        try:
            return await app.reembed(progress)
        except MiddleoutError as error:
            return error
