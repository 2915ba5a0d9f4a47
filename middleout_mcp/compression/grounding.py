"""Whether a derived text says only what its sources say, and all of it that binds (pure; DESIGN §7).

Two checks for every derived text. *Invention*: a number, date, name or quotation that no source has is refused.
*Omission*: a decision, constraint, warning, deadline, condition, open task or doubt of the sources that the text left
out is put back, as the sentence it was said in. The cues of the second are English; a sentence in another language
binds by nothing but what the writer chose.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from middleout_mcp.words import fold, is_substantive, names, numbers, sentences, terms
from middleout_mcp.words.text import without_cjk

COVERED = 0.7
"""Share of a binding sentence's terms that a text must hold for the sentence to count as told."""

_QUOTED = re.compile(r"[“«„]([^”»“]{3,300})[”»“]|\"([^\"\n]{3,300})\"|[「『]([^」』]{3,300})[」』]")
_ID = re.compile(r"\b[a-z]{1,3}_[0-9a-z]{8,12}\b")
_BINDS = re.compile(
    r"\b(?:decided?|decision|agreed (?:to|on|that)|settled on|we chose|deadline|due (?:on|by|date)|no later than"
    r"|expires?|warning|careful|caution|do not|don't ever|never|must(?! have)|allerg(?:y|ic)|dangerous|required"
    r"|only (?:if|when)|unless|at most|at least|not allowed|forbidden|goal is|objective|to-?do|follow up|remember to"
    r"|don't forget|still needs? to"
    r"|open question|not sure (?:if|whether|about|that)|uncertain|unclear|unconfirmed)\b",
    re.IGNORECASE,
)
_MONTHS = (
    "january february march april may june july august september october november december".split(),
    "jan feb mar apr may jun jul aug sep oct nov dec".split(),
)
_DAYS = ("monday tuesday wednesday thursday friday saturday sunday".split(), "mon tue wed thu fri sat sun".split())


@dataclass(frozen=True, slots=True)
class Source:
    """A text that a derived text may use, and the time it is about."""

    text: str
    at: datetime


def inventions(text: str, sources: Sequence[Source]) -> list[str]:
    """Numbers, dates, names, quotations and ids of `text` that no source has, as they are written there."""
    known = fold("\n".join(source.text for source in sources))
    words = {*re.findall(r"\w+", known), *re.findall(r"[^\W\d_]\w*", without_cjk(known))}  # as names are found in them
    figures = {_figure(number) for source in sources for number in numbers(source.text)} | _dates(sources)
    figures |= set(re.findall(r"\d+(?:[.,]\d+)*", known))
    found = [number for number in numbers(text) if not _known_figure(number, figures, words)]
    found += [name for name in names(text) if not set(re.findall(r"\w+", fold(name))) - {"s"} <= words]
    quoted = (match[1] or match[2] or match[3] for match in _QUOTED.finditer(text))
    found += [quotation for quotation in quoted if not _said(quotation, known)]
    found += [reference for reference in _ID.findall(text) if reference not in known]
    return list(dict.fromkeys(found))


def _said(quotation: str, known: str) -> bool:
    """Whether the sources say it in these words: in one go, or sentence by sentence."""
    plain = (fold(part).strip(" .,;:!?…") for part in (quotation, *sentences(quotation)))
    whole, *parts = (part in known for part in plain)
    return whole or (len(parts) > 1 and all(parts))


def _figure(number: str) -> str:
    """A number or date for comparing: without currency, thousands separators, ordinal ends and the like."""
    plain = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b|\bof\b|[$€£¥₹%+]", " ", number.lower())
    plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", plain)
    return " ".join(re.sub(r"[.,](?!\d)", " ", plain).split())


def _known_figure(number: str, figures: set[str], words: set[str]) -> bool:
    figure = _figure(number)
    if figure in figures or figure in words:
        return True
    parts = figure.split()
    return len(parts) > 1 and all(part in figures or part in words for part in parts)


def _dates(sources: Sequence[Source]) -> set[str]:
    """Every way in which the days that the sources are about may be written."""
    found: set[str] = set()
    for day in {source.at.date() for source in sources}:
        for months, weekdays in zip(_MONTHS, _DAYS, strict=True):
            month = months[day.month - 1]
            found |= {f"{day.day} {month}", f"{month} {day.day}", f"{month} {day.year}", weekdays[day.weekday()]}
            found |= {f"{day.day} {month} {day.year}", f"{month} {day.day} {day.year}", month}
        found |= {day.isoformat(), str(day.year), f"{day.year}-{day.month:02}"}
    return found


def omissions(text: str, sources: Iterable[Source]) -> list[str]:
    """Sentences of the sources that bind whoever reads on and that `text` does not tell, in order, each once."""
    told = set(terms(text))
    left: dict[str, str] = {}
    for source in sources:
        for sentence in sentences(source.text):
            wanted = set(terms(sentence))
            if not wanted or not binding(sentence) or len(wanted & told) >= COVERED * len(wanted):
                continue
            left.setdefault(fold(sentence), sentence)
            told |= wanted
    return list(left.values())


def binding(sentence: str) -> bool:
    """Whether a sentence states a goal, decision, constraint, warning, deadline, open task or doubt."""
    question = sentence.rstrip("\"'”’)").endswith(("?", "？"))
    return not question and _BINDS.search(sentence) is not None and is_substantive(sentence)
