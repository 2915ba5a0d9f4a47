"""What a client is told to start: this very installation, by its full path."""

import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import middleout_mcp

VARIABLES = ("MIDDLEOUT_HOME", "MIDDLEOUT_NAMESPACE", "MIDDLEOUT_READ_NAMESPACES")
"""The environment variables that decide which memory is served. A client's server does not get those of a shell."""
_OURS = re.compile(r"middleout[-_]mcp(\.exe|\[.*|[=@<>~].*)?", re.IGNORECASE)


@dataclass(frozen=True)
class Installation:
    """Where this program lies: its interpreter, folders for scripts and for libraries, the folder of our package."""

    python: Path
    scripts: tuple[Path, ...]
    libraries: tuple[Path, ...]
    root: Path


def this_installation() -> Installation:
    """The installation that runs now."""
    user = sysconfig.get_preferred_scheme("user")
    return Installation(
        python=Path(sys.executable).absolute(),
        scripts=(Path(sysconfig.get_path("scripts")), Path(sysconfig.get_path("scripts", user))),
        libraries=tuple(Path(path) for path in (sysconfig.get_path("purelib"), sysconfig.get_path("purelib", user))),
        root=Path(middleout_mcp.__file__).absolute().parents[1],
    )


def server_entry(installation: Installation, arguments: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
    """The entry that starts the installation with these arguments: `command`, and `args` and `env` where needed."""
    found = [folder / name for folder in installation.scripts for name in ("middleout-mcp", "middleout-mcp.exe")]
    script = next((path for path in found if path.is_file()), None)
    args, env = list(arguments), dict(variables)
    if script is None:
        args = ["-m", "middleout_mcp", *args]
        if installation.root not in installation.libraries:
            env["PYTHONPATH"] = str(installation.root)  # run from a checkout: the interpreter does not know of it
    entry: dict[str, Any] = {"command": str(script or installation.python)}
    if args:
        entry["args"] = args
    if env:
        entry["env"] = env
    return entry


def is_ours(entry: object) -> bool:
    """Whether an entry of a client starts this program, from whichever installation."""
    if not isinstance(entry, Mapping):
        return False
    args = entry.get("args")
    words: Iterable[object] = (entry.get("command"), *(args if isinstance(args, list) else ()))
    return any(isinstance(word, str) and _OURS.fullmatch(re.split(r"[/\\]", word)[-1]) for word in words)


def merged(present: object, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The entry as it shall be: command and arguments are ours, all else that the user wrote into it stays."""
    kept = dict(present) if isinstance(present, Mapping) else {}
    env = kept.get("env")
    entry = {**kept, **wanted}
    if "args" not in wanted:
        entry.pop("args", None)
    if isinstance(env, Mapping) and "env" in wanted:
        entry["env"] = {**env, **wanted["env"]}
    return entry
