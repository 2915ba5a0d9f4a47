"""Which memories may be compressed (pure; source text Middle-Out, DESIGN §7)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from middleout_mcp.records import Memory


@dataclass(frozen=True, slots=True)
class Bands:
    """The three bands: what founded the pattern, what is fresh, and the predictable middle."""

    foundation: tuple[Memory, ...]
    middle: tuple[Memory, ...]
    active: tuple[Memory, ...]


FOUNDATION_USE = 3.0
"""Sum of uses from which a memory counts as still shaping behaviour, until the boundary adapts."""


def split(memories: Sequence[Memory], active_sessions: Collection[str]) -> Bands:
    """Active: of an active session. Foundation: pinned, or used at least three times. Middle: everything else."""
    foundation, middle, active = [], [], []
    for memory in memories:
        if memory.pinned or memory.use >= FOUNDATION_USE:
            foundation.append(memory)
        elif memory.session in active_sessions:
            active.append(memory)
        else:
            middle.append(memory)
    return Bands(tuple(foundation), tuple(middle), tuple(active))
