"""What a command answers: a result as JSON, which `--json` prints and `--out` writes to a file, or one sentence."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Failed(click.ClickException):
    """Refused, or failed: one sentence on stderr and exit code 1."""

    def show(self, file: Any = None) -> None:
        """Print the sentence."""
        from middleout_mcp.server.logs import text_stream

        click.echo(f"middleout-mcp: {self.message}", file=file or text_stream("stderr"))


def output_stream() -> TextIO:
    """Standard output, able to take any character."""
    from middleout_mcp.server.logs import text_stream

    return text_stream("stdout")


def _writable(_context: click.Context, _option: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a file that cannot be written before anything is done."""
    if value is not None and not value.absolute().parent.is_dir():
        raise Failed(f"{value} cannot be written: there is no such folder")
    if value is not None and not os.access(value if value.exists() else value.absolute().parent, os.W_OK):
        raise Failed(f"{value} cannot be written: permission denied")
    return value


def report_options(command: FunctionT) -> FunctionT:
    """`--json` and `--out`, given to the command as `as_json` and `out`."""
    out = click.Path(dir_okay=False, path_type=Path)
    help_ = "Write the result as JSON to this file."
    command = click.option("--out", type=out, callback=_writable, help=help_)(command)
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(command)


def report(result: Any, *, as_json: bool, out: Path | None) -> None:
    """Print or write the result where it was asked for. Raises Failed where the file cannot be written."""
    if out is not None:
        try:
            out.write_text(json.dumps(result, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise Failed(f"{out} cannot be written: {error.strerror}; the command itself was done") from None
    if as_json:
        plain = not (output_stream().encoding or "").lower().startswith("utf")
        click.echo(json.dumps(result, ensure_ascii=plain, indent=2))
