"""Policies as data (pure): what a memory gets when nothing else is said, and how trust follows from the source."""

from dataclasses import dataclass

from middleout_mcp.records import Kind, Source, Trust

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


def trust_rank(trust: Trust) -> int:
    """0 for the least trusted, 4 for the most."""
    return TRUST_ORDER.index(trust)
