"""The frozen records everything else passes around, their enums and their ids (DESIGN §2)."""

import secrets
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

Vector: TypeAlias = bytes
"""A unit-length embedding as little-endian float32 bytes, 4 × dimension long."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_SUFFIX_LENGTH = 9  # 45 random bits: at 100,000 records the next id collides once in 10^8

IdPrefix: TypeAlias = Literal["m", "e", "g", "op", "r", "run", "s"]


def new_id(prefix: IdPrefix) -> str:
    """A fresh random id such as `m_7k2x9q4tb`."""
    return f"{prefix}_" + "".join(secrets.choice(_ALPHABET) for _ in range(_SUFFIX_LENGTH))


class Kind(StrEnum):
    """What a memory is: `event` is episodic, `summary` derived, the others semantic."""

    EVENT = "event"
    FACT = "fact"
    PREFERENCE = "preference"
    DECISION = "decision"
    TASK = "task"
    ERROR = "error"
    SUMMARY = "summary"


class Source(StrEnum):
    """Where a memory comes from: said by the user, inferred by the agent, imported, or derived."""

    USER = "user"
    AGENT = "agent"
    IMPORT = "import"
    SUMMARY = "summary"


class Trust(StrEnum):
    """How far a memory may be relied on, best first."""

    VERIFIED = "verified"
    USER = "user"
    AGENT = "agent"
    IMPORT = "import"
    FLAGGED = "flagged"


class Status(StrEnum):
    """Whether a memory surfaces. A merged record is superseded; a compressed member stays live."""

    LIVE = "live"
    ARCHIVED = "archived"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    REDACTED = "redacted"


class Privacy(StrEnum):
    """Who may see a memory. `secret` is never stored."""

    NORMAL = "normal"
    PRIVATE = "private"
    SENSITIVE = "sensitive"


class TaskState(StrEnum):
    """The state of a memory of kind `task`."""

    OPEN = "open"
    DONE = "done"
    DROPPED = "dropped"


class Action(StrEnum):
    """What `remember` did with one memory."""

    STORED = "stored"
    MERGED = "merged"
    SUPERSEDED = "superseded"
    UPDATED = "updated"
    REDACTED = "redacted"
    REJECTED = "rejected"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Grant:
    """The namespaces of one call: one to write, a tuple to read. Nothing else is visible."""

    write: str
    read: tuple[str, ...]

    @classmethod
    def only(cls, namespace: str) -> "Grant":
        """Read and write in one namespace."""
        return cls(namespace, (namespace,))


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: the grant, the agent's name, and the key of its process or token."""

    grant: Grant
    agent: str
    key: str
    project: str | None = None
    owner: bool = False
    """The person at the command line, who sees every agent's private memories (DESIGN §2). Never set by a server."""

    @property
    def confined_to(self) -> str | None:
        """The agent whose private memories alone may be seen, as a `Filter` takes it; None for the owner."""
        return None if self.owner else self.agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One record. Times are aware UTC datetimes, cut to whole milliseconds."""

    id: str
    namespace: str
    kind: Kind
    text: str
    at: datetime
    created_at: datetime
    updated_at: datetime
    agent: str
    source: Source = Source.AGENT
    trust: Trust = Trust.AGENT
    confidence: float = 0.6
    importance: float = 0.3
    emotional_weight: float = 0.0
    tags: tuple[str, ...] = ()
    key: str | None = None
    value: str | None = None
    scope: str | None = None
    known_by: tuple[str, ...] | None = None
    privacy: Privacy = Privacy.NORMAL
    status: Status = Status.LIVE
    state: TaskState | None = None
    due: datetime | None = None
    pinned: bool = False
    ref: str | None = None
    session: str | None = None
    thread: str | None = None
    episode_id: str | None = None
    turns: tuple[int, ...] = ()
    """Sequence numbers, in `thread`, of the turns this memory was filed from."""
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    expires_at: datetime | None = None
    expires_session: str | None = None
    """Set where the memory expires when that session ends."""
    suppressed_until: datetime | None = None
    suppressed_in: str | None = None
    """A session id, or a recall id where it is hidden for one step."""
    demoted: bool = False
    disputed: bool = False
    """Reported in `wrong` and not confirmed since."""
    redacted: bool = False
    merged_into: str | None = None
    superseded_by: str | None = None
    summary_id: str | None = None
    parents: tuple[str, ...] = ()
    """Ids of the memories this one was derived from."""
    rung: int = 0
    copies: int = 1
    """How many records were merged into this one, itself included."""
    use: float = 0.0
    """Sum of the weights of its uses (1.0 used or opened, 0.2 returned by recall)."""
    last_used_at: datetime | None = None
    version: int = 1
    embedded: bool = False

    @property
    def weak(self) -> bool:
        """No evidence behind it and nobody verified it (DESIGN §2)."""
        return not (self.episode_id or self.turns or self.parents) and self.trust is not Trust.VERIFIED


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message of a thread, verbatim but for redacted spans. `seq` counts from 1 within the thread."""

    thread: str
    seq: int
    role: str
    text: str
    at: datetime
    at_given: bool = False
    """Whether the caller gave the time; without it `at` is when the turn was written here."""
    name: str | None = None
    present: tuple[str, ...] | None = None
    data: Any = None
    erased: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """The record of a stretch of turns filed together: `first_seq` to `last_seq`, inclusive."""

    id: str
    namespace: str
    thread: str
    key: str
    """What a retry has in common: the end time, or a hash of the turns."""
    start: datetime
    end: datetime
    line: str
    first_seq: int
    last_seq: int
    memory_ids: tuple[str, ...] = ()
    tokens: int = 0
    """Prompt tokens of its turns: what opening it costs."""
    agent: str = ""
    session: str | None = None
    created_at: datetime
    archived: bool = False
    erased_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """One conversation. `turns` counts the turns stored, which is also the last sequence number."""

    id: str
    namespace: str
    agent: str
    turns: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One sitting of a namespace, an agent and a process or token (DESIGN §2)."""

    id: str
    namespace: str
    agent: str
    key: str
    name: str | None
    started_at: datetime
    last_at: datetime
    turns: int = 0
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """That a memory was used once: `weight` 1.0 for used or opened, 0.2 for returned by recall."""

    memory_id: str
    session: str
    at: datetime
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One audited change. `counts` has whole numbers by name; no field holds memory text."""

    id: str
    namespace: str
    kind: str
    """`remember`, `archive`, `erase`, `restore`, `reembed`, …"""
    at: datetime
    agent: str
    session: str | None = None
    reason: str | None = None
    memory_ids: tuple[str, ...] = ()
    episode_ids: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    undoable: bool = True
    undoes: str | None = None
    undone_by: str | None = None
    part_of: str | None = None
    """The operation that this one continues: both are one, told and undone together. They change different records:
    of one that two parts change, undo puts back what the last of them changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Everything one call writes, applied in one transaction or not at all.

    `memories` are whole new states: a record whose id is unknown is inserted; one that exists becomes a new version,
    provided its stored version is `version − 1`. `vectors` go with the memories of the same id; a memory whose text
    changed and that has no vector here becomes pending. `turns` are appended; `episodes` inserted or overwritten by
    id. `operation` records it, with before-images of every memory and episode touched where it is undoable.
    """

    operation: Operation
    memories: tuple[Memory, ...] = ()
    vectors: dict[str, Vector] = field(default_factory=dict)
    turns: tuple[Turn, ...] = ()
    episodes: tuple[Episode, ...] = ()
    uses: tuple[Use, ...] = ()
    session: Session | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which memories a search or listing may return; every given condition must hold.

    `now` decides expiry and suppression: an expired memory is live in no search after `expires_at`, whether or not a
    job has marked it. `private` memories surface for `agent` alone. `until` is inclusive, `as_of` asks for what was
    valid at that time, superseded records included.
    """

    now: datetime
    agent: str | None = None
    """None: the owner, who sees every agent's private memories."""
    statuses: tuple[Status, ...] = (Status.LIVE,)
    kinds: tuple[Kind, ...] = ()
    tags: tuple[str, ...] = ()
    scope: str | None = None
    """That scope, and memories without any."""
    since: datetime | None = None
    until: datetime | None = None
    as_of: datetime | None = None
    thread: str | None = None
    session: str | None = None
    suppressed_in: tuple[str, ...] = ()
    """The caller's session and recall ids: memories suppressed in one of them are hidden."""
    ended_sessions: bool = True
    """Leave out what expired with a session that has ended."""
    ids: tuple[str, ...] | None = None
    """Only these memories."""
    pinned: bool | None = None
    state: TaskState | None = None
    sensitive: bool = False
    """Whether `sensitive` memories may be returned."""
    compressed: bool = False
    """Whether memories that a summary stands for may be returned."""
    lapsed: bool = False
    """Only what has expired by `now` and is not marked so yet."""
    hidden: bool = False
    """Whether memories suppressed until a later time may be returned."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A candidate of one search: cosine in [−1, 1], or bm25 as a positive number, higher is better."""

    memory_id: str
    score: float


@dataclass(frozen=True, slots=True)
class Unembedded:
    """A memory version that waits for a vector of its text. Namespace, id and version name one text for ever."""

    namespace: str
    memory_id: str
    version: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """What an erase removed: counts by name, the summaries dropped, and whether the file is clean yet."""

    operation: Operation
    memory_ids: tuple[str, ...]
    dropped_summaries: tuple[str, ...]
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A compression run: `plan` holds ids and numbers only, never text."""

    id: str
    namespace: str
    status: str
    target: str
    plan: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingState:
    """Which model made the vectors in the file, and how far a re-embedding to another has come."""

    name: str
    dimension: int
    target_name: str | None = None
    target_dimension: int | None = None
    done: int = 0
    total: int = 0
