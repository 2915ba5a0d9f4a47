"""What the commands have in common: their options, the way to a use case, and the three forms of its answer."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo

import anyio
import click
from pydantic import BaseModel

from middleout_mcp.cli.options import settings_or_exit
from middleout_mcp.cli.report import Failed, report, report_options
from middleout_mcp.errors import InvalidInput, MiddleoutError
from middleout_mcp.records import Caller
from middleout_mcp.server.arguments import parse_request
from middleout_mcp.settings import Settings

if TYPE_CHECKING:
    from middleout_mcp.app import App
    from middleout_mcp.cli.page import Page

T = TypeVar("T")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
RequestT = TypeVar("RequestT", bound=BaseModel)

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
_SHARED = ("as_json", "out", "namespace", "project", "home")


def shared_options(command: FunctionT) -> FunctionT:
    """`--namespace`, `--project` and `--home`, which may stand before or after the name of a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def chosen(context: click.Context, **options: Any) -> dict[str, Any]:
    """The options given after the command's name, then those given before it."""
    before: dict[str, Any] = context.obj or {}
    return {**before, **{name: value for name, value in options.items() if value is not None}}


@dataclass(frozen=True)
class Call:
    """One command being carried out, by the owner of the memory file."""

    chosen: Mapping[str, Any]
    as_json: bool
    out: Path | None

    def settings(self) -> Settings:
        """The settings; leaves with code 2 where one of them is wrong."""
        return settings_or_exit(**self.chosen)

    def perform(
        self,
        work: "Callable[[App, Caller], Awaitable[T]]",
        *,
        new_file: bool = False,
        settings: Settings | None = None,
    ) -> T:
        """What `work` returns, with the call's settings unless others are given. Raises Failed where it is refused, and
        where there is no memory file, unless a new one would do.
        """
        settings = settings or self.settings()
        if not (new_file or settings.file.exists()):
            raise Failed(
                f"there is no memory file {settings.file} yet: connect a client first, see `middleout-mcp demo`, "
                "or name the folder of another one with --home"
            )
        from middleout_mcp.app import open_app
        from middleout_mcp.server.logs import log_to_stderr

        log_to_stderr(settings.log_level)
        result = anyio.run(_within, open_app(settings), work)
        if isinstance(result, MiddleoutError):
            raise Failed(str(result))
        return result

    def give(self, result: BaseModel | Mapping[str, Any], show: "Callable[[Page], None]") -> None:
        """Answer with JSON on standard output or in a file where one of these was asked for, else let `show` print."""
        data = result.model_dump(mode="json", exclude_none=True) if isinstance(result, BaseModel) else dict(result)
        report(data, as_json=self.as_json, out=self.out)
        if not self.as_json and self.out is None:
            from middleout_mcp.cli.page import Page

            show(Page(ZoneInfo(self.settings().timezone)))


async def _within(app: "App", work: "Callable[[App, Caller], Awaitable[T]]") -> T | MiddleoutError:
    """What became of it. An error is returned, as one that passes a task group would come out inside a group."""
    async with app.at_hand():
        try:
            return await work(app, app.owner())
        except MiddleoutError as error:
            return error


def memory_command(name: str, **attributes: Any) -> Callable[[Callable[..., None]], click.Command]:
    """A command on the memory file: a function that gets a `Call` and its own parameters."""

    def make(function: Callable[..., None]) -> click.Command:
        @click.command(name, **attributes)
        @shared_options
        @report_options
        @click.pass_context
        @wraps(function)
        def command(context: click.Context, /, **given: Any) -> None:
            options = {option: given.pop(option) for option in ("namespace", "project", "home")}
            call = Call(chosen(context, **options), given.pop("as_json"), given.pop("out"))
            function(call, **given)

        command.params.sort(key=lambda parameter: parameter.name in _SHARED)  # its own first
        made: click.Command = command
        return made

    return make


def request(model: type[RequestT], command: str, **given: Any) -> RequestT:
    """The request of a use case out of options, of which those not given are left out. Raises Failed."""
    wanted = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    try:
        return parse_request(model, command, {name: value for name, value in wanted.items() if value not in (None, [])})
    except InvalidInput as error:
        raise Failed(str(error)) from None
