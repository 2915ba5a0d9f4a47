"""Work that no answer waits for: use notes, session times, back-fill."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable

import anyio

from middleout_mcp.errors import MiddleoutError

logger = logging.getLogger(__name__)

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

    async def run(self) -> None:
        """Run jobs until cancelled; a job that fails on purpose is logged by its code, and the next one runs."""
        while True:
            await self._wake.wait()
            while self._jobs:
                job = self._jobs.popleft()
                try:
                    await job()
                except MiddleoutError as error:
                    logger.warning("a background job failed (%s)", error.code)
            self._wake = anyio.Event()
            self._idle.set()

    async def drain(self) -> None:
        """Wait until the queue is empty, what its jobs queued included."""
        await self._idle.wait()
