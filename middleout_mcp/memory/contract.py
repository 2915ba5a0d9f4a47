"""The arguments and results of the five tools (DESIGN §4), shared by the server, the command line and the tests.

Times are ISO 8601 strings here and are read by the use cases, which know the time zone. Everything optional is left out
of a result where it is null or empty.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from middleout_mcp.records import Action

Unit = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
PrivacyIn = Literal["normal", "private", "sensitive", "secret"]
StateIn = Literal["open", "done", "dropped"]
ForgetAction = Literal["suppress", "demote", "expire", "merge", "archive", "redact", "erase", "restore"]
Include = Literal["archived", "expired", "superseded", "below_floor", "discarded"]


class _In(BaseModel):
    """An argument object: unknown names are refused, and refused values are not repeated in the error."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, frozen=True)


class _Out(BaseModel):
    """A result object."""

    model_config = ConfigDict(frozen=True)


class MemoryIn(_In):
    """One memory to remember, or with `id` a change to an existing one."""

    text: str | None = None
    id: str | None = None
    kind: str | None = Field(
        default=None, description="event|fact|preference|decision|task|error; other words become a key"
    )
    source: Literal["user", "agent", "import"] | None = Field(default=None, description="user = said explicitly")
    confidence: Unit | None = None
    importance: Unit | None = None
    emotional_weight: Unit | None = None
    tags: list[str] | None = None
    key: str | None = None
    value: str | None = None
    scope: str | None = Field(default=None, description="project it applies to")
    known_by: list[str] | None = Field(
        default=None, description="only these know it; 'Bob>Alice' = Bob thinks Alice knows"
    )
    turns: list[int] | None = Field(default=None, description="indexes into messages")
    expires: str | None = Field(default=None, description="'session', ISO duration or time")
    privacy: PrivacyIn | None = None
    at: str | None = Field(default=None, description="when it happened")
    state: StateIn | None = None
    due: str | None = None
    pinned: bool | None = None
    ref: str | None = Field(default=None, description="your own id; same ref = same memory")


class TurnIn(_In):
    """One message of the conversation, kept verbatim."""

    role: str
    text: str
    at: str | None = None
    name: str | None = None
    present: list[str] | None = Field(default=None, description="who heard it")
    data: Any = None


class RememberIn(_In):
    """Arguments of `remember`."""

    memories: list[str | MemoryIn] | None = None
    messages: list[TurnIn] | None = None
    thread: str | None = None
    session: str | None = None
    episode: str | None = None
    used: list[str] | None = None
    wrong: list[str] | None = None


class RememberedOut(_Out):
    """What became of one memory."""

    id: str | None = None
    actions: list[Action]
    reason: str | None = None
    merged_into: str | None = None
    supersedes: list[str] | None = None
    redacted: list[str] | None = None
    """The kinds of secrets that were removed, such as `github_token`."""


class EpisodeOut(_Out):
    """The stretch that the messages were filed as."""

    id: str
    line: str
    thread: str
    start: str
    end: str


class RememberOut(_Out):
    """Result of `remember`: one entry a given memory in order, then those made by rule."""

    results: list[RememberedOut]
    episode: EpisodeOut | None = None
    operation_id: str | None = None
    notice: str | None = None
    """What was removed from the messages or the line."""


class RecallIn(_In):
    """Arguments of `recall`."""

    query: str | None = None
    limit: int = Field(default=8, ge=1, le=1000)
    kinds: list[str] | None = None
    tags: list[str] | None = None
    scope: str | None = None
    since: str | None = None
    until: str | None = None
    as_of: str | None = None
    thread: str | None = None
    session: str | None = None
    viewpoint: str | None = None
    holder: str | None = None
    purpose: str | None = None
    include: list[Include] | None = None
    used: list[str] | None = None
    max_tokens: int = Field(default=2000, ge=100, le=10_000)
    cursor: str | None = None


class Pointer(_Out):
    """Something that `open_episode` opens, and what reading it costs."""

    id: str
    tokens: int


class Item(_Out):
    """One recalled memory. Times are ISO 8601 UTC."""

    id: str
    text: str
    kind: str
    status: str
    band: str | None = None
    rung: int = 0
    at: str
    created_at: str
    updated_at: str
    valid_from: str | None = None
    valid_to: str | None = None
    scope: str | None = None
    source: str
    trust: str
    confidence: float
    score: float | None = None
    marks: list[str] | None = None
    thread: str | None = None
    episode_id: str | None = None
    represents: int | None = None
    pointers: list[Pointer] | None = None


class Packet(_Out):
    """A fact, who holds it, and how it may bind the next step."""

    fact: str
    known_by: list[str] | None = None
    not_known_by: list[str] | None = None
    use: str
    priority: int
    since: str | None = None
    sources: list[str]


class DraftOut(_Out):
    """What a draft gets wrong about who knows what; each entry names its sources."""

    leaks: list[str] | None = None
    rediscoveries: list[str] | None = None
    reasks: list[str] | None = None
    rederivations: list[str] | None = None


class Withheld(_Out):
    """How many memories matched but may not be shown, and why."""

    count: int
    reason: str


class RecallOut(_Out):
    """Result of `recall`."""

    recall_id: str
    items: list[Item]
    packets: list[Packet] | None = None
    draft: DraftOut | None = None
    discarded: list[str] | None = None
    withheld: list[Withheld] | None = None
    below_floor: int = 0
    notice: str | None = None
    """One sentence where the answer is worse than usual, such as text-only search."""
    truncated: bool = False
    cursor: str | None = None


class OpenIn(_In):
    """Arguments of `open_episode`."""

    id: str | None = None
    thread: str | None = None
    visible_from: str | None = None
    cursor: str | None = None
    max_tokens: int = Field(default=2000, ge=100, le=10_000)


class TurnOut(_Out):
    """One verbatim turn."""

    seq: int
    role: str
    name: str | None = None
    at: str
    text: str


class BufferLine(_Out):
    """One line of the buffer: a stretch, or a gap of `gap` stretches that are not listed."""

    id: str
    date: str
    line: str
    tokens: int
    gap: int | None = None


class OpenOut(_Out):
    """Result of `open_episode`."""

    id: str
    type: Literal["episode", "summary", "memory", "gap", "run", "stats", "context", "buffer", "operation"]
    line: str | None = None
    text: str | None = None
    turns: list[TurnOut] | None = None
    memories: list[Item] | None = None
    buffer: list[BufferLine] | None = None
    details: dict[str, Any] | None = None
    truncated: bool = False
    cursor: str | None = None


class ForgetIn(_In):
    """Arguments of `forget`."""

    ids: list[str] | None = None
    query: str | None = None
    action: ForgetAction = "archive"
    until: str | None = None
    spans: list[str] | None = None
    reason: str | None = None


class Candidate(_Out):
    """A memory that could be meant."""

    id: str
    text: str
    kind: str


class ForgetOut(_Out):
    """Result of `forget`. `affected` and `derived` are ids; with `candidates` nothing was changed."""

    action: ForgetAction
    affected: list[str] | None = None
    derived: list[str] | None = None
    candidates: list[Candidate] | None = None
    erasure: Literal["complete", "pending"] | None = None
    operation_id: str | None = None
    notice: str | None = None


class SummaryIn(_In):
    """A better text for one offered cluster."""

    cluster: str
    text: str


class CompressIn(_In):
    """Arguments of `compress`."""

    target: str | list[str] = "middle"
    dry_run: bool = True
    run_id: str | None = None
    summaries: list[SummaryIn] | None = None
    cursor: str | None = None
    max_tokens: int = Field(default=2000, ge=100, le=10_000)


class Cluster(_Out):
    """Memories that would become one summary."""

    id: str
    line: str
    memories: list[str]
    texts: list[str] | None = None


class CompressOut(_Out):
    """Result of `compress`."""

    run_id: str | None = None
    status: Literal["planned", "running", "awaiting", "done", "failed", "cancelled"]
    report: dict[str, Any]
    clusters: list[Cluster] | None = None
    truncated: bool = False
    cursor: str | None = None
