"""Reading and replacing a configuration file that is not ours: whole or not at all, with a copy beside it."""

import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path

from middleout_mcp.errors import ClientFileError

_BOM = "\ufeff"


@dataclass(frozen=True)
class Content:
    """What a file holds. `raw` is None where there is no file; `text` goes without a byte order mark at its start."""

    raw: bytes | None
    text: str

    def encode(self, text: str) -> bytes:
        """Another text as bytes, with the mark this one has."""
        marked = self.raw is not None and self.raw.startswith(_BOM.encode())
        return ((_BOM if marked else "") + text).encode()


def load(file: Path) -> Content:
    """What a file holds; nothing where there is none. Raises ClientFileError."""
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        return Content(None, "")
    except OSError as error:
        raise ClientFileError(f"{file} cannot be read ({_reason(error)}); see to its permissions") from None
    try:
        return Content(raw, raw.decode().removeprefix(_BOM))
    except UnicodeDecodeError:
        raise ClientFileError(f"{file} is not UTF-8 text; open it in an editor and save it as UTF-8") from None


def backups(file: Path) -> list[Path]:
    """The copies made of a file, the newest first."""
    target = file.resolve()
    prefix = f"{target.name}.bak-"
    with suppress(OSError):
        return sorted((path for path in target.parent.iterdir() if path.name.startswith(prefix)), reverse=True)
    return []


def replace(file: Path, content: Content, new: bytes, now: datetime) -> Path | None:
    """Write `new` in place of what was read; where the copy of that is, if there was a file. Raises ClientFileError.

    A link is followed and stays. Owner and permissions stay; the copy has them too, as such files hold keys.
    """
    target = file.resolve()
    _refuse_read_only(file, target)
    made: list[Path] = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made.append(_written(target, new))
        backup = None if content.raw is None else _free_name(target, now)
        if backup is not None and content.raw is not None:
            made.append(backup)
            os.replace(_written(target, content.raw), backup)
        if (target.read_bytes() if target.exists() else None) != content.raw:
            raise ClientFileError(f"{file} was changed by another program at this moment; run the command again")
        os.replace(made[0], target)
        made.clear()
    except OSError as error:
        mend = "make the file and its folder writable, or run this as the user they belong to"
        raise ClientFileError(f"{file} cannot be written ({_reason(error)}); {mend}") from None
    finally:
        for path in made:
            path.unlink(missing_ok=True)
    return backup


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def _refuse_read_only(file: Path, target: Path) -> None:
    """Replacing a file needs no permission of its own, but who makes it read-only does not want it changed."""
    with suppress(OSError):
        if not target.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            raise ClientFileError(f"{file} is read-only; make it writable and run the command again")


def _written(target: Path, data: bytes) -> Path:
    """A finished file beside the target, with the target's owner and permissions."""
    number, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    with open(number, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    path = Path(name)
    with suppress(FileNotFoundError):
        like = target.stat()
        path.chmod(stat.S_IMODE(like.st_mode))
        if hasattr(os, "chown"):
            with suppress(PermissionError):
                os.chown(path, like.st_uid, like.st_gid)
    return path


def _free_name(target: Path, now: datetime) -> Path:
    """A name for the copy of the target that is not taken."""
    name = f"{target.name}.bak-{now:%Y%m%d-%H%M%S}"
    names = (target.with_name(name + (f"-{number}" if number else "")) for number in count())
    return next(path for path in names if not path.exists())
