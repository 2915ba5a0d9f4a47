"""What the use cases need from the outside world. The docstrings are the contract, errors included.

Every store method that touches content takes the namespace grant and behaves, for ids of other namespaces, exactly as
for ids that never existed. What is read by id or condition comes from `grant.read`, unless a method says that it looks
in the write namespace only. What is written goes to `grant.write`: a method that takes a memory, episode, session, run
or operation raises InvalidInput where its `namespace` is another one, and nothing is then changed (`commit`, `rewrite`,
`erase`, `undo`, `save_session`, `save_run`). Turns and uses carry no namespace; they are of `grant.write`. Only
`embedding`, `pending`, `add_vectors` and the methods of a re-embedding, whose rows name their namespace, and
`finish_erasures`, `health` and `close` take no grant: they are for the file as a whole, never for a caller's answer.

Store methods raise `StoreUnavailable` (or a subclass) when the file cannot be used; nothing is then changed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias

from middleout_mcp.records import (
    Change,
    EmbeddingState,
    Episode,
    Erasure,
    Filter,
    Grant,
    Hit,
    Memory,
    Operation,
    Run,
    Session,
    Thread,
    Turn,
    Unembedded,
    Use,
    Vector,
)


@dataclass(frozen=True, slots=True)
class Span:
    """A secret found in a text: code points `start` to `end` (exclusive), and its kind such as `github_token`."""

    start: int
    end: int
    kind: str


FindSecrets: TypeAlias = Callable[[str], list[Span]]
"""Secret spans of a text, in order and without overlaps."""


class Clock(Protocol):
    """Where time comes from; everything below takes `now` as an argument."""

    def now(self) -> datetime:
        """The current time, aware, UTC, cut to whole milliseconds."""
        ...


class Embedder(Protocol):
    """Turns text into unit vectors, offline."""

    @property
    def name(self) -> str:
        """The model's name, stored in the file and compared at open."""
        ...

    @property
    def dimension(self) -> int:
        """Length of the vectors; 0 until the first `embed` of a model that is not bundled."""
        ...

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector a text, in order; loads the model on first use, in a thread. Raises EmbedderUnavailable."""
        ...

    async def unload(self) -> None:
        """Give the model's memory back; the next `embed` loads it again."""
        ...


class Clusterer(Protocol):
    """Finds groups among vectors, without being told how many there are."""

    async def cluster(self, vectors: Sequence[Vector]) -> list[int]:
        """One label a vector, in order: equal for those of one group, −1 for what belongs to none; always the same for
        the same vectors. The work is done beside the event loop. Raises ClusteringFailed.
        """
        ...


class MemoryStore(Protocol):
    """Memories: the only way content is written, and look-ups by id and condition."""

    async def commit(self, grant: Grant, change: Change) -> Operation:
        """Write `change` in one transaction, with rows, vectors, text index, operation and undo content together.

        Raises Conflict when a memory's stored version is not the one before the given one, or when the turns given
        do not start right after the last stored turn of their thread, or when the operation continues another
        (`part_of`) that was undone meanwhile; InvalidInput for a record outside `grant.write`, and for an id or `ref`
        that a tombstone blocks. A `ref` is taken once in a namespace, and once more by each agent for its private
        memories.
        """
        ...

    async def get(self, grant: Grant, ids: Sequence[str]) -> list[Memory]:
        """The current versions, in the order of `ids`; unknown ids are left out."""
        ...

    async def by_ref(self, grant: Grant, refs: Sequence[str], *, agent: str) -> dict[str, Memory]:
        """The memories of the write namespace that carry these references of the agent: its own private one, else the
        one that all may see. Another agent's private memory is never among them.
        """
        ...

    async def same_text(self, grant: Grant, texts: Sequence[str]) -> dict[str, list[Memory]]:
        """Live memories of the write namespace whose text is one of these but for NFC, case and spacing.

        Those that a summary stands for are left out: told again, such a thing is a memory of its own.
        """
        ...

    async def find(
        self, grant: Grant, condition: Filter, *, limit: int, offset: int = 0, order: str = "at"
    ) -> list[Memory]:
        """Memories that meet the condition: newest `at` first (`order="at"`), or `updated`, `importance`, `due`."""
        ...

    async def versions(self, grant: Grant, memory_id: str) -> list[Memory]:
        """Every stored version, oldest first, the current one last; empty for an unknown id."""
        ...

    async def count(self, grant: Grant) -> Mapping[str, int]:
        """Memories of the read namespaces by status, plus `pending`, `threads`, `turns`, `episodes`."""
        ...

    async def rewrite(
        self,
        grant: Grant,
        memories: Sequence[Memory],
        turns: Sequence[Turn],
        episodes: Sequence[Episode],
        operation: Operation,
    ) -> Operation:
        """Redact: overwrite these memories, turns and episodes in place by id, then checkpoint as `erase` does.

        Earlier versions of the memories, all undo content of the given ids and the reasons of earlier operations on
        them are destroyed, and so are summaries derived from the memories, so that nothing of the former text is left;
        the memories become pending. Raises Conflict where a memory's version is not one more than the stored one;
        InvalidInput for a record outside `grant.write`.
        """
        ...

    async def erase(
        self,
        grant: Grant,
        memory_ids: Sequence[str],
        episode_ids: Sequence[str],
        operation: Operation,
        *,
        agent: str | None = None,
    ) -> Erasure:
        """Remove for good, in one transaction, everything DESIGN §10 lists; then checkpoint the journal file.

        The caller's own words about it go too: reasons that repeat it, a tag that a run was about, roles of the turns,
        and the names of threads and sessions of which nothing is left. What is private to another than `agent` (None:
        the owner) does not exist: it stays, without the turns of an episode that goes.
        Once the transaction stands nothing is raised any more: a checkpoint that fails makes it not `complete`.
        Raises NotFound for an id that is not in the write namespace.
        """
        ...

    async def finish_erasures(self) -> bool:
        """Try again what a reader or a full disk prevented, unless the file may only be read; True when no erased bytes
        are left in any file.
        """
        ...


class ThreadStore(Protocol):
    """Threads, turns, episodes and sessions."""

    async def thread(self, grant: Grant, thread: str) -> Thread | None:
        """The thread, or None where it does not exist."""
        ...

    async def latest_thread(self, grant: Grant, agent: str) -> Thread | None:
        """The agent's most recently written thread in the write namespace, of which not everything was erased."""
        ...

    async def turns(
        self, grant: Grant, thread: str, *, first: int = 1, last: int | None = None, limit: int | None = None
    ) -> list[Turn]:
        """Turns `first` to `last` by sequence number, oldest first, at most `limit`. Empty for an unknown thread."""
        ...

    async def tail(self, grant: Grant, thread: str, count: int) -> list[Turn]:
        """The newest `count` turns, oldest first."""
        ...

    async def episode(self, grant: Grant, ids: Sequence[str]) -> list[Episode]:
        """Episodes by id, in order; unknown and erased ones left out."""
        ...

    async def episodes(self, grant: Grant, thread: str) -> list[Episode]:
        """The thread's episodes that still open, in the order of their turns."""
        ...

    async def episode_by_key(self, grant: Grant, thread: str, key: str) -> Episode | None:
        """The episode that a retry of the same stretch would overwrite."""
        ...

    async def sessions(self, grant: Grant, *, agent: str | None = None, limit: int = 20) -> list[Session]:
        """The newest sessions of the read namespaces, newest first."""
        ...

    async def save_session(self, grant: Grant, session: Session) -> None:
        """Insert the session, or overwrite it by id; what ended stays ended, and turns and last call only grow.

        Raises InvalidInput for one outside `grant.write`.
        """
        ...


class SearchStore(Protocol):
    """Candidates for recall, and the vectors behind them."""

    async def nearest(self, grant: Grant, vector: Vector, condition: Filter, k: int) -> list[Hit]:
        """The k memories nearest by cosine among those that meet the condition, best first, ties by id; any k.

        Raises EmbedderMismatch when the vector's length is not the file's dimension.
        """
        ...

    async def match(self, grant: Grant, terms: Sequence[str], condition: Filter, k: int) -> list[Hit]:
        """The k best by bm25 that contain any of the terms, best first, ties by id; no character is an operator."""
        ...

    async def vectors(self, grant: Grant, ids: Sequence[str]) -> dict[str, Vector]:
        """The stored vectors of these memories; pending ones left out."""
        ...

    async def embedding(self) -> EmbeddingState:
        """The model of the vectors in the file. A new file takes the embedder it was opened with."""
        ...

    async def pending(self, limit: int) -> list[Unembedded]:
        """Memories of any namespace that have no vector yet, oldest first."""
        ...

    async def add_vectors(self, rows: Sequence[tuple[Unembedded, Vector]]) -> int:
        """Store vectors for memories that still wait for one in that very version; the number really stored."""
        ...

    async def begin_reembed(self, name: str, dimension: int) -> EmbeddingState:
        """Start, or resume, the re-embedding to another model, beside the vectors in use."""
        ...

    async def reembed_batch(self, limit: int) -> list[Unembedded]:
        """The next memories without a vector of the new model."""
        ...

    async def add_reembedded(self, rows: Sequence[tuple[Unembedded, Vector]]) -> EmbeddingState:
        """Store vectors of the new model as `add_vectors` does, and with the last one switch to it."""
        ...


class JournalStore(Protocol):
    """Operations with undo, and the use log."""

    async def operation(self, grant: Grant, operation_id: str, *, agent: str | None = None) -> Operation | None:
        """One operation of a readable namespace, what continues it included: a continuation has no answer of its own.

        Its `memory_ids`, `episode_ids` and `counts` are those of all its parts together. For an `agent` (None: the
        owner), memories private to another are left out, and with them the reason and the undo; an operation that
        touched nothing else does not exist.
        """
        ...

    async def operations(
        self, grant: Grant, *, memory_id: str | None = None, agent: str | None = None, limit: int = 20, offset: int = 0
    ) -> list[Operation]:
        """Newest first, as `operation` shows them; with `memory_id`, those that touched it."""
        ...

    async def undo(
        self, grant: Grant, operation_id: str, operation: Operation, *, agent: str | None = None
    ) -> Operation:
        """Put back what `operation_id` changed, as a new operation.

        A memory that was changed again since keeps its newer state, one that was inserted is archived, erased ones
        stay erased; `counts` of the result tells `restored`, `skipped` (changed since) and `gone` (erased or redacted
        since). Looks in the write namespace only. Raises NotFound, also where a memory private to another than `agent`
        was touched; InvalidInput where the operation cannot be undone (erase, redact, or undone already).
        """
        ...

    async def first_fault(self) -> str | None:
        """For the owner of the file: a sentence about the first thing in the whole log that breaks its hash chain."""
        ...

    async def note_uses(self, grant: Grant, uses: Sequence[Use]) -> None:
        """Record uses of memories of the write namespace, of each memory and session the one of the greatest weight."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who may do the work of `name`, and until when; the holder renews it in time, or another takes over."""

    name: str
    holder: str
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """What is known of a scheduled job; `data` is its own memory between runs: ids and numbers, never text."""

    name: str
    last_run: datetime | None = None
    next_run: datetime | None = None
    last_error: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


OVERDUE = timedelta(days=1)
"""What has been due for so long waits for no rest, and is told."""


class ControlStore(Protocol):
    """The file itself: runs, who does its jobs and how they went, health, closing."""

    async def save_run(self, grant: Grant, run: Run, *, expect: str | Run | None = None) -> bool:
        """Insert or overwrite a compression run; with `expect`, only where its stored status is that one, or where it
        is still the run given, so that two processes that work on one run do not undo each other's notes. Whether it
        was written. Raises InvalidInput for one outside `grant.write`.
        """
        ...

    async def run(self, grant: Grant, run_id: str) -> Run | None:
        """A run of a readable namespace."""
        ...

    async def runs(self, grant: Grant, status: str) -> list[Run]:
        """The runs of the write namespace with that status, oldest first."""
        ...

    async def lease(self, name: str, holder: str, now: datetime, until: datetime) -> Lease:
        """Take or renew the lease where it is free, has run out, or is the holder's; who holds it now.

        `until` not after `now` gives it back. A lease that ends more than twice as late as it could, asked for by
        `now` (the clock was set back), counts as run out.
        """
        ...

    async def jobs(self) -> list[JobState]:
        """What is known of every job that ever ran, by name."""
        ...

    async def save_job(self, job: JobState) -> None:
        """Insert or overwrite by name."""
        ...

    async def checkpoint(self) -> bool:
        """Move the journal into the file, waiting for nobody; whether all of it could be moved."""
        ...

    async def health(self, *, thorough: bool = False) -> Mapping[str, Any]:
        """About the file: path, bytes on disk, those of its journal, schema version, SQLite version, pages free;
        `leases`, as they were last written; `lost`, sentences about operations that it once held and does not hold
        any more, as after a damaged journal. `thorough` also checks the structure of the whole file: `damage`, a
        sentence about the first damage, or None.
        """
        ...

    async def namespaces(self) -> Mapping[str, int]:
        """Every namespace with how many memories it holds. For jobs and the owner of the file."""
        ...

    async def close(self) -> None:
        """Wait for the running write, checkpoint, close every connection. Safe to call twice."""
        ...


@dataclass(frozen=True, slots=True)
class Store:
    """The five roles of one store."""

    memories: MemoryStore
    threads: ThreadStore
    search: SearchStore
    journal: JournalStore
    control: ControlStore
