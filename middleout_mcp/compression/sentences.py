"""Which sentences of many texts are worth keeping within a budget (pure; DESIGN §7).

One greedy choice over all texts, not a share for each: the sentence that says most that is new for its length comes
first. What a term is worth falls with the number of texts it occurs in; names and numbers count double; common words
hardly. So ten texts that say one thing yield one sentence, and ten that say ten things yield ten.
"""

import heapq
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from middleout_mcp.budget import count_tokens
from middleout_mcp.words import COMMON, is_substantive, names, numbers, sentences, terms

LEAST_GAIN = 1.5
"""A sentence that adds less than this is not worth its place: about one rare word that was not said yet."""

_COMMON_WORTH = 0.15
_PROPER_WORTH = 2.0
_QUESTION = 0.4  # a question keeps little of what was known
_FIRST_PERSON = 1.2
_DECISION = 1.5
_TIME = 1.15
_SAYS_I = re.compile(r"\b(?:I|I'm|I've|I'd|I'll|my|we|our|we're|we've)\b")
_SAYS_DECIDED = re.compile(
    r"\b(?:decided?|decision|agreed|chose|chosen|will|plan(?:s|ned)?|must|should|deadline|fixed|because|instead|prefers?"
    r"|failed|solved|works|never|always|root cause|turned out)\b",
    re.IGNORECASE,
)
_SAYS_WHEN = re.compile(
    r"\b(?:today|yesterday|tomorrow|tonight|last|next|ago|since|until|week|month|year|morning|evening|now|recently)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """One sentence: the index of its text, its place among the sentences of that text, and its words."""

    source: int
    place: int
    text: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    sentence: Chosen
    worth: Mapping[str, float]
    factor: float
    cost: int

    def gain(self, said: set[str]) -> float:
        """What the sentence adds to what is said."""
        return self.factor * sum(worth for term, worth in self.worth.items() if term not in said)


def choose(texts: Sequence[str], budget: int, *, overhead: int = 2) -> list[Chosen]:
    """The sentences to keep of these texts within `budget` tokens, in the order of the texts.

    Each sentence costs its tokens and `overhead`. Greetings and fillers are never chosen. The same texts give the same
    sentences. At least one sentence is returned where any text has one, whatever the budget.
    """
    candidates = _candidates(texts, overhead)
    said: set[str] = set()
    kept: list[Chosen] = []
    heap = [(-candidate.gain(said) / candidate.cost, index) for index, candidate in enumerate(candidates)]
    heapq.heapify(heap)
    left = budget
    while heap:
        _, index = heapq.heappop(heap)
        candidate = candidates[index]
        gain = candidate.gain(said)
        if kept and (gain < LEAST_GAIN or candidate.cost > left):
            continue
        rate = -gain / candidate.cost
        if heap and rate > heap[0][0]:  # gains only fall, so an entry that is still the best is the best
            heapq.heappush(heap, (rate, index))
            continue
        kept.append(candidate.sentence)
        left -= candidate.cost
        said |= candidate.worth.keys()
    return sorted(kept, key=lambda sentence: (sentence.source, sentence.place))


def _candidates(texts: Sequence[str], overhead: int) -> list[_Candidate]:
    split = [sentences(text) for text in texts]
    frequency = Counter(term for own in split for term in {term for sentence in own for term in terms(sentence)})
    candidates = []
    for source, own in enumerate(split):
        for place, sentence in enumerate(own):
            worth = _worth(sentence, frequency, len(texts))
            if worth and is_substantive(sentence):
                cost = count_tokens(sentence) + overhead
                chosen = Chosen(source, place, sentence)
                candidates.append(_Candidate(chosen, worth, _factor(sentence), cost))
    return candidates


def _worth(sentence: str, frequency: Mapping[str, int], texts: int) -> dict[str, float]:
    """What each term of a sentence is worth: the rarer among the texts, the more."""
    proper = {term for word in (*names(sentence), *numbers(sentence)) for term in terms(word)}
    worth = {}
    for term in dict.fromkeys(terms(sentence)):
        rarity = 1.0 + math.log(texts / frequency[term]) / math.log(texts + 1)
        plain = _COMMON_WORTH if term in COMMON else rarity
        worth[term] = _PROPER_WORTH * rarity if term in proper else plain
    return worth


def _factor(sentence: str) -> float:
    factor = _QUESTION if sentence.rstrip("\"'”’)").endswith(("?", "？")) else 1.0
    for pattern, weight in ((_SAYS_I, _FIRST_PERSON), (_SAYS_DECIDED, _DECISION), (_SAYS_WHEN, _TIME)):
        if pattern.search(sentence):
            factor *= weight
    return factor
