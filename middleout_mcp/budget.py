"""Token counts, and where a text may be cut so that it fits.

A token is four UTF-8 bytes, or one CJK character. Cuts fall at the end of a sentence, else at a word, else between two
graphemes, and end in "…". `sentence_ends` is the one place that knows where sentences end; `words.sentences` splits by
it too, so that a cut and a split agree. Nothing here loops over single characters: patterns consume what they match,
and never look ahead over a run, so that every function takes linear time on any text.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache

_CJK = (
    "\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff"
)
"""Han, kana, Hangul, their punctuation and full-width forms: the inside of a character class."""

ELLIPSIS = "…"
MINIMUM_TOKENS = 24  # below this a cut memory says too little to be worth its header line

_STOP = re.compile(r"[.!?…]+[\"'”’»)\]*_`]*|[。！？｡]+[」』”’）)]*|\n\s*")
_WORD_BEFORE = re.compile(r"[^\W\d_](?:\.?[^\W\d_])*\Z|\d+\Z")
_BLOCK_START = re.compile(r"[-*•–—+#>|`~\d(\[{<]|\S+:")
_WRAP = 60  # a line at least this long whose next line starts in lower case is a wrapped sentence
_NEVER_LAST = frozenset(
    "mr mrs ms dr prof st mt gen rep sen rev hon capt lt col sgt vs e.g i.e eg ie cf fig figs vol approx viz resp al "
    "dept est bzw z.b d.h u.a ca nr bspw sra srta".split()
)
_LAST_BEFORE_CAPITAL = frozenset("etc a.m p.m am pm inc ltd co corp jr sr ph.d usw".split())
_NOT_LAST_BEFORE_NUMBER = frozenset(
    "no pp p ed jan feb mar apr jun jul aug sep sept oct nov dec min max sec tel bd jg".split()
)


@cache
def _cjk_run() -> re.Pattern[str]:
    """A run of CJK characters; compiled late, because so large a class takes a millisecond."""
    return re.compile(f"[{_CJK}]+")


def count_tokens(text: str) -> int:
    """CJK characters plus a quarter of the UTF-8 bytes of all others, rounded up (DESIGN §2). 0 for empty text."""
    if text.isascii():
        return (len(text) + 3) // 4
    rest = _cjk_run().sub("", text)
    return len(text) - len(rest) + (len(rest.encode("utf-8", "surrogatepass")) + 3) // 4


def sentence_ends(text: str) -> Iterator[int]:
    """The offsets at which sentences end, ascending, closing quotes included; the end of the text is not among them.

    Abbreviations, initials, decimals, addresses and ellipses do not end a sentence; a line break does, unless it wraps
    a long line that goes on in lower case.
    """
    line = last = 0
    for match in _STOP.finditer(text):
        start, end = match.span()
        if text[start] == "\n":
            if start > last and (match.group().count("\n") > 1 or not _wraps(text, line, start, end)):
                yield start
            line = last = end
        elif end < len(text) and (text[start] in "。！？｡" or _stops(text, start, end)):
            yield end
            last = end


def _wraps(text: str, line: int, start: int, end: int) -> bool:
    """Whether the line break at `start` is a wrapped line of prose."""
    if start - line < _WRAP or text[start - 1] in ".!?:;…。！？":
        return False
    return text[end : end + 1].islower() and not _BLOCK_START.match(text, end, end + 40)


def _stops(text: str, start: int, end: int) -> bool:
    """Whether the run of stops at `start` to `end` ends a sentence."""
    if not text[end].isspace():
        return False
    mark = text[start:end].rstrip("\"'”’»)]*_`")
    following = text[end + 1 : end + 8].lstrip(" \t\"'“‘«([*_`-")[:1]
    if mark == "…" or mark.startswith(".."):
        return not following.islower()
    if mark != ".":
        return True
    found = _WORD_BEFORE.search(text, max(0, start - 12), start)
    word = found.group().lower() if found else ""
    if word in _NEVER_LAST or (len(word) == 1 and word.isalpha() and word != "i" and text[start - 1].isupper()):
        return False
    if word in _LAST_BEFORE_CAPITAL:
        return following.isupper()
    if word in _NOT_LAST_BEFORE_NUMBER:
        return not following.isdigit()
    if word.isdigit() and len(word) < 3:  # "1. Buy milk": the number of a list item
        before = text[max(0, start - len(word) - 4) : start - len(word)].rstrip(" \t")
        begins = text[start - len(word) - 1 : start - len(word)].isspace() or start == len(word)
        return not begins or (bool(before) and before[-1] not in "\n.!?:;")
    return "." not in word


def cut(text: str, tokens: int) -> tuple[str, bool]:
    """`text` in at most `tokens` tokens, and whether it was cut.

    A cut text ends with "…", which is counted; with fewer than one token nothing is left.
    """
    if count_tokens(text) <= tokens:
        return text, False
    if tokens < 1:
        return "", True
    limit = _longest_prefix(text, tokens - 1)
    at = _sentence_cut(text, limit)
    if at:
        return f"{text[:at].rstrip()} {ELLIPSIS}", True
    return text[: _word_cut(text, limit)].rstrip() + ELLIPSIS, True


def _longest_prefix(text: str, tokens: int) -> int:
    """How many characters of `text` fit in `tokens` tokens."""
    low, high = 0, min(len(text), 4 * tokens)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(text[:middle]) <= tokens:
            low = middle
        else:
            high = middle - 1
    return low


def _sentence_cut(text: str, limit: int) -> int:
    """The last sentence end in the second half of the first `limit` characters, else 0."""
    best = 0
    for end in sentence_ends(text[: limit + 8]):
        if end > limit:
            break
        best = end
    return best if best * 2 >= limit else 0


def _word_cut(text: str, limit: int) -> int:
    """The end of the last word in the second half of the first `limit` characters, else the end of a grapheme."""
    window = text[: limit + 1]
    space = len(window.rstrip()) if window[-1:].isspace() else max(window.rfind(gap) for gap in " \n\t")
    if space * 2 >= limit:
        return space
    while 0 < limit < len(text) and (_CLINGS.match(text, limit) or text[limit - 1] == "\u200d"):
        limit -= 1
    return limit


_CLINGS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u064b-\u065f\u0900-\u0903\u093a-\u094f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u200c\u200d\u20d0-\u20ff\u3099\u309a\ufe00-\ufe0f\ufe20-\ufe2f"
    "\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
)


def cut_line(text: str, *, words: int = 24, tokens: int = 40) -> str:
    """`text` as one line of at most `words` words and `tokens` tokens, ending with "…" where it was cut."""
    every = text.split(None, words)
    line = " ".join(every[:words])
    if len(every) > words:
        line += ELLIPSIS
    if count_tokens(line) <= tokens:
        return line
    return line[: _word_cut(line, _longest_prefix(line, tokens - 1))].rstrip() + ELLIPSIS if tokens > 0 else ""


def pack(costs: Sequence[int], budget: int, *, minimum: int = MINIMUM_TOKENS) -> list[int]:
    """How many tokens each item of a list ranked best first gets of `budget`: at most its cost, 0 = left out.

    The longest head of the list is kept in which each item can have its cost or `minimum`, whichever is less. It shares
    the budget by weighted max-min fairness, the weights falling evenly from 2 for the best item to 1 for the last:
    whatever an item does not need goes to the others, so that short items are whole and only long ones are cut.
    """
    needs = [max(0, cost) for cost in costs]
    kept, floor = 0, 0
    while kept < len(needs) and floor + min(needs[kept], minimum) <= budget:
        floor += min(needs[kept], minimum)
        kept += 1
    given = [min(need, minimum) for need in needs[:kept]]
    weights = [2 * max(1, kept - 1) - rank for rank in range(kept)]
    left, weight = budget - floor, sum(weights)
    for rank in sorted(range(kept), key=lambda rank: ((needs[rank] - given[rank]) / weights[rank], rank)):
        missing = needs[rank] - given[rank]
        if missing * weight > left * weights[rank]:
            break  # this one and all that follow in this order are cut
        given[rank] += missing
        left -= missing
        weight -= weights[rank]
    cut_ranks = [rank for rank in range(kept) if given[rank] < needs[rank]]
    for rank in cut_ranks:
        given[rank] += left * weights[rank] // weight
    for rank in cut_ranks[: budget - sum(given)]:  # what rounding left over, best first
        given[rank] += 1
    return given + [0] * (len(needs) - kept)
