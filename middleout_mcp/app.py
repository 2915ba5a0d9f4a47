"""The composition root: the only importer of adapters. Everything above reaches the use cases through `App`.

The file is opened in the background by `running`, so that a client's handshake never waits for it; each use case awaits
it. An opening that fails is told to every call in one sentence and tried again by the next one. Use cases and adapters
are imported then, in a thread: their rules about text take a tenth of a second to compile, which no handshake needs.
"""

import importlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from middleout_mcp.errors import MiddleoutError, StoreMoved
from middleout_mcp.records import Caller, Grant

if TYPE_CHECKING:
    from middleout_mcp.jobs.scheduler import Scheduler
    from middleout_mcp.memory.contract import (
        CompressIn,
        CompressOut,
        ForgetIn,
        ForgetOut,
        OpenIn,
        OpenOut,
        RecallIn,
        RecallOut,
        RememberIn,
        RememberOut,
    )
    from middleout_mcp.memory.owner_contract import AuditIn, AuditOut, HealthOut, ListIn, ListOut
    from middleout_mcp.memory.parts import Parts
    from middleout_mcp.ports import Clock, Clusterer, Embedder
    from middleout_mcp.records import EmbeddingState
    from middleout_mcp.settings import Settings

logger = logging.getLogger(__name__)

_NEEDED = (
    "adapters.fastembed",
    "adapters.hdbscan",
    "adapters.redact_secret",
    "adapters.sqlite",
    "jobs.scheduler",
    "jobs.upkeep",
    "memory.compress",
    "memory.episodes",
    "memory.forget",
    "memory.recall",
    "memory.remember",
)

OWNER = "command line"
"""How the log names the owner; the agents of the settings and of clients are programs."""
_SETTLE_SECONDS = 0.2
"""So long the opening waits for the handshake to be over, unless a call needs the file earlier."""
_UPKEEP_SECONDS = 5.0
_CLOSE_SECONDS = 0.4
"""A client that closes waits half a second before it kills (promise 6); what is committed is safe either way."""


class App:
    """The use cases over one store, for one process."""

    def __init__(
        self,
        settings: "Settings",
        clock: "Clock | None",
        embedder: "Embedder | None",
        clusterer: "Clusterer | None",
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._embedder = embedder
        self._clusterer = clusterer
        self._parts: Parts | None = None
        self._opening = anyio.Lock()
        self._tasks: TaskGroup | None = None
        self._runs = 0
        self._scheduled = False
        self._scheduler: Scheduler | None = None
        self._jobs: tuple[anyio.CancelScope, anyio.Event] | None = None
        """What cancels the jobs, and what tells that they have ended."""
        self._closing = False
        self._told: set[str] = set()
        """Faults of the upkeep that were logged, until it succeeds."""

    def caller(self, client_name: str | None, key: str) -> Caller:
        """Who calls: the grant from the settings; the agent from there too, else the client's name, as it was given.

        It is cleaned and screened by the use cases' way in, as no handshake can wait for the rules of that.
        """
        settings = self.settings
        read = tuple(dict.fromkeys((settings.namespace, *settings.read_namespaces)))
        return Caller(Grant(settings.namespace, read), settings.agent or client_name or "", key, settings.project)

    def owner(self) -> Caller:
        """The person at the command line, who sees every agent's private memories. No server may ask for this."""
        return replace(self.caller(None, f"command line {os.getpid()}"), agent=OWNER, owner=True)

    async def remember(self, caller: Caller, request: "RememberIn") -> "RememberOut":
        """The use case of that name; raises MiddleoutError. So do the four below."""
        async with self._admitted(caller) as (parts, caller):
            from middleout_mcp.memory.remember import remember

            return await remember(parts, caller, request)

    async def recall(self, caller: Caller, request: "RecallIn") -> "RecallOut":
        """See `remember`."""
        async with self._admitted(caller) as (parts, caller):
            from middleout_mcp.memory.recall import recall

            return await recall(parts, caller, request)

    async def open_episode(self, caller: Caller, request: "OpenIn") -> "OpenOut":
        """See `remember`."""
        async with self._admitted(caller) as (parts, caller):
            from middleout_mcp.memory.episodes import open_episode

            return await open_episode(parts, caller, request)

    async def forget(self, caller: Caller, request: "ForgetIn") -> "ForgetOut":
        """See `remember`."""
        async with self._admitted(caller) as (parts, caller):
            from middleout_mcp.memory.forget import forget

            return await forget(parts, caller, request)

    async def compress(self, caller: Caller, request: "CompressIn") -> "CompressOut":
        """See `remember`."""
        async with self._admitted(caller) as (parts, caller):
            from middleout_mcp.memory.compress import compress

            return await compress(parts, caller, request)

    async def list_memories(self, caller: Caller, request: "ListIn") -> "ListOut":
        """See `remember`; this and the two below are for the owner."""
        async with self._using() as parts:
            from middleout_mcp.memory.owner import list_memories

            return await list_memories(parts, caller, request)

    async def audit(self, caller: Caller, request: "AuditIn") -> "AuditOut":
        """See `list_memories`."""
        async with self._using() as parts:
            from middleout_mcp.memory.owner import audit

            return await audit(parts, caller, request)

    async def examine(self, caller: Caller) -> "HealthOut":
        """See `list_memories`."""
        async with self._using() as parts:
            from middleout_mcp.memory.owner import examine

            return await examine(parts, caller)

    async def reembed(self, progress: Callable[[int, int], None]) -> "EmbeddingState":
        """Give every memory a vector of the configured embedder; `progress` hears of done and total memories."""
        parts = await self.parts()
        from middleout_mcp.jobs.reembed import reembed

        return await reembed(parts, progress)

    async def settled(self) -> None:
        """Wait until the background work queued so far is done."""
        if self._parts is not None:
            await self._parts.later.drain()
            await self._parts.runs.drain()

    async def parts(self) -> "Parts":
        """Everything a use case needs; opens the file unless it is open. Raises StoreUnavailable or a subclass."""
        async with self._opening:
            if self._parts is None:
                self._parts = await self._open()
                if self._tasks is not None:
                    self._start(self._parts, self._tasks)
            return self._parts

    def _start(self, parts: "Parts", tasks: TaskGroup) -> None:
        from middleout_mcp.jobs.scheduler import Scheduler, guarded
        from middleout_mcp.jobs.upkeep import JOBS

        tasks.start_soon(parts.later.run, guarded)
        jobs: list[Callable[[], Coroutine[Any, Any, None]]] = [partial(parts.runs.run, guarded)]
        self._scheduler = Scheduler(parts, JOBS) if self._scheduled else None
        if self._scheduler is not None:
            jobs.append(self._scheduler.run)
        self._jobs = anyio.CancelScope(), anyio.Event()
        tasks.start_soon(self._do_jobs, jobs, *self._jobs)

    async def _do_jobs(
        self, jobs: list[Callable[[], Coroutine[Any, Any, None]]], scope: anyio.CancelScope, ended: anyio.Event
    ) -> None:
        """What no call waits for, until it is cancelled; what is left of it is for the next process."""
        try:
            with scope:
                async with anyio.create_task_group() as tasks:
                    for job in jobs:
                        tasks.start_soon(job)
        finally:
            ended.set()

    @asynccontextmanager
    async def _admitted(self, caller: Caller) -> "AsyncIterator[tuple[Parts, Caller]]":
        """Everything a use case needs, and the caller under the name that is stored; scheduled work waits meanwhile."""
        async with self._using() as parts:
            from middleout_mcp.memory.intake import agent_name

            with parts.gate.call(parts.clock.now):
                yield parts, replace(caller, agent=agent_name(parts, caller.agent))

    @asynccontextmanager
    async def _using(self) -> "AsyncIterator[Parts]":
        """The open store, let go where its file is not where it was: by a call, for a caller must hear of it first."""
        parts = await self.parts()
        try:
            yield parts
        except StoreMoved:
            await self._let_go(parts)
            raise

    async def _let_go(self, parts: "Parts") -> None:
        """Close a store; the next call opens what is there then."""
        with anyio.CancelScope(shield=True):
            async with self._opening:
                if self._parts is parts:
                    self._parts = None
                    with anyio.move_on_after(_CLOSE_SECONDS):
                        await self._end_jobs()
                    await parts.store.control.close()

    async def _open(self) -> "Parts":
        await anyio.to_thread.run_sync(_imported)
        from middleout_mcp.adapters.fastembed import open_embedder
        from middleout_mcp.adapters.hdbscan import Hdbscan
        from middleout_mcp.adapters.redact_secret import find_secrets
        from middleout_mcp.adapters.sqlite import open_store
        from middleout_mcp.adapters.system_clock import SystemClock
        from middleout_mcp.memory.later import Later
        from middleout_mcp.memory.parts import Parts
        from middleout_mcp.memory.sittings import Sittings

        settings = self.settings
        if self._embedder is None:  # else the file is opened again, and a loaded model serves on
            self._embedder = open_embedder(settings.embedder, settings.embedder_idle_minutes)
        embedder = self._embedder
        store = await open_store(
            settings.file,
            embedder_name=embedder.name if embedder else None,
            dimension=embedder.dimension if embedder else None,
            synchronous=settings.synchronous,
        )
        clock = self._clock or SystemClock()
        clusterer = self._clusterer or Hdbscan()
        return Parts(store, embedder, find_secrets, clock, settings, Sittings(), Later(), clusterer=clusterer)

    @asynccontextmanager
    async def _run(self, *, upkeep: bool, scheduled: bool) -> AsyncIterator[None]:
        self._runs += 1
        self._scheduled = self._scheduled or scheduled
        try:
            if self._runs > 1:  # the same app under a second connection
                yield
                return
            self._closing = False
            async with anyio.create_task_group() as self._tasks:
                if upkeep:
                    self._tasks.start_soon(self._keep_up)
                try:
                    yield
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._close()
                    self._tasks.cancel_scope.cancel()
        finally:
            self._runs -= 1

    def running(self, *, scheduled: bool = True) -> AbstractAsyncContextManager[None]:
        """Open the file and do background work while inside; close within half a second on the way out.

        `scheduled` also does what comes due by itself.
        """
        return self._run(upkeep=True, scheduled=scheduled)

    def at_hand(self) -> AbstractAsyncContextManager[None]:
        """Like `running`, for one command: opens the file when a use case asks, and does no work of its own."""
        return self._run(upkeep=False, scheduled=False)

    async def _keep_up(self) -> None:
        """Open the file, then finish what an earlier process left: pending vectors, bytes of an erase."""
        await anyio.sleep(_SETTLE_SECONDS)
        jobs = await anyio.to_thread.run_sync(importlib.import_module, "middleout_mcp.jobs.scheduler")
        await jobs.guarded(self._kept_up, self._told)
        while True:
            await anyio.sleep(_UPKEEP_SECONDS)
            if self._parts is not None:  # else the next call tries again, and tells its caller
                await jobs.guarded(self._kept_up, self._told)

    async def _kept_up(self) -> None:
        try:
            parts = await self.parts()
            from middleout_mcp.jobs.upkeep import keep_up

            await keep_up(parts)
        except MiddleoutError as error:
            if not self._closing and str(error) not in self._told:  # what the closing ends the next process takes up
                logger.warning("%s", error)
            self._told.add(str(error))
            return
        self._told.clear()

    async def _end_jobs(self) -> None:
        if self._jobs is not None:
            scope, ended = self._jobs
            scope.cancel()
            await ended.wait()

    async def _close(self) -> None:
        self._closing = True
        async with self._opening:
            parts, self._parts = self._parts, None
        if parts is None:
            return
        try:
            with anyio.move_on_after(_CLOSE_SECONDS / 2):
                await self._end_jobs()
                await parts.later.drain()
            with anyio.move_on_after(_CLOSE_SECONDS / 2):
                await _end_sessions(parts)
                if self._scheduler is not None:
                    await self._scheduler.give_back()
        except MiddleoutError as error:  # a session whose end is not stored ends by itself 30 min later
            logger.warning("%s", error)
        finally:
            await parts.store.control.close()


async def _end_sessions(parts: "Parts") -> None:
    """The process ends, and with it the sessions that stored something."""
    for sitting in parts.sittings.all():
        if sitting.saved_at is not None and sitting.session.ended_at is None:
            session = parts.sittings.end(sitting, parts.clock.now())
            await parts.store.threads.save_session(Grant.only(session.namespace), session)


def _imported() -> list[ModuleType]:
    """Import everything that a call needs."""
    return [importlib.import_module(f"middleout_mcp.{name}") for name in _NEEDED]


def open_app(
    settings: "Settings",
    *,
    clock: "Clock | None" = None,
    embedder: "Embedder | None" = None,
    clusterer: "Clusterer | None" = None,
) -> App:
    """An app over the settings' file; nothing is opened or loaded before it runs. The ports are for tests."""
    return App(settings, clock, embedder, clusterer)
