"""Which episode lines stand where evicted messages were (pure; DESIGN §8, source text Episodic buffer)."""

from collections.abc import Sequence
from dataclasses import dataclass

from middleout_mcp.records import Episode

LINES = 12
"""At most this many lines, the first stretch included."""

TOKENS = 600
"""What the lines of a buffer cost at most (DESIGN §8)."""

WINDOW = 10
"""How many messages count as visible when the caller does not say what it sees."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One line of the buffer: a stretch, or before it the `gap` stretches that are provably left out."""

    episode: Episode
    gap: tuple[Episode, ...] = ()


def select(episodes: Sequence[Episode], first_visible: int, lines: int = LINES) -> list[Shown]:
    """The lines for a thread whose turns from `first_visible` on are in view: the first stretch and the latest ones.

    `episodes` are in the order of their turns. A stretch counts as out of view when it begins before the window. At
    most `lines` (at least 2) stretches are listed.
    """
    hidden = [episode for episode in episodes if episode.line and episode.first_seq < first_visible]
    if len(hidden) <= lines:
        return [Shown(episode) for episode in hidden]
    latest = hidden[-(lines - 1) :]
    return [
        Shown(hidden[0]),
        Shown(latest[0], tuple(hidden[1 : len(hidden) - (lines - 1)])),
        *(Shown(episode) for episode in latest[1:]),
    ]
