"""`middleout-mcp doctor`: whether everything is as it should be, and how to mend what is not."""

import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from middleout_mcp import __version__
from middleout_mcp.cli.call import Call, memory_command
from middleout_mcp.cli.install import states
from middleout_mcp.cli.page import Page, counted, size
from middleout_mcp.cli.report import Failed
from middleout_mcp.memory.owner_contract import HealthOut
from middleout_mcp.records import Caller
from middleout_mcp.settings import Settings, config_file

if TYPE_CHECKING:
    from middleout_mcp.app import App

_LITTLE_ROOM = 64 * 1024 * 1024
_OTHERS = 0o077
_STYLES = {"ok": "green", "note": "yellow", "wrong": "bold red"}


@dataclass(frozen=True)
class Check:
    """One thing looked at: what was found, and how to mend it where something is to be mended."""

    name: str
    state: Literal["ok", "note", "wrong"]
    found: str
    mend: str | None = None


@memory_command("doctor", short_help="Check that all is in order.")
def doctor(call: Call) -> None:
    """Check the memory file, versions, embedder, disk, leader, clients and permissions. Exit code 1: a fault."""
    settings = call.settings()
    checks = [
        *_versions(settings),
        *_examined(call, settings),
        *_disk(settings),
        *_clients(call),
        *_permissions(settings),
    ]
    wrong = sum(check.state == "wrong" for check in checks)
    listed = [{name: value for name, value in asdict(check).items() if value is not None} for check in checks]
    call.give({"ok": not wrong, "checks": listed}, lambda page: _show(page, checks, wrong))
    if wrong:
        raise SystemExit(1)


def _show(page: Page, checks: list[Check], wrong: int) -> None:
    rows: list[tuple[str, str, str]] = []
    for check in checks:
        rows.append((check.state, check.name, check.found))
        if check.mend:
            rows.append(("", "", f"to mend it: {check.mend}"))
    page.table(("", "", ""), rows, styles=_STYLES)
    page.line()
    page.line(f"{counted(wrong, 'fault')} found." if wrong else "Everything is in order.")


def _versions(settings: Settings) -> Iterator[Check]:
    python = platform.python_version()
    yield Check("version", "ok", f"middleout-mcp {__version__}, Python {python}, {platform.system()}")
    config = config_file()
    found = str(config) if config.exists() else f"no {config}: defaults and environment variables"
    yield Check("settings", "ok", f"{found}; namespace {settings.namespace}")


def _examined(call: Call, settings: Settings) -> Iterator[Check]:
    """What only the opened file can tell. Where there is none yet, the embedder is tried on an empty one."""
    if not settings.file.exists():
        yield Check("file", "note", f"{settings.file} is not there yet; the first client that connects makes it")
        with tempfile.TemporaryDirectory(prefix="middleout-doctor-", ignore_cleanup_errors=True) as folder:
            yield from _embedder(_health(call, settings.model_copy(update={"home": Path(folder)})))
        return
    try:
        health = _health(call, settings)
    except Failed as error:
        yield _told("file", error.message)
        return
    yield from _file(health, settings)
    yield from _embedder(health)
    yield from _jobs(health)


def _told(name: str, sentence: str) -> Check:
    """A fault told by one of our own errors, which say the mend after a semicolon."""
    found, _, mend = sentence.partition("; ")
    return Check(name, "wrong", found, mend or None)


def _health(call: Call, settings: Settings) -> HealthOut:
    async def work(app: "App", caller: Caller) -> HealthOut:
        return await app.examine(caller)

    return call.perform(work, new_file=True, settings=settings)


def _file(health: HealthOut, settings: Settings) -> Iterator[Check]:
    file = health.file
    held = sum(health.namespaces.values())
    found = f"{file['path']}, {size(file['bytes_on_disk'])}, {counted(held, 'memory')}"
    found += f"; schema {file['schema_version']}, SQLite {file['sqlite_version']}"
    if health.damage is not None:
        yield Check("file", "wrong", health.damage, "stop all clients and put a backup in its place")
    elif file.get("read_only"):
        mend = "give your user the right to write to it and its folder"
        yield Check("file", "wrong", f"{found}; it can only be read", mend)
    else:
        yield Check("file", "ok", found)
    for loss in file.get("lost", ()):
        yield _told("log", loss)
    if health.chain_fault is not None:
        yield Check(
            "log", "wrong", health.chain_fault, "compare with a backup; what was changed then is not in the log"
        )
    elif not file.get("lost"):
        yield Check("log", "ok", "whole: nothing in it was changed or removed")
    others = [name for name, count in health.namespaces.items() if count and name != settings.namespace]
    if others and not health.namespaces.get(settings.namespace):
        shown = ", ".join(others[:5]) + (" ..." if len(others) > 5 else "")
        found = f"nothing is in {settings.namespace}, but in {shown}"
        yield Check("namespace", "note", found, "say which is meant with --namespace NAME or --project DIR")


def _embedder(health: HealthOut) -> Iterator[Check]:
    if health.embedder is None:
        yield Check("embedder", "note", "none is set: search is by words alone", "set MIDDLEOUT_EMBEDDER to a model")
    elif health.embedder_fault is not None:
        yield _told("embedder", health.embedder_fault)
    elif health.vectors not in (None, health.embedder):
        found = f"{health.embedder} is set, but the vectors in the file are of {health.vectors}"
        mend = f"run `middleout-mcp reembed`, or set MIDDLEOUT_EMBEDDER to {health.vectors} again"
        yield Check("embedder", "wrong", found, mend)
    else:
        yield Check("embedder", "ok", f"{health.embedder} answers")
    if health.pending and health.embedder is not None:
        found = f"{counted(health.pending, 'memory')} without one, found by words alone"
        yield Check("vectors", "note", found, "they are made while a client is connected; `middleout-mcp reembed` now")


def _jobs(health: HealthOut) -> Iterator[Check]:
    """Which process does the work in the background, and whether all of it is done."""
    idle = "no process has scheduled work to do at this moment"
    yield Check("leader", "ok", f"process {health.leader}" if health.leader else idle)
    off = [job["job"] for job in health.jobs if job.get("off")]
    for job in health.jobs:
        if job.get("last_error"):
            mend = "it is tried again by itself while a client is connected"
            yield Check(job["job"], "wrong", f"the job failed: {job['last_error']}", mend)
        elif job.get("overdue"):
            mend = "a server does it while a client is connected; where one is, its log says what holds it up"
            yield Check(job["job"], "note", f"the job was due on {job['next_run']} and has not run", mend)
    if off:
        yield Check("jobs", "note", f"switched off: {', '.join(off)}", "they are named in MIDDLEOUT_JOBS_OFF")


def _disk(settings: Settings) -> Iterator[Check]:
    folder = settings.data_folder
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield Check("disk", "wrong", f"{folder} cannot be looked at ({error.strerror})", "check the disk")
        return
    if free < _LITTLE_ROOM:
        mend = "free some space; what is full can still erase, but not remember"
        yield Check("disk", "wrong", f"only {size(free)} are free in {folder}", mend)
    else:
        yield Check("disk", "ok", f"{size(free)} are free")


def _clients(call: Call) -> Iterator[Check]:
    """Which client configurations mention us."""
    found = states(call.chosen)
    for each in found:
        if each.connected == "unreadable":
            yield Check(each.client.name, "wrong", each.complaint)
    connected = [each.client.title for each in found if each.connected in ("yes", "differently")]
    if connected:
        yield Check("clients", "ok", f"connected: {', '.join(connected)}")
    else:
        yield Check("clients", "note", "none is connected", "`middleout-mcp install` lists them and connects one")


def _permissions(settings: Settings) -> Iterator[Check]:
    """Whether other users of this machine can read the memories."""
    folder = settings.data_folder
    if not folder.exists():
        return
    if sys.platform == "win32":
        yield Check("permissions", "ok", "those of your user folder, which Windows keeps to you")
        return
    closed = not folder.stat().st_mode & _OTHERS
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name != "config.toml"]
    open_files = [path for path in files if path.stat().st_mode & _OTHERS]
    if not os.access(folder, os.W_OK):
        yield Check("permissions", "wrong", f"{folder} cannot be written to", f"chmod u+w {shlex.quote(str(folder))}")
    elif closed or not open_files:
        yield Check("permissions", "ok", "only your user can read the memories")
    else:
        names = ", ".join(path.name for path in open_files)
        mend = "chmod go= " + " ".join(shlex.quote(str(path)) for path in open_files)
        yield Check("permissions", "wrong", f"other users of this machine can read {names}", mend)
