"""`middleout-mcp install`: connect a client, see what that changes, or take it out again."""

import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from middleout_mcp.cli.call import Call, memory_command
from middleout_mcp.cli.report import Failed, report
from middleout_mcp.clients.command import VARIABLES as OUR_VARIABLES
from middleout_mcp.clients.command import server_entry, this_installation
from middleout_mcp.clients.install import NAME, Report, State, connect, look
from middleout_mcp.clients.places import CLIENTS, Machine
from middleout_mcp.clients.places import VARIABLES as THEIR_VARIABLES
from middleout_mcp.errors import ClientFileError
from middleout_mcp.settings import NAMESPACE, variables

_SHOWN = {"yes": "connected", "differently": "connected, but differently", "no": "-", "unreadable": "unreadable"}


@memory_command("install", short_help="Connect a client.")
@click.argument("client", required=False, metavar="[CLIENT]", type=click.Choice(list(CLIENTS)))
@click.option("--name", metavar="NAME", help="What the client calls the server; default: memory.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--remove", is_flag=True, help="Take the connection out again.")
def install(call: Call, client: str | None, name: str | None, dry_run: bool, remove: bool) -> None:
    """Connect a client by writing this server into its configuration file. Without CLIENT: list the clients.

    CLIENT is claude-desktop, claude-code, cursor, vscode, windsurf, codex or gemini-cli. With --project it is connected
    in that folder only, with a namespace of its own.
    """
    _check(client, call.chosen, name, dry_run or remove)
    if client is None:
        found = states(call.chosen)
        report([_state(each) for each in found], as_json=call.as_json, out=call.out)
        if not (call.as_json or call.out):
            _table(found)
        return
    try:
        done = connect(
            CLIENTS[client],
            _machine(),
            None if remove else _entry(call.chosen),
            name=name,
            project=_project(call.chosen),
            dry_run=dry_run,
            now=datetime.now().astimezone(),
        )
    except ClientFileError as error:
        raise Failed(str(error)) from None
    report(_report(done, dry_run), as_json=call.as_json, out=call.out)
    if not (call.as_json or call.out):
        _tell(done, call.chosen, dry_run)


def states(chosen: Mapping[str, Any]) -> list[State]:
    """How each client stands towards this installation with the options in `chosen`."""
    return [look(each, _machine(), _entry(chosen), _project(chosen)) for each in CLIENTS.values()]


def _machine() -> Machine:
    return Machine(sys.platform, Path.home(), variables(THEIR_VARIABLES))


def _project(chosen: Mapping[str, Any]) -> Path | None:
    project: Path | None = chosen.get("project")
    return project and project.resolve()


def _check(client: str | None, chosen: Mapping[str, Any], name: str | None, needs_client: bool) -> None:
    """Refuse options that would write something the server or the client does not take."""
    if client is None and (needs_client or name):
        raise click.UsageError("which client? Name one of " + ", ".join(CLIENTS))
    if chosen.get("namespace") is not None and not NAMESPACE.fullmatch(chosen["namespace"]):
        raise click.BadParameter("a namespace has 1 to 100 letters, digits and . _ @ : -", param_hint="--namespace")
    if name is not None and not NAME.fullmatch(name):
        raise click.BadParameter("up to 60 letters, digits, _ and -", param_hint="--name")


def _entry(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What the client shall start: this installation, with the options that were given."""
    project, home = _project(chosen), chosen.get("home")
    given = {
        "--namespace": chosen.get("namespace"),
        "--project": project and str(project),
        "--home": home and str(home.expanduser().absolute()),
    }
    arguments = [word for option, value in given.items() if value for word in (option, value)]
    carried = variables(OUR_VARIABLES)
    if "MIDDLEOUT_HOME" in carried:
        carried["MIDDLEOUT_HOME"] = str(Path(carried["MIDDLEOUT_HOME"]).expanduser().absolute())
    for option, variable in (("--home", "MIDDLEOUT_HOME"), ("--namespace", "MIDDLEOUT_NAMESPACE")):
        if given[option]:
            carried.pop(variable, None)
    return server_entry(this_installation(), arguments, carried)


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


def _tell(report: Report, chosen: Mapping[str, Any], dry_run: bool) -> None:
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
    if chosen.get("project") and report.client.project and report.action != "removed":
        click.echo("That file belongs to the project and now names a path of this machine: do not share it as it is.")
    click.echo(report.client.next_step)
