"""Which episode lines stand where evicted messages were (pure; DESIGN §8, source text Episodic buffer)."""

from collections.abc import Sequence
from dataclasses import dataclass

from middleout_mcp.records import Episode

LINES = 12
"""At most this many lines, the first stretch included."""

WINDOW = 10
"""How many messages count as visible when the caller does not say what it sees."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One line of the buffer: a stretch, or before it the `gap` stretches that are provably left out."""

    episode: Episode
    gap: tuple[Episode, ...] = ()


def select(episodes: Sequence[Episode], first_visible: int) -> list[Shown]:
    """The lines for a thread whose turns from `first_visible` on are in view: the first stretch and the latest ones.

    `episodes` are in the order of their turns. A stretch counts as out of view when it begins before the window.
    """
    hidden = [episode for episode in episodes if episode.line and episode.first_seq < first_visible]
    if len(hidden) <= LINES:
        return [Shown(episode) for episode in hidden]
    latest = hidden[-(LINES - 1) :]
    return [
        Shown(hidden[0]),
        Shown(latest[0], tuple(hidden[1 : len(hidden) - (LINES - 1)])),
        *(Shown(episode) for episode in latest[1:]),
    ]
