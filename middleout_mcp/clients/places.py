"""The clients we know, and where each keeps its configuration on Linux, macOS and Windows.

Platform, home folder and environment are arguments, so that all three platforms can be looked at from one. Paths are
those of the clients' own documentation, November 2026.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

VARIABLES = (
    *("APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME"),
    *("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "VSCODE_PORTABLE"),
)
"""The environment variables that move a client's folder."""


@dataclass(frozen=True)
class Machine:
    """What decides where clients keep their files: `sys.platform`, the home folder, and the set ones of VARIABLES."""

    platform: str
    home: Path
    variables: Mapping[str, str]

    def folder(self, variable: str, default: Path) -> Path:
        """The folder a variable names, else the default."""
        return Path(self.variables[variable]) if self.variables.get(variable) else default

    @property
    def roaming(self) -> Path:
        """Where programs with a window keep what is the user's."""
        if self.platform == "win32":
            return self.folder("APPDATA", self.home / "AppData" / "Roaming")
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.config

    @property
    def config(self) -> Path:
        """Where programs without one do that follow the XDG folders; `%APPDATA%` on Windows."""
        if self.platform == "win32":
            return self.roaming
        named = self.folder("XDG_CONFIG_HOME", Path())
        return named if named.is_absolute() else self.home / ".config"


@dataclass(frozen=True)
class Place:
    """A configuration file, and a folder that is there when its program has run."""

    file: Path
    program: Path

    @property
    def used(self) -> bool:
        """Whether there is any trace of the program."""
        return self.file.exists() or self.program.is_dir()


@dataclass(frozen=True)
class Client:
    """One client. `places` gives where its file may be, the likeliest first; `project` is the file inside a project."""

    name: str
    title: str
    places: Callable[[Machine], Sequence[Place]]
    next_step: str
    section: str = "mcpServers"
    form: Literal["json", "toml"] = "json"
    project: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)

    def place(self, machine: Machine) -> Place:
        """Where its file is: the first place that has one, else that has a trace of the program, else the last."""
        places = self.places(machine)
        with_file = [place for place in places if place.file.exists()]
        with_program = [place for place in places if place.used]
        return (with_file or with_program or places[-1:])[0]


def _claude_desktop(machine: Machine) -> list[Place]:
    name = "claude_desktop_config.json"
    plain = machine.roaming / "Claude"
    if machine.platform != "win32":
        return [Place(plain / name, plain)]
    # From its Windows package the program sees a folder of its own instead of %APPDATA%, and only that one.
    packages = machine.folder("LOCALAPPDATA", machine.home / "AppData" / "Local") / "Packages"
    found = sorted(packages.glob("Claude_*"))
    own = [package / "LocalCache" / "Roaming" / "Claude" for package in found]
    return [Place(folder / name, package) for folder, package in zip(own, found, strict=True)] or [
        Place(plain / name, plain)
    ]


def _claude_code(machine: Machine) -> list[Place]:
    if machine.variables.get("CLAUDE_CONFIG_DIR"):
        folder = Path(machine.variables["CLAUDE_CONFIG_DIR"])
        return [Place(folder / ".claude.json", folder)]
    return [Place(machine.home / ".claude.json", machine.home / ".claude")]


def _cursor(machine: Machine) -> list[Place]:
    folder = machine.home / ".cursor"
    return [Place(folder / "mcp.json", folder)]


def _vscode(machine: Machine) -> list[Place]:
    portable = machine.variables.get("VSCODE_PORTABLE")
    folder = Path(portable) / "user-data" if portable else machine.roaming / "Code"
    return [Place(folder / "User" / "mcp.json", folder)]


def _windsurf(machine: Machine) -> list[Place]:
    # Since June 2026 it is called Devin Desktop and reads a folder of that name.
    new, old = machine.config / "devin", machine.home / ".codeium" / "windsurf"
    return [Place(folder / "mcp_config.json", folder) for folder in (new, old)]


def _codex(machine: Machine) -> list[Place]:
    folder = machine.folder("CODEX_HOME", machine.home / ".codex")
    return [Place(folder / "config.toml", folder)]


def _gemini(machine: Machine) -> list[Place]:
    folder = machine.folder("GEMINI_CLI_HOME", machine.home) / ".gemini"
    return [Place(folder / "settings.json", folder)]


CLIENTS = {
    client.name: client
    for client in (
        Client(
            "claude-desktop",
            "Claude Desktop",
            _claude_desktop,
            "Quit Claude Desktop completely (closing its window is not enough) and start it again.",
        ),
        Client(
            "claude-code",
            "Claude Code",
            _claude_code,
            "Start a new session of Claude Code; /mcp there lists the server.",
            project=".mcp.json",
            extra={"type": "stdio"},
        ),
        Client("cursor", "Cursor", _cursor, "Restart Cursor.", project=".cursor/mcp.json"),
        Client(
            "vscode",
            "VS Code",
            _vscode,
            'Reload VS Code; its command "MCP: List Servers" starts the server if it does not start by itself.',
            section="servers",
            project=".vscode/mcp.json",
            extra={"type": "stdio"},
        ),
        Client("windsurf", "Windsurf (Devin Desktop)", _windsurf, "Restart Windsurf (Devin Desktop)."),
        Client(
            "codex",
            "Codex",
            _codex,
            "Start a new session of Codex; /mcp there lists the server.",
            section="mcp_servers",
            form="toml",
            project=".codex/config.toml",
        ),
        Client(
            "gemini-cli",
            "Gemini CLI",
            _gemini,
            "Restart Gemini CLI; /mcp there lists the server.",
            project=".gemini/settings.json",
        ),
    )
}
