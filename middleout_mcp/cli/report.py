"""What a command found out, as JSON: `--json` prints it, `--out` writes it to a file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def report_options(command: FunctionT) -> FunctionT:
    """`--json` and `--out`, given to the command as `as_json` and `out`."""
    out = click.Path(dir_okay=False, path_type=Path)
    command = click.option("--out", type=out, help="Write the result as JSON to this file.")(command)
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(command)


def report(result: Any, *, as_json: bool, out: Path | None) -> None:
    """Print or write the result where it was asked for. Raises ClickException where the file cannot be written."""
    text = json.dumps(result, ensure_ascii=False, indent=2)
    if out is not None:
        try:
            out.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"{out} cannot be written: {error.strerror}") from None
    if as_json:
        click.echo(text)
