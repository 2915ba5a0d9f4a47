"""What is told about files that cannot be used: one sentence each, with the mend."""

import errno
import os
from pathlib import Path

from middleout_mcp.errors import MiddleoutError, StoreUnavailable

_FULL_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


def of_system(error: OSError, file: Path) -> MiddleoutError:
    """For the files beside the database: the ballast, the tombstones, the head of the log."""
    beside = Path(error.filename) if isinstance(error.filename, str | os.PathLike) else file
    if beside.exists() and not beside.is_file() and beside != file.parent:
        return StoreUnavailable(f"{beside} is in the way: a file of that name belongs there; move it away.")
    if error.errno in _FULL_DISK:
        return StoreUnavailable(full(file))
    if error.errno in _FORBIDDEN:
        return StoreUnavailable(forbidden(beside))
    return StoreUnavailable(unreadable(beside))


def damaged(file: Path) -> str:
    """The file's content cannot be made sense of."""
    return f"{file} is damaged, or no memory file; put a backup in its place or move it away."


def misshapen(file: Path) -> str:
    """The file lacks tables, or has those of another version than it says."""
    return (
        f"{file} does not have the tables that its schema version asks for; put a backup in its place or move it away."
    )


def full(file: Path) -> str:
    """There is no room."""
    return f"The disk of {file} is full, or the file may not grow; free some space and try again. Nothing was changed."


def forbidden(file: Path) -> str:
    """There is no right to use it."""
    return f"{file} cannot be opened; check that it and its folder may be read and written."


def unreadable(file: Path) -> str:
    """The system fails to read or write it."""
    return f"{file} could not be read or written (input/output error); check the disk."
