"""The arguments and results of what only the owner of the file may ask for, shared by the command line and the tests.

As in `contract`, times are ISO 8601 strings, and what is null or empty is left out of a result.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from middleout_mcp.memory.contract import Item, Withheld
from middleout_mcp.records import Status


class _In(BaseModel):
    """An argument object; see `contract`."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, frozen=True)


class _Out(BaseModel):
    """A result object."""

    model_config = ConfigDict(frozen=True)


class ListIn(_In):
    """Arguments of `list`: which memories to show, newest first. No statuses: the live ones."""

    kinds: list[str] | None = None
    tags: list[str] | None = None
    scope: str | None = None
    statuses: list[Status] | None = None
    since: str | None = None
    until: str | None = None
    thread: str | None = None
    pinned: bool | None = None
    limit: int = Field(default=20, ge=1, le=10_000)
    offset: int = Field(default=0, ge=0)


class ListOut(_Out):
    """Result of `list`. `more` says that there are others after these."""

    items: list[Item]
    withheld: list[Withheld] | None = None
    more: bool = False
    namespaces: dict[str, int] | None = None
    """Where nothing was found at all: how many memories each namespace of the file holds."""


class AuditIn(_In):
    """Arguments of `audit`."""

    memory: str | None = None
    limit: int = Field(default=20, ge=1, le=10_000)
    offset: int = Field(default=0, ge=0)
    verify: bool = False


class OperationOut(_Out):
    """One operation of the log."""

    id: str
    kind: str
    at: str
    agent: str
    reason: str | None = None
    memories: int
    episodes: int
    counts: dict[str, int]
    undoes: str | None = None
    undone_by: str | None = None
    undoable: bool


class ChainOut(_Out):
    """Whether the hash chain of the log holds, and the first thing that does not fit."""

    intact: bool
    fault: str | None = None


class AuditOut(_Out):
    """Result of `audit`, newest first."""

    operations: list[OperationOut]
    more: bool = False
    chain: ChainOut | None = None


class HealthOut(_Out):
    """What an examination of the open file found; each fault is one sentence."""

    file: dict[str, Any]
    damage: str | None = None
    leader: str | None = None
    """Which process does scheduled work at this moment."""
    jobs: list[dict[str, Any]] = []
    """What is known of every scheduled job."""
    chain_fault: str | None = None
    namespaces: dict[str, int]
    embedder: str | None = None
    """The configured one; null where none is set."""
    embedder_fault: str | None = None
    vectors: str | None = None
    """The model of the vectors in the file; null where there are none yet."""
    pending: int = 0
