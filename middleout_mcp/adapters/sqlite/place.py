"""Whether the files that are open still lie where they were opened.

A file that was removed, moved or replaced is written to all the same, by everyone who has it open, and what is written
is lost with the last of them. Each read and write therefore compares what the path leads to now; that is one look at
the folder.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from middleout_mcp.errors import StoreMoved

_Identity: TypeAlias = tuple[int, int]


class Place:
    """The file and its journal, by device and number. Made before the file is opened: what comes in between shows."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._identity = _identity(file)
        self._journal: Path | None = None
        self._journal_identity: _Identity | None = None

    def has_journal(self, journal: Path) -> None:
        """Where the journal of the opened file lies."""
        self._journal, self._journal_identity = journal, _identity(journal)

    def check(self) -> None:
        """Raise StoreMoved where the file or its journal is not there any more."""
        if self._moved() or (self._journal_identity is not None and self._journal_now() != self._journal_identity):
            raise StoreMoved(
                f"{self._file} or its journal was removed, moved or replaced while it was open, and nothing was "
                "changed; the next call opens what lies there then, so put back first what must be kept."
            )

    def has_anothers_journal(self) -> bool:
        """Whether the journal there now is not ours: it must not go when we close."""
        now = self._journal_now()
        return now is not None and self._journal_identity is not None and now != self._journal_identity

    def leave(self) -> None:
        """After closing: take away our journal where the file it belongs to is gone, or it would be played into the
        file that is there now. Other processes that still have the former open keep what they hold, and notice.
        """
        if self._journal is None or self._journal_identity is None or not self._moved():
            return
        if self._journal_now() == self._journal_identity:
            for name in (self._journal, self._journal.with_name(self._journal.name.removesuffix("-wal") + "-shm")):
                with suppress(OSError):
                    name.unlink(missing_ok=True)

    def _moved(self) -> bool:
        return self._identity is not None and _identity(self._file) != self._identity

    def _journal_now(self) -> _Identity | None:
        return None if self._journal is None else _identity(self._journal)


def _identity(file: Path) -> _Identity | None:
    """None where there is no file, or where the system numbers none."""
    try:
        found = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return (found.st_dev, found.st_ino) if found.st_ino else None
