"""Connecting a client, and taking the connection out again: our entry in the client's own configuration file."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from middleout_mcp.clients import files, jsonc, toml
from middleout_mcp.clients.command import is_ours, merged
from middleout_mcp.clients.malformed import Malformed
from middleout_mcp.clients.places import Client, Machine
from middleout_mcp.errors import ClientFileError

NAMES = ("memory", "middleout-mcp")
"""What our entry is called; the second where the first belongs to another server."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")


@dataclass(frozen=True)
class Report:
    """What was done to a file, or would be in a dry run. Where nothing is to do, `changed` is false, `diff` empty.

    `present` tells whether there is a trace of the client; `backup` is the copy of the file as it was before.
    """

    client: Client
    file: Path
    name: str
    action: Literal["connected", "updated", "removed", "already connected", "not connected"]
    changed: bool
    backup: Path | None
    diff: str
    present: bool


@dataclass(frozen=True)
class State:
    """How a client stands: connected as `install` would connect it, `differently`, not, or `unreadable`."""

    client: Client
    file: Path
    present: bool
    connected: Literal["yes", "differently", "no", "unreadable"]
    complaint: str = ""


class _Form(Protocol):
    """A form of configuration file, as the modules `jsonc` and `toml` are. All raise Malformed."""

    def read(self, text: str) -> dict[str, Any]: ...
    def with_entry(self, text: str, section: str, name: str, entry: Mapping[str, Any]) -> str: ...
    def without_entry(self, text: str, section: str, name: str) -> str: ...


_FORMS: Mapping[str, _Form] = {"json": jsonc, "toml": toml}


def look(client: Client, machine: Machine, entry: Mapping[str, Any], project: Path | None) -> State:
    """How a client stands towards the entry that `connect` would write for it. Changes nothing."""
    file, present = _file(client, machine, project)
    try:
        servers = _servers(client, file, files.load(file).text)
    except ClientFileError as error:
        return State(client, file, present, "unreadable", str(error))
    ours = [each for each in servers.values() if is_ours(each)]
    wanted = {**client.extra, **entry}
    same = any(merged(each, wanted) == each for each in ours)
    return State(client, file, present, "yes" if same else "differently" if ours else "no")


def connect(
    client: Client,
    machine: Machine,
    entry: Mapping[str, Any] | None,
    *,
    name: str | None,
    project: Path | None,
    dry_run: bool,
    now: datetime,
) -> Report:
    """Write `entry` into the client's file, or take ours out where it is None. Raises ClientFileError.

    With a `project` the file inside it is used where the client has such a one.
    """
    file, present = _file(client, machine, project)
    content = files.load(file)
    servers = _servers(client, file, content.text)
    name = _name(file, servers, name)
    try:
        if entry is None:
            text = _without(client, file, content, name)
        else:
            text = _with(client, content.text, name, merged(servers.get(name), {**client.extra, **entry}))
    except Malformed as error:
        raise _refused(file, error) from None
    changed = text != content.text
    backup = None
    if changed and not dry_run:
        backup = files.replace(file, content, content.encode(text), now)
    action = _action(entry is None, name in servers, changed)
    return Report(client, file, name, action, changed, backup, _diff(file, content.text, text), present)


def _file(client: Client, machine: Machine, project: Path | None) -> tuple[Path, bool]:
    """The client's file, that of the project where there is such a one; and whether the client seems to be there."""
    place = client.place(machine)
    return (project / client.project if project and client.project else place.file), place.used


def _action(
    remove: bool, was_there: bool, changed: bool
) -> Literal["connected", "updated", "removed", "already connected", "not connected"]:
    if remove:
        return "removed" if changed else "not connected"
    if not changed:
        return "already connected"
    return "updated" if was_there else "connected"


def _servers(client: Client, file: Path, text: str) -> dict[str, Any]:
    """The servers in a file, by name; none where its section is missing."""
    try:
        servers = _FORMS[client.form].read(text).get(client.section)
    except Malformed as error:
        raise _refused(file, error) from None
    return servers if isinstance(servers, dict) else {}


def _name(file: Path, servers: Mapping[str, Any], asked: str | None) -> str:
    """The name of our entry: as asked, else that of the one that is there, else the first that is free."""
    if asked is not None:
        if asked in servers and not is_ours(servers[asked]):
            raise ClientFileError(f'"{asked}" in {file} is another server; choose another name with --name')
        return asked
    ours = [name for name, entry in servers.items() if is_ours(entry)]
    for name in NAMES:
        if name in ours:
            return name
    if len(ours) > 1:
        raise ClientFileError(f"{file} starts this server as {', '.join(ours)}; say which one is meant with --name")
    free = [*ours, *(name for name in NAMES if name not in servers)]
    if not free:
        raise ClientFileError(f"{' and '.join(NAMES)} in {file} are other servers; choose a name with --name")
    return free[0]


def _with(client: Client, text: str, name: str, entry: Mapping[str, Any]) -> str:
    return _FORMS[client.form].with_entry(text, client.section, name, entry)


def _without(client: Client, file: Path, content: files.Content, name: str) -> str:
    """The text without our entry; the very text before it came in, where a copy holds that."""
    form = _FORMS[client.form]
    entry = form.read(content.text).get(client.section, {}).get(name)
    if not isinstance(entry, dict):
        return content.text
    for backup in files.backups(file):
        try:
            before = files.load(backup)
            known = form.read(before.text).get(client.section) or {}
            if name not in known and before.encode(_with(client, before.text, name, entry)) == content.raw:
                return before.text
        except (ClientFileError, Malformed):
            continue  # a copy of something else
    return form.without_entry(content.text, client.section, name)


def _refused(file: Path, error: Malformed) -> ClientFileError:
    return ClientFileError(
        f"{file}, line {error.line}, column {error.column}: {error}. Mend that first; nothing changed"
    )


def _diff(file: Path, old: str, new: str) -> str:
    """What changes, as a unified diff."""
    lines = []
    for line in difflib.unified_diff(old.splitlines(True), new.splitlines(True), str(file), str(file)):
        ended = line.endswith("\n")
        lines.append(line.rstrip("\r\n") + ("" if ended else "\n\\ No newline at end of file"))
    return "".join(f"{line}\n" for line in lines)
