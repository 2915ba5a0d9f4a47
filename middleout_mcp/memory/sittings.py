"""The sittings of this process: which session a caller is in, what it saw last, and the pages it may still turn."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from middleout_mcp.records import Caller, Operation, Session, new_id
from middleout_mcp.times import STEP, session_end, session_over

_PAGES_KEPT = 8
_RECENT_KEPT = 20
_SITTINGS_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Page:
    """What a cursor continues: the ranked ids with scores that were not shown yet, and the call they belong to."""

    asked: str
    ranked: tuple[tuple[str, float | None], ...]
    below_floor: int
    notice: str | None = None


@dataclass(slots=True)
class Sitting:
    """The caller's current session, with what only this process needs to know about it."""

    session: Session
    saved_at: datetime | None = None
    binds: bool = False
    """Whether a memory expires with this session: then the store must know every call of it."""
    thread: str | None = None
    """The thread that this connection wrote last."""
    recent: list[str] = field(default_factory=list)
    recall_id: str | None = None
    recall_at: datetime | None = None
    pages: "OrderedDict[str, Page]" = field(default_factory=OrderedDict)

    def saw(self, memory_ids: Sequence[str]) -> None:
        """Note ids as the newest that were stored or recalled here."""
        kept = [memory_id for memory_id in self.recent if memory_id not in memory_ids]
        self.recent = [*kept, *dict.fromkeys(memory_ids)][-_RECENT_KEPT:]

    def begin_step(self, now: datetime) -> str:
        """Start the step that a recall opens; its recall id."""
        self.recall_id, self.recall_at = new_id("r"), now
        return self.recall_id

    def operation(self, kind: str, at: datetime, **more: Any) -> Operation:
        """A new operation of this session's caller; `more` are further fields of the record."""
        session = self.session
        return Operation(
            id=new_id("op"),
            namespace=session.namespace,
            kind=kind,
            at=at,
            agent=session.agent,
            session=session.id,
            **more,
        )

    def step(self, now: datetime) -> str | None:
        """The recall id of the step that is still running, if any."""
        if self.recall_at is None or not self.recall_at <= now <= self.recall_at + STEP:
            return None
        return self.recall_id

    def keep_page(self, cursor: str, page: Page) -> None:
        """Remember a page for its cursor; only the newest few are kept."""
        self.pages[cursor] = page
        while len(self.pages) > _PAGES_KEPT:
            self.pages.popitem(last=False)

    def hidden_in(self, now: datetime) -> tuple[str, ...]:
        """The session and step ids in which a memory may be suppressed for this caller."""
        step = self.step(now)
        return (self.session.id, step) if step else (self.session.id,)


class Sittings:
    """All sittings of this process, by namespace, agent and process or token."""

    def __init__(self) -> None:
        self._sittings: OrderedDict[tuple[str, str, str], Sitting] = OrderedDict()
        self.ended: dict[str, Session] = {}
        """Stored sessions that another took the place of, by id, until the store knows that they ended."""

    def of(self, caller: Caller, now: datetime, name: str | None = None) -> Sitting:
        """The caller's sitting at `now`; a new one after the old one ended, or under a new name."""
        place = (caller.grant.write, caller.agent, caller.key)
        sitting = self._sittings.get(place)
        if sitting is None or session_over(sitting.session, now) or _renamed(sitting.session, name):
            if sitting is not None and sitting.saved_at is not None and sitting.session.ended_at is None:
                self.ended[sitting.session.id] = self.end(sitting, now)
            sitting = Sitting(_new_session(caller, now, name), thread=sitting.thread if sitting else None)
            self._sittings[place] = sitting
            while len(self._sittings) > _SITTINGS_KEPT:
                self._sittings.popitem(last=False)
        self._sittings.move_to_end(place)
        sitting.session = replace(
            sitting.session, last_at=max(now, sitting.session.last_at), name=name or sitting.session.name
        )
        return sitting

    def end(self, sitting: Sitting, now: datetime) -> Session:
        """End the session of a sitting; the next call begins another. Returns the ended session."""
        sitting.session = _ended(sitting.session, now)
        return sitting.session

    def all(self) -> list[Sitting]:
        """Every sitting, least recently used first."""
        return list(self._sittings.values())


def _renamed(session: Session, name: str | None) -> bool:
    return name is not None and session.name is not None and session.name != name


def _ended(session: Session, now: datetime) -> Session:
    """The session as it ended: now, or when it had been over already."""
    return replace(session, ended_at=max(session.started_at, min(now, session_end(session))))


def _new_session(caller: Caller, now: datetime, name: str | None) -> Session:
    return Session(
        id=new_id("s"),
        namespace=caller.grant.write,
        agent=caller.agent,
        key=caller.key,
        name=name,
        started_at=now,
        last_at=now,
    )
