"""A file of ballast beside the store: thrown overboard when the disk is full, so that erasing still works."""

import logging
import os
import shutil
from pathlib import Path

logger = logging.getLogger(__name__)

SIZE = 4 * 1024 * 1024  # more than the journal holds: moving that into the file needs as much room again
_BLOCK = bytes(range(256)) * 256  # not zeros: a file system may store those without taking the room


class Ballast:
    """The ballast of one folder. Not ready means: gone, and no room to make it again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._made = False

    def ready(self) -> bool:
        """Whether it lies there; made anew where there is room again."""
        self._made = self._made or self._lies() or self._make()
        return self._made

    def free(self) -> None:
        """Give its room back to the disk."""
        self._made = False
        self._file.unlink(missing_ok=True)

    def _lies(self) -> bool:
        return self._file.exists() and self._file.stat().st_size >= SIZE

    def _make(self) -> bool:
        if shutil.disk_usage(self._file.parent).free < 2 * SIZE:
            return False
        try:
            with open(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
                stream.writelines(_BLOCK for _ in range(SIZE // len(_BLOCK)))
        except OSError as error:
            logger.warning("No room for the ballast file of %d bytes: %s", SIZE, error.strerror)
            self._file.unlink(missing_ok=True)
            return False
        return True
