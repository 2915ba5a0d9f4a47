"""What a use case works with, bundled once by the composition root."""

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import anyio

from middleout_mcp.errors import EmbedderUnavailable
from middleout_mcp.memory.gate import Gate
from middleout_mcp.memory.later import Later
from middleout_mcp.memory.sittings import Sitting, Sittings
from middleout_mcp.ports import Clock, Clusterer, Embedder, FindSecrets, Store
from middleout_mcp.records import Caller, Grant, Vector
from middleout_mcp.settings import Settings

logger = logging.getLogger(__name__)

_SAVE_SESSION_EVERY = timedelta(minutes=1)
_LOAD_SECONDS = 10.0
"""So long a call waits for a model that is being loaded; clients give up after a minute, some after half of one."""
_STILL_LOADING = "The embedding model is still being loaded."


@dataclass(frozen=True, slots=True)
class Look:
    """When this process saw that a job has nothing to do, and when it looks again."""

    at: datetime
    again: datetime


@dataclass(frozen=True, slots=True)
class Parts:
    """The ports, the settings, and this process's sittings and queue."""

    store: Store
    embedder: Embedder | None
    find_secrets: FindSecrets
    clock: Clock
    settings: Settings
    sittings: Sittings
    later: Later
    """Small work that no answer waits for; done before the process leaves."""
    filing: anyio.Lock = field(default_factory=anyio.Lock)
    """Held by a call that plans anew after a conflict with another writer."""
    clusterer: Clusterer | None = None
    gate: Gate = field(default_factory=Gate)
    runs: Later = field(default_factory=Later)
    """Compression that a caller asked for; what is not done when the process leaves is done by the next one."""
    worker: str = field(default_factory=lambda: secrets.token_hex(4))
    """This process, where several work on one thing."""
    warned: set[str] = field(default_factory=set)
    """Warnings given already: each cause is logged once."""
    looked: dict[str, Look] = field(default_factory=dict)
    """By name of a job: that it was due and had nothing to do."""

    @property
    def zone(self) -> ZoneInfo:
        """The time zone in which naive times and relative words are read."""
        return ZoneInfo(self.settings.timezone)

    def sit(self, caller: Caller, now: datetime) -> Sitting:
        """The caller's sitting. What the store knows of its last call is at most a minute old, and up to date where a
        memory expires with the session: that one must not lapse early.
        """
        sitting = self.sittings.of(caller, now)
        if self.sittings.ended:
            self.later.put(self.save_ended)
        if sitting.saved_at is not None and (sitting.binds or now - sitting.saved_at >= _SAVE_SESSION_EVERY):
            sitting.saved_at = now

            async def save() -> None:  # as it is then: it may have ended meanwhile
                await self.store.threads.save_session(caller.grant, sitting.session)

            self.later.put(save)
        return sitting

    async def save_ended(self) -> None:
        """Tell the store which sessions another took the place of, so that nothing bound to them comes back."""
        for session in list(self.sittings.ended.values()):
            await self.store.threads.save_session(Grant.only(session.namespace), session)
            self.sittings.ended.pop(session.id, None)

    async def embed(self, texts: Sequence[str]) -> list[Vector] | None:
        """Vectors of the texts, or None where no embedder is set, it cannot be loaded, or its loading takes so long
        that clients give up, as a download may. Each cause is logged once; loading goes on meanwhile.
        """
        if self.embedder is None or not texts:
            return None
        if self.embedder.loaded:
            self.warned.discard(_STILL_LOADING)
            return await self._embed(self.embedder, texts)
        with anyio.move_on_after(0.1 if _STILL_LOADING in self.warned else _LOAD_SECONDS):
            return await self._embed(self.embedder, texts)
        self._warn(_STILL_LOADING)
        return None

    async def _embed(self, embedder: Embedder, texts: Sequence[str]) -> list[Vector] | None:
        try:
            return await embedder.embed(texts)
        except EmbedderUnavailable as error:
            self._warn(str(error))
            return None

    def _warn(self, cause: str) -> None:
        if cause not in self.warned:
            self.warned.add(cause)
            logger.warning("%s Text search goes on; new memories stay pending.", cause)
