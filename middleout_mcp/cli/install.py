"""`middleout-mcp install`: connect a client, see what that changes, or take it out again."""

import json
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from middleout_mcp.clients.command import VARIABLES as OUR_VARIABLES
from middleout_mcp.clients.command import server_entry, this_installation
from middleout_mcp.clients.install import NAME, Report, State, connect, look
from middleout_mcp.clients.places import CLIENTS, Machine
from middleout_mcp.clients.places import VARIABLES as THEIR_VARIABLES
from middleout_mcp.errors import ClientFileError
from middleout_mcp.settings import NAMESPACE, variables

_SHOWN = {"yes": "connected", "differently": "connected, but differently", "no": "-", "unreadable": "unreadable"}


@dataclass(frozen=True)
class _Asked:
    """What the options say, those before the command's name included."""

    namespace: str | None = None
    project: Path | None = None
    home: Path | None = None


@click.command("install")
@click.argument("client", required=False, metavar="[CLIENT]", type=click.Choice(list(CLIENTS)))
@click.option("--namespace", metavar="NAME", help="The isolation boundary that this client writes and reads.")
@click.option(
    "--project",
    metavar="[DIR]",
    is_flag=False,
    flag_value=".",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Connect the client in this project folder only, with a namespace of its own; without DIR, the current one.",
)
@click.option(
    "--home", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="Folder of the memory file."
)
@click.option("--name", metavar="NAME", help="What the client calls the server; default: memory.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--remove", is_flag=True, help="Take the connection out again.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the result as JSON to this file.")
@click.pass_context
def install_command(
    context: click.Context,
    /,
    client: str | None,
    name: str | None,
    dry_run: bool,
    remove: bool,
    as_json: bool,
    out: Path | None,
    **options: Any,
) -> None:
    """Connect a client by writing this server into its configuration file. Without CLIENT: list the clients.

    CLIENT is claude-desktop, claude-code, cursor, vscode, windsurf, codex or gemini-cli.
    """
    asked = _Asked(**{**(context.obj or {}), **{key: value for key, value in options.items() if value is not None}})
    _check(client, asked, name, dry_run or remove)
    machine = Machine(sys.platform, Path.home(), variables(THEIR_VARIABLES))
    project = asked.project and asked.project.resolve()
    entry = _entry(asked)
    if client is None:
        states = [look(each, machine, entry, project) for each in CLIENTS.values()]
        if not _hand_out([_state(each) for each in states], as_json, out):
            _table(states)
        return
    try:
        report = connect(
            CLIENTS[client],
            machine,
            None if remove else entry,
            name=name,
            project=project,
            dry_run=dry_run,
            now=datetime.now().astimezone(),
        )
    except ClientFileError as error:
        raise click.ClickException(str(error)) from None
    if not _hand_out(_report(report, dry_run), as_json, out):
        _tell(report, asked, dry_run)


def _check(client: str | None, asked: _Asked, name: str | None, needs_client: bool) -> None:
    """Refuse options that would write something the server or the client does not take."""
    if client is None and (needs_client or name):
        raise click.UsageError("which client? Name one of " + ", ".join(CLIENTS))
    if asked.namespace is not None and not NAMESPACE.fullmatch(asked.namespace):
        raise click.BadParameter("a namespace has 1 to 100 letters, digits and . _ @ : -", param_hint="--namespace")
    if name is not None and not NAME.fullmatch(name):
        raise click.BadParameter("up to 60 letters, digits, _ and -", param_hint="--name")


def _entry(asked: _Asked) -> dict[str, Any]:
    """What the client shall start: this installation, with the options that were given."""
    given = {
        "--namespace": asked.namespace,
        "--project": asked.project and str(asked.project.resolve()),
        "--home": asked.home and str(asked.home.expanduser().absolute()),
    }
    arguments = [word for option, value in given.items() if value for word in (option, value)]
    carried = variables(OUR_VARIABLES)
    if "MIDDLEOUT_HOME" in carried:
        carried["MIDDLEOUT_HOME"] = str(Path(carried["MIDDLEOUT_HOME"]).expanduser().absolute())
    for option, variable in (("--home", "MIDDLEOUT_HOME"), ("--namespace", "MIDDLEOUT_NAMESPACE")):
        if given[option]:
            carried.pop(variable, None)
    return server_entry(this_installation(), arguments, carried)


def _hand_out(result: Any, as_json: bool, out: Path | None) -> bool:
    """Write the result as JSON where that was asked for; whether it went to stdout."""
    text = json.dumps(result, ensure_ascii=False, indent=2)
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")
    if as_json:
        click.echo(text)
    return as_json


def _state(state: State) -> dict[str, Any]:
    return {
        "client": state.client.name,
        "file": str(state.file),
        "present": state.present,
        "connected": state.connected,
        "complaint": state.complaint or None,
    }


def _report(report: Report, dry_run: bool) -> dict[str, Any]:
    return {
        "client": report.client.name,
        "file": str(report.file),
        "name": report.name,
        "action": report.action,
        "dry_run": dry_run,
        "changed": report.changed and not dry_run,
        "backup": str(report.backup) if report.backup else None,
        "diff": report.diff,
        "present": report.present,
        "next": report.client.next_step if report.changed else None,
    }


def _table(states: list[State]) -> None:
    rows = [(each.client.name, _SHOWN[each.connected], str(each.file)) for each in states]
    rows.insert(0, ("client", "connected", "file"))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for number, row in enumerate(rows):
        line = f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}"
        click.secho(line, bold=number == 0)
    for each in states:
        if each.complaint:
            click.secho(each.complaint, fg="red", err=True)


def _tell(report: Report, asked: _Asked, dry_run: bool) -> None:
    """Say what was done, and what is to be done next."""
    title, file = report.client.title, report.file
    if dry_run and report.changed:
        click.echo(report.diff, nl=False)
        click.echo("Nothing was changed. Without --dry-run this is written.", err=True)
        return
    if not report.changed:
        done = f"is already connected as {report.name}" if report.action == "already connected" else "is not connected"
        click.echo(f"{title} {done}: {file} is as it was.")
        return
    click.echo(f"{title}: {report.name} is {report.action} in {file}.")
    if report.backup:
        click.echo(f"The file as it was: {report.backup}")
    if not report.present:
        click.echo(f"{title} seems not to be installed here; once it is, it will find this.")
    if asked.project and report.client.project and report.action != "removed":
        click.echo("That file belongs to the project and now names a path of this machine: do not share it as it is.")
    click.echo(report.client.next_step)
