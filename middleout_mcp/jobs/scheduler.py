"""Work that comes due by itself: who does it, when, and without being in anyone's way.

Every process on a file has a scheduler; whoever finds a job due takes the lease and leads until nothing is due. A
leader that was killed is followed by another one as soon as its lease runs out. A job is done in small steps. Steps
wait while calls are under way or came a moment ago; under calls that never rest there is still one step a minute, and
what has been due for a day waits for nothing. What a job knows of itself is stored after each step, so that the next
leader goes on where the last one was.
"""

import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import anyio

from middleout_mcp.errors import MiddleoutError
from middleout_mcp.memory.parts import Parts
from middleout_mcp.ports import JobState

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=12)
"""How long a leader that is gone holds up the others; it is renewed long before."""

UNRESTED = timedelta(minutes=1)
"""How often there is a step where calls never rest."""

OVERDUE = timedelta(days=1)
"""What has been due for so long waits for no rest."""

RETRY = timedelta(minutes=10)
"""A job that failed is tried again after this time, or after its usual one where that is shorter."""

_TICK_SECONDS = 2.0
_NAME = "jobs"

Work: TypeAlias = Callable[[Parts, dict[str, Any], datetime], Awaitable[bool]]
"""One small step of a job: gets the job's own memory, which it may change, and tells whether there is more to do."""


@dataclass(frozen=True, slots=True)
class Job:
    """Work that is due every so often."""

    name: str
    every: timedelta
    work: Work


async def guarded(job: Callable[[], Awaitable[None]]) -> None:
    """Do a small piece of background work; whatever goes wrong in it is logged, without a word of any memory."""
    try:
        await job()
    except MiddleoutError as error:
        logger.warning("a background job failed (%s)", error.code)
    except Exception as error:
        logger.error("a background job failed (%s)", type(error).__name__)


class Scheduler:
    """The jobs of one process."""

    def __init__(
        self, parts: Parts, jobs: Sequence[Job], *, lease: timedelta = LEASE, holder: str | None = None
    ) -> None:
        self._parts = parts
        self._lease = lease
        self.holder = holder or f"{os.getpid()}-{secrets.token_hex(4)}"
        off = parts.settings.jobs_off
        self.jobs = () if "all" in off else tuple(job for job in jobs if job.name not in off)
        self._leads_until: datetime | None = None
        self._last_step: datetime | None = None
        self._steps = 0
        self._stepped: dict[str, int] = {}

    async def run(self) -> None:
        """Look for due work until cancelled."""
        while True:
            try:
                worked = await self.tick()
            except (
                MiddleoutError
            ) as error:  # the file cannot be used now: calls are told, and the next tick tries again
                logger.warning("scheduled work waits: %s", error)
                worked = False
            await anyio.sleep(0.02 if worked else _TICK_SECONDS)

    async def tick(self) -> bool:
        """Do one step of one job, if one is due, may be done now, and this process leads; whether it was done."""
        now = self._parts.clock.now()
        states = {state.name: state for state in await self._parts.store.control.jobs()} if self.jobs else {}
        job = await self._due(states, now)
        if job is None:
            await self.give_back()
            return False
        state = states[job.name]
        if not self._may_work(state, now) or not await self._leads(now):
            return False
        await self._step(job, state, now)
        return True

    async def give_back(self) -> None:
        """Let another process lead."""
        if self._leads_until is not None:
            self._leads_until = None
            now = self._parts.clock.now()
            await self._parts.store.control.lease(_NAME, self.holder, now, now)

    async def _due(self, states: dict[str, JobState], now: datetime) -> Job | None:
        """The due job whose last step lies longest back. A job nobody has seen yet is due after its usual time."""
        due = []
        for job in self.jobs:
            state = states.get(job.name)
            if state is None or state.next_run is None or state.next_run > now + job.every:  # the clock was set back
                state = replace(state or JobState(name=job.name), next_run=now + job.every)
                await self._parts.store.control.save_job(state)
            states[job.name] = state
            if state.next_run is not None and state.next_run <= now:
                due.append(job)
        return min(due, key=self._turn, default=None)

    def _turn(self, job: Job) -> tuple[int, str]:
        """Whose step lies longest back comes first, before it whoever had none."""
        return self._stepped.get(job.name, 0), job.name

    def _may_work(self, state: JobState, now: datetime) -> bool:
        if self._parts.gate.rests(now):
            return True
        if state.next_run is not None and now - state.next_run >= OVERDUE:
            return True
        return self._last_step is None or not self._last_step <= now < self._last_step + UNRESTED

    async def _leads(self, now: datetime) -> bool:
        if self._leads_until is not None and now < self._leads_until - self._lease / 2:
            return True
        until = now + self._lease
        lease = await self._parts.store.control.lease(_NAME, self.holder, now, until)
        self._leads_until = until if lease.holder == self.holder else None
        return self._leads_until is not None

    async def _step(self, job: Job, state: JobState, now: datetime) -> None:
        """One step; whatever goes wrong in it is told in the job's state, and no other job waits for it."""
        self._last_step = now
        self._steps += 1
        self._stepped[job.name] = self._steps
        data = dict(state.data)
        try:
            more = await job.work(self._parts, data, now)
        except MiddleoutError as error:
            await self._failed(job, state, now, str(error))
        except Exception as error:
            logger.error("the job %s failed (%s)", job.name, type(error).__name__)
            await self._failed(job, state, now, f"internal error ({type(error).__name__})")
        else:
            done = replace(state, data=data)
            if not more:
                done = replace(done, last_run=now, next_run=now + job.every, last_error=None)
            if done != state:
                await self._parts.store.control.save_job(done)

    async def _failed(self, job: Job, state: JobState, now: datetime, sentence: str) -> None:
        failed = replace(state, last_run=now, next_run=now + min(RETRY, job.every), last_error=sentence)
        await self._parts.store.control.save_job(failed)
