"""Whether calls are under way: scheduled work waits for a moment of rest."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

REST = timedelta(seconds=2)
"""A pause of this length between calls counts as rest."""


class Gate:
    """Counts the calls of this process."""

    def __init__(self) -> None:
        self._under_way = 0
        self._last: datetime | None = None

    @contextmanager
    def call(self, now: Callable[[], datetime]) -> Iterator[None]:
        """Around every call; `now` tells the time when it ends."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._last = now()

    def rests(self, now: datetime) -> bool:
        """Whether no call is under way and none ended a moment ago."""
        return not self._under_way and (self._last is None or not self._last <= now < self._last + REST)
