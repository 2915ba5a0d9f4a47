"""Pages of verbatim text: nothing is left out between one page and the next, however long one turn is."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from middleout_mcp.budget import count_tokens, cut
from middleout_mcp.errors import InvalidInput
from middleout_mcp.records import Turn

_CURSOR = re.compile(r"t(\d{1,9})\.(\d{1,9})")
TURN_OVERHEAD = 24
"""Prompt tokens that number, role and date of a turn cost beside its text, in the structured form, the longer one."""


def turn_cost(turn: Turn) -> int:
    """What a turn costs beside its text: more where its names are long."""
    return TURN_OVERHEAD + count_tokens(turn.name or "") + max(0, count_tokens(turn.role) - 4)


@dataclass(slots=True)
class TurnPage:
    """The turns of one page, the part of each text that is on it, and the cursor of the next page."""

    turns: list[Turn] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    cursor: str | None = None


def read_cursor(cursor: str | None, *, default: int) -> tuple[int, int]:
    """Sequence number and character offset that a cursor stands for. Raises InvalidInput for any other text."""
    if cursor is None:
        return default, 0
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidInput("that cursor is not one that was given here; ask again without it")
    return int(match[1]), int(match[2])


def page_turns(
    turns: Sequence[Turn], offset: int, max_tokens: int, beside: Mapping[int, int] | None = None
) -> TurnPage:
    """As many turns as fit; the first begins at character `offset`, and the last may be continued on the next page.

    `beside` has the tokens of what is listed together with a turn, by its number; at most half a page of it counts.
    """
    page = TurnPage()
    left = max_tokens
    along = beside or {}
    for index, turn in enumerate(turns):
        start = offset if index == 0 else 0
        text = turn.text[start:]
        cost = count_tokens(text) + turn_cost(turn) + min(along.get(turn.seq, 0), max_tokens // 2)
        if cost > left:
            if page.turns and cost <= max_tokens:  # it fits whole on a page of its own
                page.cursor = f"t{turn.seq}.{start}"
                return page
            part = _part(text, left - (cost - count_tokens(text)))
            if part:
                _add(page, turn, part)
            page.cursor = f"t{turn.seq}.{start + len(part)}"
            return page
        _add(page, turn, text)
        left -= cost
    return page


def _add(page: TurnPage, turn: Turn, text: str) -> None:
    page.turns.append(turn)
    page.texts[turn.seq] = text


def _part(text: str, tokens: int) -> str:
    """The beginning of `text` that fits, ending at a sentence where there is one; verbatim, without an ellipsis."""
    if tokens <= 0:
        return ""
    shortened, was_cut = cut(text, tokens)
    part = shortened.removesuffix("…") if was_cut else shortened
    return part if text.startswith(part) and part else text[: max(1, tokens)]
