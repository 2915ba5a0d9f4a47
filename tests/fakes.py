"""Stand-ins for the ports that tests may not use for real: embedder, language model (later), clock, clusterer."""

import asyncio
import hashlib
import math
import re
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from middleout_mcp.errors import ClusteringFailed, EmbedderUnavailable
from middleout_mcp.records import Vector

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """A clock that stands still until it is set or advanced."""

    def __init__(self, now: datetime = NEW_YEAR) -> None:
        self.set(now)

    def now(self) -> datetime:
        """The time it was last set to, cut to whole milliseconds."""
        return self._now

    def set(self, now: datetime) -> None:
        """Jump to an aware time, forwards or backwards."""
        now = now.astimezone(UTC)
        self._now = now.replace(microsecond=now.microsecond // 1000 * 1000)

    def advance(self, delta: timedelta | None = None, **parts: float) -> datetime:
        """Move on, as in `advance(days=2, hours=1)`; returns the new time."""
        self.set(self._now + (delta or timedelta()) + timedelta(**parts))
        return self._now


class FakeEmbedder:
    """Hashed bags of words as unit vectors: texts that share words are near, and each run gives the same bytes.

    `failing` makes `embed` raise; `gate`, an unset event, makes it wait; `calls` has the texts of each call.
    """

    def __init__(self, dimension: int = 64, name: str = "fake-words", *, failing: bool = False) -> None:
        self.dimension = dimension
        self.name = name
        self.failing = failing
        self.gate: asyncio.Event | None = None
        self.loaded = False
        self.calls: list[list[str]] = []

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector a text; a text without words gets the same vector as any other such text."""
        self.calls.append(list(texts))
        if self.gate is not None:
            await self.gate.wait()
        if self.failing:
            raise EmbedderUnavailable("The fake embedder was told to fail; set `failing` to False.")
        self.loaded = True
        return [self._vector(text) for text in texts]

    async def unload(self) -> None:
        """Forget that it was loaded."""
        self.loaded = False

    def _vector(self, text: str) -> Vector:
        sums = [0.0] * self.dimension
        for word in re.findall(r"\w+", text.casefold()) or [""]:
            digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=5).digest()
            sums[int.from_bytes(digest[:4], "little") % self.dimension] += 1.0 if digest[4] & 1 else -1.0
        if not any(sums):  # two words cancelled each other out
            sums[0] = 1.0
        length = math.sqrt(sum(value * value for value in sums))
        return array("f", (value / length for value in sums)).tobytes()


class FakeClusterer:
    """Gives the labels it was told to, by position, and −1 to the rest; `failing` makes it raise."""

    def __init__(self, *labels: int, failing: bool = False) -> None:
        self.labels = labels
        self.failing = failing
        self.calls = 0

    async def cluster(self, vectors: Sequence[Vector]) -> list[int]:
        """One label a vector."""
        self.calls += 1
        if self.failing:
            raise ClusteringFailed("The fake clusterer was told to fail.")
        return [*self.labels, *[-1] * len(vectors)][: len(vectors)]
