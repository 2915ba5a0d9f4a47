"""A small file system of its own, for tests of a disk that is full or may only be read."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, mebibytes: int) -> Iterator[None]:
    """A file system on `place`; skips where mounting is not allowed."""
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(place)], capture_output=True
    )
    if made.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def remounted_read_only(place: Path, files: Mapping[Path, str]) -> Iterator[None]:
    """A file system on `place` that holds these files and may only be read."""
    with small_disk(place, 1):
        for path, text in files.items():
            path.parent.mkdir(parents=True)
            path.write_text(text)
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        yield
