"""Work that no answer waits for: use notes, session times, back-fill."""

from collections import deque
from collections.abc import Awaitable, Callable

import anyio

Job = Callable[[], Awaitable[None]]


class Later:
    """A queue of small jobs, run one after another while `run` is running."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._wake = anyio.Event()
        self._idle = anyio.Event()
        self._idle.set()

    def put(self, job: Job) -> None:
        """Queue a job; it runs after those before it."""
        self._jobs.append(job)
        if self._idle.is_set():
            self._idle = anyio.Event()
        self._wake.set()

    async def run(self, guarded: Callable[[Job], Awaitable[None]]) -> None:
        """Run jobs until cancelled, each within `guarded`, so that one that fails stops no other."""
        while True:
            await self._wake.wait()
            while self._jobs:
                job = self._jobs.popleft()
                await guarded(job)
            self._wake = anyio.Event()
            self._idle.set()

    async def drain(self) -> None:
        """Wait until the queue is empty, what its jobs queued included."""
        await self._idle.wait()
