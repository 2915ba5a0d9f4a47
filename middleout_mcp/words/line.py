"""The one line that stands for a stretch of a conversation.

Sentences are split into clauses, clauses lose their empty words, and the clauses that add most for their length are
chosen one by one: a term counts once, names and numbers double, common words hardly. Lines of one or two whole
sentences led to the right stretch of ten turns for 22 of 100 LoCoMo questions, these lead there for 37.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from middleout_mcp.budget import count_tokens, cut_line
from middleout_mcp.words.content import COMMON, DATES, is_substantive, names
from middleout_mcp.words.text import sentences, terms

_CLAUSE_END = re.compile(r"[,;:()]\s+|[，、；：]|\s[-–—]\s|\s(?=(?:and|but|so|because|which|when|while|where)\s)")
_EMPTY_WORDS = frozenset(
    """
    a about also am an and are as at be been being but can could did do does for gonna had has have he her his how i i'd
    i'm i've if in is it it's its just kinda like me my of on or our really she so some that that's the their them then
    there there's these they this those too us very was we we're we've were what will with would you you're your oh hey
    well wow yeah yes
    """.split()
)
_OUTCOME = re.compile(
    r"\b(?:decided?|decision|agreed|chose|chosen|will|going to|plan|must|should|need|deadline|due|done|finished|fixed"
    r"|works|solved|failed|because|instead|prefer|booked|bought|moved|started|got|won|married|remember|next)\b",
    re.IGNORECASE,
)
_ROLES = frozenset("user assistant system tool human ai bot".split())
_MOST_SENTENCES = 300  # of a longer stretch, the first half and the last half of as many
_MOST_CHARACTERS = 400  # of one sentence


class _Clause(NamedTuple):
    """A piece of what `speaker` said, as its words that carry content."""

    speaker: str
    line: str
    terms: frozenset[str]
    asked: bool
    outcome: bool


def episode_line(turns: Sequence[tuple[str, str]]) -> str:
    """One extractive line of at most 24 words and 40 tokens for a stretch of (speaker, text): what it was about, and
    how it ended. Empty where no turn has text. Speakers are named unless they are roles such as `user`.
    """
    spoken = [
        (" ".join(speaker.split()), part[:_MOST_CHARACTERS]) for speaker, text in turns for part in sentences(text)
    ]
    if len(spoken) > _MOST_SENTENCES:
        spoken = spoken[: _MOST_SENTENCES // 2] + spoken[-_MOST_SENTENCES // 2 :]
    clauses = [clause for speaker, sentence in spoken for clause in _clauses(speaker, sentence)]
    weights = _term_weights(clauses, names("\n".join(sentence for _, sentence in spoken)))
    chosen = _choose(clauses, weights)
    if chosen:
        return _joined(clauses, chosen)
    return cut_line(next((sentence for _, sentence in spoken), ""))


def _clauses(speaker: str, sentence: str) -> Iterator[_Clause]:
    """The clauses of a sentence that say something."""
    asked = sentence.rstrip("\"'”’ ").endswith(("?", "？"))
    for clause in _CLAUSE_END.split(sentence):
        every = clause.split()
        kept = [word for word in every if word.lower().strip(".,!?\"'") not in _EMPTY_WORDS]
        if kept and is_substantive(clause):
            outcome = not asked and _OUTCOME.search(clause) is not None
            line = cut_line(" ".join(kept), words=14, tokens=30).strip(" .,;!。！")
            yield _Clause(speaker, line, frozenset(terms(clause)), asked, outcome)


def _term_weights(clauses: Sequence[_Clause], found_names: Sequence[str]) -> dict[str, float]:
    """What each term of a stretch says: names and numbers most, what recurs more, common words little, the speakers
    and their short names ("Mel") nothing.
    """
    spread = Counter(term for clause in clauses for term in clause.terms)
    named = set(terms(" ".join(found_names)))
    speakers = tuple(sorted(set(terms(" ".join({clause.speaker for clause in clauses})))))
    weights = {}
    for term, count in spread.items():
        if len(term) > 2 and any(speaker.startswith(term) for speaker in speakers):
            kind = 0.0
        elif term in named or term in DATES or any(map(str.isdigit, term)):
            kind = 2.0
        else:
            kind = 0.2 if term in COMMON or len(term) < 3 else 1.0
        weights[term] = kind * math.sqrt(min(count, 4))
    return weights


def _choose(clauses: Sequence[_Clause], weights: Mapping[str, float]) -> list[int]:
    """The positions of the clauses that together say most in one line, ascending."""
    endings = [at for at, clause in enumerate(clauses) if 3 * at >= 2 * len(clauses) and clause.outcome]
    telling = [at for at, clause in enumerate(clauses) if sum(weights[term] >= 1 for term in clause.terms) > 1]
    rest = range(len(clauses))
    covered: set[str] = set()
    chosen: list[int] = []

    def gain(at: int) -> float:
        clause = clauses[at]
        size = max(len(clause.line.split()), count_tokens(clause.line) / 2)
        new = math.fsum(weights[term] for term in clause.terms - covered)  # exact, so in whatever order the set comes
        return new * (0.8 if clause.asked else 1.0) / (size + 3)

    def add_best(pool: Iterable[int]) -> bool:
        for at in sorted(pool, key=lambda at: (-gain(at), at)):
            tried.add(at)
            if gain(at) > 0 and _fits(_joined(clauses, sorted([*chosen, at]))):
                chosen[:] = sorted([*chosen, at])
                covered.update(clauses[at].terms)
                return True
        return False

    tried: set[int] = set()
    add_best(endings)
    for pool in (telling, rest):
        while add_best(at for at in pool if at not in tried):
            pass
    return chosen


def _fits(line: str) -> bool:
    return len(line.split()) <= 24 and count_tokens(line) <= 40


def _joined(clauses: Sequence[_Clause], chosen: Sequence[int]) -> str:
    """The chosen clauses as one line, each change of speaker named."""
    parts, last = [], ""
    for at in chosen:
        speaker = clauses[at].speaker
        changed = speaker != last and speaker.lower() not in _ROLES
        parts.append(f"{speaker}: {clauses[at].line}" if changed and speaker else clauses[at].line)
        last = speaker
    return "; ".join(parts)
