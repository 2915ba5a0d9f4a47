"""A file of ballast beside the store: thrown overboard when the disk is full, so that erasing still works."""

import errno
import logging
import os
import shutil
from pathlib import Path

logger = logging.getLogger(__name__)

SIZE = 4 * 1024 * 1024  # more than the journal holds: moving that into the file needs as much room again
LEAST = SIZE // 8
_BLOCK = bytes(range(256)) * 256  # not zeros: a file system may store those without taking the room


class Ballast:
    """The ballast of one folder. On a disk that is almost full it is smaller: half of what is free, but never too small
    for an erase.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._size = 0
        self._given_up = SIZE

    @property
    def whole(self) -> bool:
        """Whether it lies there in full size."""
        return self._size >= SIZE

    def ready(self, spare: int) -> int:
        """How large it is; made, or made larger, where there is room for it. 0: gone, and no room to make it.

        `spare` is the room inside the file that the next pages written to it take first.
        """
        if not self.whole:
            self._size = self._lying()
            if not self.whole:
                self._make(max(LEAST, min(SIZE // 2 - spare, self._given_up)))
        return self._size

    def free(self) -> None:
        """Give its room back to the disk."""
        self._given_up = self._size or self._given_up  # which must be good enough again
        self._size = 0
        self._file.unlink(missing_ok=True)

    def _lying(self) -> int:
        if not self._file.exists():
            return 0
        if not self._file.is_file():
            raise FileExistsError(errno.EEXIST, "no file", str(self._file))
        size = self._file.stat().st_size
        return size if size >= LEAST else 0

    def _make(self, smallest: int) -> None:
        room = shutil.disk_usage(self._file.parent).free + self._size
        size = max(smallest, min(SIZE, room // 2 // len(_BLOCK) * len(_BLOCK)))
        if size > room or (self._size and size < self._size + SIZE // 4):  # no room, or not worth the writing
            return
        try:
            with open(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
                stream.writelines(_BLOCK for _ in range(size // len(_BLOCK)))
            self._size = size
        except OSError as error:
            logger.warning("No room for the ballast file of %d bytes: %s", size, error.strerror)
            self.free()
