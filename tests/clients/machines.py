"""What the tests of installing share: machines of all three platforms in a temporary folder, and an entry to write."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from middleout_mcp.clients.install import Report, connect
from middleout_mcp.clients.places import CLIENTS, Machine

PLATFORMS = ("linux", "darwin", "win32")
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
ENTRY = {"command": "/opt/mid dle/bin/middleout-mcp", "args": ["--namespace", "ann"]}


def machine(home: Path, platform: str = "linux", **variables: str) -> Machine:
    """A machine whose home is a temporary folder."""
    return Machine(platform, home, variables)


def config_of(client: str, on: Machine) -> Path:
    """The client's file there."""
    return CLIENTS[client].place(on).file


def write(file: Path, content: bytes | str) -> Path:
    """Make the file and its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def install(client: str, on: Machine, entry: dict[str, Any] | None = ENTRY, **options: Any) -> Report:
    """Connect a client, or with None for the entry disconnect it."""
    given = {"name": None, "project": None, "dry_run": False, "now": NOW, **options}
    return connect(CLIENTS[client], on, entry, **given)
