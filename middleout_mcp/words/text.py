"""How a text falls apart: folded form, sentences, CJK bigrams, search terms."""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from middleout_mcp.budget import sentence_ends

_CJK = (
    "\u1100-\u11ff\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u3096\u3099-\u309f"
    "\u30a1-\u30fa\u30fc-\u30ff\u3105-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c"
    "\uac00-\ud7a3\ud7b0-\ud7fb\uf900-\ufaff\uff66-\uff9f\uffa0-\uffdc\U00020000-\U0003ffff"
)


@cache
def _cjk_run() -> re.Pattern[str]:
    """A run of CJK letters; compiled late, because so large a class takes a millisecond."""
    return re.compile(f"([{_CJK}]+)")


def fold(text: str) -> str:
    """`text` for comparing: NFC, case folded, white space collapsed. Folding twice changes nothing."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())
    return " ".join(unicodedata.normalize("NFC", unicodedata.normalize("NFD", folded).casefold()).split())


_BULLET = re.compile(r"(?:[-*•–—+>#]+[ \t]+)+")
_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)[^`\n]*$", re.MULTILINE)


def sentences(text: str) -> list[str]:
    """The sentences of `text` in order, as they stand there but without bullet marks; inside code fences, its lines."""
    found: list[str] = []
    for index, block in enumerate(_FENCE.split(text)):
        found += block.split("\n") if index % 2 else _prose(block)
    return [stripped for sentence in found if (stripped := _unbulleted(sentence.strip()))]


def _prose(text: str) -> Iterator[str]:
    start = 0
    for end in sentence_ends(text):
        yield text[start:end]
        start = end
    yield text[start:]


def _unbulleted(sentence: str) -> str:
    bullet = _BULLET.match(sentence)
    return sentence[bullet.end() :] if bullet else sentence


def cjk_runs(text: str) -> list[str]:
    """The runs of Han, kana and Hangul characters, in order."""
    return [] if text.isascii() else _cjk_run().findall(text)


def without_cjk(text: str) -> str:
    """`text` with a bar in place of every run of Han, kana or Hangul characters."""
    return text if text.isascii() else _cjk_run().sub("|", text)


def cjk_bigrams(text: str) -> list[str]:
    """The overlapping pairs of every run of Han, kana or Hangul characters, in order; a single one yields itself."""
    pairs: list[str] = []
    for run in cjk_runs(text):
        pairs += [run] if len(run) == 1 else map("".join, pairwise(run))
    return pairs


STOP_WORDS = frozenset(
    """
    a about after again all also am an and any are as at be because been before being both but by can cannot could d did
    do does doing don down during each few for from further had has have having he her here hers herself him himself his
    how i if in into is it its itself just let ll m me more most my myself no nor not now of off on once only or other
    our ours ourselves out over own re s same she should so some such t than that the their theirs them themselves then
    there these they this those through to too under until up ve very was we were what when where which while who whom
    whose why will with would you your yours yourself yourselves
    ain't aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't mustn't shan't shouldn't wasn't weren't
    won't wouldn't
    """.split()
)
"""English words that search and comparison skip: they tell one text from another too seldom."""

_TOKEN = re.compile(r"\w+(?:[-.,'’/\\:@&+]+\w+)*")
_SEPARATOR = re.compile(r"[-.,'/\\:@&+_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
CONTRACTION = re.compile(r"['’](?:s|d|m|ll|re|ve)\Z")
_LONGEST_TERM = 64


def terms(text: str) -> list[str]:
    """Search terms in order, lower-cased, repeats included: words but stop words, numbers, CJK bigrams, and compounds
    (`get_user`, `v2.3.1`, `src/app.py`, `well-known`) first whole, then in parts.
    """
    found: list[str] = []
    pieces = [text] if text.isascii() else _cjk_run().split(unicodedata.normalize("NFC", text))
    for index, piece in enumerate(pieces):
        if index % 2:
            found += cjk_bigrams(piece)
        else:
            for token in _TOKEN.findall(piece):
                found += _word_terms(token.replace("’", "'").strip("_"))
    return found


def _word_terms(token: str) -> list[str]:
    """The terms of one run of letters, digits and inner punctuation."""
    lower = CONTRACTION.sub("", token.lower())
    if not lower or lower in STOP_WORDS:
        return []
    if lower.isalpha() and (token[1:].islower() or token.isupper()):
        return [lower]
    parts = [part.lower() for piece in _SEPARATOR.split(token) for part in _CAMEL.split(piece)]
    whole = [lower] if len(lower) <= _LONGEST_TERM else []
    if not re.search(r"[^\W\d_]", lower):  # "1,000" and "10:30" are found as they are, not by their parts
        return whole or [part for part in parts if part]
    return whole + [part for part in parts if part != lower and _is_term(part)]


def _is_term(part: str) -> bool:
    """Whether a part of a compound is worth a search of its own."""
    if part.isdigit():
        return 2 < len(part) <= _LONGEST_TERM
    return 1 < len(part) <= _LONGEST_TERM and part not in STOP_WORDS
