"""Who writes the text of a summary. So far the extractive writer, and the check that every other writer must pass."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from middleout_mcp.budget import count_tokens, cut
from middleout_mcp.compression.grounding import Source, inventions, omissions
from middleout_mcp.compression.sentences import choose
from middleout_mcp.errors import InvalidInput
from middleout_mcp.records import Memory
from middleout_mcp.words import is_substantive, terms

RATIO = 5
"""A summary takes a fifth of its sources' tokens at most, what grounding puts back aside (DESIGN §7: 5:1)."""

SHORTEST, LONGEST = 24, 600
"""Tokens that a summary may always take, and never more than; what grounding puts back comes on top."""

_SENTENCE_OVERHEAD = 4  # tokens of the date and the speaker before a sentence
_PUT_BACK = 60  # tokens of one sentence that is never cut; a longer one is cut at a word, its source opens
_SPEAKER = re.compile(r"([^\s:][^:\n]{0,39}):\s+(?=\S)")
_QUOTES = re.compile('["“”«»„]')
_QUOTE_INSIDE = re.compile(r"(?<=\w)" + _QUOTES.pattern + r"(?=\w)")
_NAMED = 5  # names of inventions that an error lists


@dataclass(frozen=True, slots=True)
class Draft:
    """The text of a summary, the members it speaks for, and those that have nothing a summary could tell."""

    text: str
    members: tuple[Memory, ...]
    empty: tuple[Memory, ...]
    invented: tuple[str, ...] = ()
    """What cutting made of the sources' words that none of them says, such as half of a number; nothing, as a rule."""


def size(memory: Memory) -> int:
    """Searchable bytes: text and tags."""
    return sum(len(part.encode("utf-8", "replace")) + 1 for part in (memory.text, *memory.tags)) - 1


def extractive(members: Sequence[Memory]) -> Draft | None:
    """A summary of the members' own sentences, with date and speaker; None where no member says anything.

    Deterministic; takes time in proportion to the text. A member without a word of content is left out and named.
    """
    tells = [_tells(memory.text) for memory in members]
    empty = tuple(memory for memory, told in zip(members, tells, strict=True) if not told)
    telling = tuple(memory for memory, told in zip(members, tells, strict=True) if told)
    if not telling:
        return None
    parts = [_split(memory) for memory in telling]
    budget = sum(count_tokens(memory.text) for memory in telling) // RATIO
    budget = max(SHORTEST, min(LONGEST, budget))
    chosen = choose([text for _, text in parts], budget, overhead=_SENTENCE_OVERHEAD)
    said = []
    for source in dict.fromkeys(sentence.source for sentence in chosen):
        own = " ".join(sentence.text for sentence in chosen if sentence.source == source)
        said.append((telling[source], parts[source][0], _unquoted(cut(own, max(budget, _PUT_BACK))[0])))
    text = completed(_joined(said), telling)
    return Draft(text, telling, empty, tuple(inventions(text, _sources(telling))))


def _tells(text: str) -> bool:
    return bool(terms(text)) and is_substantive(text)


def _split(memory: Memory) -> tuple[str, str]:
    """The speaker that a memory filed from a turn begins with, or "", and the rest."""
    match = _SPEAKER.match(memory.text) if memory.turns else None
    return (match[1], memory.text[match.end() :]) if match else ("", memory.text)


def _unquoted(text: str) -> str:
    """The text without its quotation marks where one of a pair was left out: with another one it would quote what
    nobody said.
    """
    return text if len(_QUOTES.findall(text)) % 2 == 0 else _QUOTES.sub("", _QUOTE_INSIDE.sub(" ", text))


def _joined(said: Sequence[tuple[Memory, str, str]]) -> str:
    """The sentences, each day and each change of speaker named once."""
    days = []
    for day, together in groupby(said, key=lambda entry: entry[0].at.date()):
        turns = []
        for speaker, own in groupby(together, key=lambda entry: entry[1]):
            text = " ".join(sentence for _, _, sentence in own)
            turns.append(f"{speaker}: {text}" if speaker else text)
        days.append(f"{day.isoformat()}: {' '.join(turns)}")
    return "\n".join(days)


def completed(text: str, members: Sequence[Memory]) -> str:
    """The text with the sentences of its sources that bind and that it left out, each cut at a word if very long."""
    left = [_unquoted(cut(sentence, _PUT_BACK)[0]) for sentence in omissions(text, _sources(members))]
    return f"{text}\nAlso: {' '.join(left)}" if left else text


def grounded(text: str, members: Sequence[Memory], what: str) -> str:
    """A text that someone else wrote, completed. Raises InvalidInput where it says what no member says."""
    invented = inventions(text, _sources(members))
    if invented:
        listed = ", ".join(repr(found[:40]) for found in invented[:_NAMED])
        raise InvalidInput(f"{what} says {listed}, which none of its sources says; take it out, or write what they say")
    return completed(text, members)


def _sources(members: Sequence[Memory]) -> list[Source]:
    return [Source(memory.text, memory.at) for memory in members]
