"""Policies as data (pure): what a memory gets when nothing else is said, and how trust follows from the source."""

from dataclasses import dataclass

from middleout_mcp.records import Kind, Memory, Privacy, Source, Status, TaskState, Trust

EMBED_AT_ONCE = 256
"""Of a very large call this many memories are embedded before the answer, the rest afterwards (DESIGN §4)."""

USED = 1.0
"""Weight of a use that was reported or opened (DESIGN §2)."""

RETURNED = 0.2
"""Weight of a use that was a recall's result (DESIGN §2)."""


@dataclass(frozen=True, slots=True)
class SourceDefaults:
    """Importance and confidence in [0, 1], and the trust, of a memory from one source (DESIGN §4)."""

    importance: float
    confidence: float
    trust: Trust


DEFAULTS = {
    Source.USER: SourceDefaults(0.6, 0.9, Trust.USER),
    Source.AGENT: SourceDefaults(0.3, 0.6, Trust.AGENT),
    Source.IMPORT: SourceDefaults(0.35, 0.5, Trust.IMPORT),
}

TRUST_ORDER = (Trust.FLAGGED, Trust.IMPORT, Trust.AGENT, Trust.USER, Trust.VERIFIED)

SEMANTIC = frozenset({Kind.FACT, Kind.PREFERENCE, Kind.DECISION, Kind.TASK, Kind.ERROR})


SURE = 0.8
"""Confidence from which a preference is never folded into a summary (DESIGN §9: what is never archived by score)."""


def compressible(memory: Memory) -> bool:
    """Whether a memory may become part of a summary.

    Not what a summary stands for already, nor a summary; nothing private or sensitive; and not what the brief lists as
    it is: pins, open tasks, preferences that are sure. Nor what is hidden for a while or marked as wrong: a summary
    would tell it without that mark.
    """
    if memory.status is not Status.LIVE or memory.summary_id is not None or memory.kind is Kind.SUMMARY:
        return False
    if memory.privacy is not Privacy.NORMAL or memory.pinned:
        return False
    if memory.kind is Kind.TASK and memory.state is TaskState.OPEN:
        return False
    if memory.disputed or memory.suppressed_in is not None or memory.suppressed_until is not None:
        return False
    if memory.expires_at is not None or memory.expires_session is not None:
        return False  # it ends by itself, and a summary would outlive it
    return not (memory.kind is Kind.PREFERENCE and memory.confidence >= SURE)


def trust_rank(trust: Trust) -> int:
    """0 for the least trusted, 4 for the most."""
    return TRUST_ORDER.index(trust)
