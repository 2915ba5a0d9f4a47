"""From options of the command line to settings, or to one sentence and exit code 2."""

import hashlib
import os
import re
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError

from middleout_mcp.settings import Settings, config_file

_LONGEST_NAME = 60


def project_settings(folder: Path) -> dict[str, str]:
    """The namespace and the project label of a folder: its name, and for the namespace a hash of its path too, so that
    two folders of one name stay apart.
    """
    path = folder.expanduser().resolve()
    name = path.name or "root"
    label = re.sub(r"[^\w.@-]+", "-", name)[:_LONGEST_NAME]
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    return {"namespace": f"{label}-{digest}", "project": name}


def settings_or_exit(
    *, home: Path | None = None, namespace: str | None = None, project: Path | None = None
) -> Settings:
    """The settings, options winning over environment and file; leaves with code 2 where one of them is wrong."""
    if home is not None:
        os.environ["MIDDLEOUT_HOME"] = str(home.expanduser().absolute())  # config.toml is looked for there, too
    chosen: dict[str, Any] = project_settings(project) if project is not None else {}
    if namespace is not None:
        chosen["namespace"] = namespace
    try:
        return Settings(**chosen)
    except ValidationError as error:
        complaint = "; ".join(_complaint(each) for each in error.errors(include_url=False, include_input=False))
    except SettingsError as error:
        complaint = f'{error}; a list is written as JSON, such as ["one", "two"]'
    except (ValueError, OSError) as error:
        complaint = f"{config_file()} cannot be read: {error}"
    sys.stderr.write(f"middleout-mcp: {complaint}\n")
    raise SystemExit(2)


def _complaint(error: ErrorDetails) -> str:
    name = str(error["loc"][0]) if error["loc"] else "?"
    if error["type"] == "extra_forbidden":
        return f"{config_file()} sets {name}, and there is no such setting"
    message = error["msg"].removeprefix("Value error, ")
    return f"setting {name} (MIDDLEOUT_{name.upper()}, or {name} in config.toml): {message}"
