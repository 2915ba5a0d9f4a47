"""Work that comes due by itself: who does it, when, and without being in anyone's way.

Every process on a file has a scheduler. One that sees a job due, and something for it to do, takes the lease and leads
until nothing is left; looking takes no lease and writes nothing, so that an idle machine stays idle. A leader that was
killed is followed by another one as soon as its lease runs out; one that works renews it, and stops in the middle of a
step where it lost it, as after a sleep of the machine. A job is done in small steps. Steps wait while calls are under
way or came a moment ago; under calls that never rest there is still one step a minute, and what has been due for a day
waits for no rest. What a job knows of itself is stored, so that the next leader goes on where the last one was.
"""

import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeAlias, TypeVar

import anyio

from middleout_mcp.errors import MiddleoutError, StoreClosed
from middleout_mcp.memory.parts import Look, Parts
from middleout_mcp.ports import OVERDUE, JobState

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

LEASE = timedelta(seconds=12)
"""How long a leader that is gone holds up the others; it is renewed long before."""

LEASE_NAME = "jobs"

UNRESTED = timedelta(minutes=1)
"""How often there is a step where calls never rest."""

RETRY = timedelta(minutes=10)
"""A job that failed is tried again after this time, or after its usual one where that is shorter."""

LONGEST_SECONDS = 900.0
"""A step that takes longer is given up, and with it the lead: what hangs must not keep the others from working."""

_UNDONE = timedelta(hours=1)
"""So long one process may see a job overdue, and another one lead, before it says so."""
_TICK_SECONDS = 2.0
_NEXT_SECONDS = 0.02  # between two steps while nobody calls

Work: TypeAlias = Callable[[Parts, dict[str, Any], datetime], Awaitable[bool]]
"""One small step of a job: gets the job's own memory, which it may change, and tells whether there is more to do."""


@dataclass(frozen=True, slots=True)
class Job:
    """Work that is due every so often. `waits` looks, without changing anything, whether there is something to do."""

    name: str
    every: timedelta
    waits: Work
    work: Work


async def _attempt(work: Callable[[], Awaitable[ResultT]]) -> tuple[ResultT | None, Exception | None]:
    """Its result, or what went wrong: background work has no caller that an exception could reach."""
    try:
        return await work(), None
    except Exception as error:
        return None, error


def _told_of(error: Exception) -> str:
    """Our errors in their own sentence; of any other only its type, as its text may hold a memory's."""
    return str(error) if isinstance(error, MiddleoutError) else f"internal error ({type(error).__name__})"


async def guarded(job: Callable[[], Awaitable[None]], told: set[str] | None = None) -> None:
    """Do a small piece of background work; whatever goes wrong in it is logged, without a word of any memory. With
    `told`, for work that is done again and again, each fault is logged once until that is emptied.
    """
    _, error = await _attempt(job)
    if error is None:
        return
    level, fault = logging.ERROR, type(error).__name__
    if isinstance(error, MiddleoutError):  # a closed store: the process ends, and the next one takes it up
        level, fault = logging.INFO if isinstance(error, StoreClosed) else logging.WARNING, error.code
    if told is None or fault not in told:
        logger.log(level, "a background job failed (%s)", fault)
    if told is not None:
        told.add(fault)


class Scheduler:
    """The jobs of one process."""

    def __init__(
        self,
        parts: Parts,
        jobs: Sequence[Job],
        *,
        lease: timedelta = LEASE,
        holder: str | None = None,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._parts = parts
        self._lease = lease
        self._longest = longest_seconds
        self.holder = holder or f"{os.getpid()}-{secrets.token_hex(4)}"
        self.jobs = tuple(job for job in jobs if not parts.settings.is_off(job.name))
        self._leads_until: datetime | None = None
        self._held_up: datetime | None = None
        """Since when due work has waited for a moment of rest."""
        self._seen_overdue: dict[str, datetime] = {}
        self._unfinished: set[str] = set()
        """Jobs whose last step, by this process, said that there is more to do."""
        self._steps = 0
        self._stepped: dict[str, int] = {}
        self._told = ""

    async def run(self) -> None:
        """Look for due work until cancelled."""
        while True:
            at_once = await self._ticked()
            await anyio.sleep(_NEXT_SECONDS if at_once else _TICK_SECONDS)

    async def _ticked(self) -> bool:
        """A tick that cannot fail; whether the next one may follow at once, as there is work and nobody calls.

        Where the file cannot be used, calls are told, and the next tick tries again.
        """
        stepped, error = await _attempt(self.tick)
        if error is not None:
            self._tell_once(f"scheduled work waits: {_told_of(error)}")
            return False
        self._told = ""
        return bool(stepped) and self._parts.gate.rests(self._parts.clock.now())

    def _tell_once(self, sentence: str) -> None:
        if sentence != self._told:
            self._told = sentence
            logger.warning("%s", sentence)

    async def tick(self) -> bool:
        """Do one step of one job, if one is due, may be done now, and this process leads; whether it was done."""
        if not self.jobs:
            return False
        now = self._parts.clock.now()
        states = {state.name: state for state in await self._parts.store.control.jobs()}
        waiting = [job for job in self.jobs if await self._waits(job, states, now)]
        if not waiting:
            self._held_up = None
            await self.give_back()
            return False
        allowed = self._allowed(waiting, states, now)
        if not allowed:
            return False
        if not await self._leads():
            self._complain(waiting, states, now)
            return False
        job = min(allowed, key=lambda job: (self._stepped.get(job.name, 0), states[job.name].next_run, job.name))
        await self._step(job, states[job.name], now)
        return True

    async def give_back(self) -> None:
        """Let another process lead."""
        if self._leads_until is not None:
            self._leads_until = None
            now = self._parts.clock.now()
            await self._parts.store.control.lease(LEASE_NAME, self.holder, now, now)

    async def _waits(self, job: Job, states: dict[str, JobState], now: datetime) -> bool:
        """Whether the job is due and has something to do. One that nobody has seen yet is due after its usual time."""
        state = states.get(job.name)
        if state is None or state.next_run is None or state.next_run > now + job.every:  # the clock was set back
            state = replace(state or JobState(name=job.name), next_run=now + job.every)
            await self._parts.store.control.save_job(state)
        states[job.name] = state
        looked = self._parts.looked.get(job.name)
        due = state.next_run
        if due is None or due > now or (looked is not None and due <= looked.at <= now < looked.again):
            return False
        if job.name in self._unfinished or state.last_error is not None:
            return True  # only its work can tell that it is done, and well
        waits, error = await _attempt(partial(job.waits, self._parts, deepcopy(state.data), now))
        if error is not None:  # its work will meet the same, and its state tell it
            logger.debug("looking for work of %s failed (%s)", job.name, type(error).__name__)
            return True
        if not waits:
            self._parts.looked[job.name] = Look(now, now + job.every)
            self._seen_overdue.pop(job.name, None)
        return bool(waits)

    def _allowed(self, waiting: Sequence[Job], states: dict[str, JobState], now: datetime) -> Sequence[Job]:
        """Those that may have a step now."""
        if self._parts.gate.rests(now):
            self._held_up = None
            return waiting
        if self._held_up is None or now < self._held_up:
            self._held_up = now
        if now - self._held_up >= UNRESTED:
            return waiting
        return [job for job in waiting if _is_overdue(states[job.name], now)]

    async def _leads(self) -> bool:
        now = self._parts.clock.now()
        until = self._leads_until
        if until is not None and until - self._lease <= now < until - self._lease / 2:
            return True
        wanted = now + self._lease
        lease = await self._parts.store.control.lease(LEASE_NAME, self.holder, now, wanted)
        self._leads_until = wanted if lease.holder == self.holder else None
        return self._leads_until is not None

    def _complain(self, waiting: Sequence[Job], states: dict[str, JobState], now: datetime) -> None:
        """Say once what another process should have done long ago, as it leads."""
        for job in waiting:
            if not _is_overdue(states[job.name], now):
                continue
            since = self._seen_overdue.setdefault(job.name, now)
            if now - since >= _UNDONE:
                self._warn(job, "it has been due for more than a day, and the process that leads does not do it")

    async def _step(self, job: Job, state: JobState, now: datetime) -> None:
        """One step; whatever goes wrong in it is told in the job's state, and no other job waits for it."""
        self._steps += 1
        self._stepped[job.name] = self._steps
        data = deepcopy(state.data)
        outcome: _Outcome | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_leading, tasks.cancel_scope)
            outcome = await self._outcome(job, data, now)
            tasks.cancel_scope.cancel()
        self._held_up = now
        if outcome is None and not self._leads_until:
            return  # another process leads now, and knows better
        if outcome is None:
            await self.give_back()
            outcome = _Outcome(error=f"it took longer than {self._longest / 60:g} minutes and was given up")
        await self._keep(job, state, replace(outcome, data=data), now)

    async def _outcome(self, job: Job, data: dict[str, Any], now: datetime) -> "_Outcome":
        more, error = await _attempt(partial(job.work, self._parts, data, now))
        return _Outcome(more=bool(more)) if error is None else _Outcome(error=_told_of(error))

    async def _keep_leading(self, step: anyio.CancelScope) -> None:
        """Renew the lease during a step; cancel the step where it is lost, or where the step takes too long."""
        with anyio.move_on_after(self._longest):
            leads = True
            while leads:
                await anyio.sleep(self._lease.total_seconds() / 4)
                leads = await self._renewed()
        step.cancel()

    async def _renewed(self) -> bool:
        try:
            return await self._leads()
        except MiddleoutError:  # the file is busy, or cannot be used: the lease lasts as long as it lasts
            return self._leads_until is not None and self._parts.clock.now() < self._leads_until

    async def _keep(self, job: Job, state: JobState, outcome: "_Outcome", now: datetime) -> None:
        kept = replace(state, data=outcome.data)
        self._unfinished.discard(job.name)
        if outcome.error is not None:
            self._warn(job, outcome.error)
            retry = now + min(RETRY, job.every)
            kept = replace(state, last_run=now, next_run=retry, last_error=outcome.error)
        elif not outcome.more:
            own = {warning for warning in self._parts.warned if warning.startswith(_prefix(job))}
            self._parts.warned.difference_update(own)
            kept = replace(kept, last_run=now, next_run=now + job.every, last_error=None)
        else:
            self._unfinished.add(job.name)
        if kept != state:
            await self._parts.store.control.save_job(kept)

    def _warn(self, job: Job, cause: str) -> None:
        """On stderr, once a cause until the job succeeds."""
        warning = f"{_prefix(job)}{cause}"
        if warning not in self._parts.warned:
            self._parts.warned.add(warning)
            logger.warning("%s", warning)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What a step came to."""

    more: bool = False
    error: str | None = None
    data: Any = None


def _prefix(job: Job) -> str:
    return f"The job {job.name} failed: "


def _is_overdue(state: JobState, now: datetime) -> bool:
    return state.next_run is not None and now - state.next_run >= OVERDUE
