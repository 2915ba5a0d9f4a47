"""From candidates to a ranking (pure): fuse vector and text scores, boost, fold, and cut at the relevance floor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from middleout_mcp.records import Hit, Kind, Memory
from middleout_mcp.words import fold, terms


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each signal counts. Score fusion beat rank fusion when measured (DESIGN §6)."""

    vector: float = 0.5
    text: float = 0.5
    retention: float = 0.05
    """Greatest share by which age, use and importance may move a score: gentle enough to never hide an exact match."""
    demoted: float = 0.5
    floor_cosine: float = 0.33
    """A hit at least this near is relevant on its own."""
    floor_coverage: float = 0.5
    """So is one that contains this share of the query's terms."""
    floor_both: tuple[float, float] = (0.2, 0.3)
    """And one that is somewhat near and shares some terms."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One memory with its score in [0, 1], best first; `relevant` is False below the floor."""

    memory: Memory
    score: float
    relevant: bool


def rank(
    query: str,
    vector_hits: Sequence[Hit],
    text_hits: Sequence[Hit],
    memories: Mapping[str, Memory],
    now: datetime,
    weights: Weights = Weights(),
) -> list[Ranked]:
    """Rank the candidates that are in `memories`. Deterministic: equal scores are ordered by time, then id."""
    cosine = {hit.memory_id: max(0.0, hit.score) for hit in vector_hits}
    text = _scaled(text_hits)
    wanted = set(terms(query))
    ranked = []
    for memory_id in cosine.keys() | text.keys():
        memory = memories.get(memory_id)
        if memory is None:
            continue
        near, said = cosine.get(memory_id, 0.0), text.get(memory_id, 0.0)
        score = (weights.vector * near + weights.text * said) if cosine else said
        score *= 1 + weights.retention * (_retention(memory, now) - 1)
        if memory.demoted:
            score *= weights.demoted
        relevant = _relevant(near, wanted, memory, weights)
        ranked.append(Ranked(memory, round(min(score, 1.0), 6), relevant))
    ranked.sort(key=lambda hit: (-hit.score, -hit.memory.at.timestamp(), hit.memory.id))
    return _fold(ranked)


def _scaled(hits: Sequence[Hit]) -> dict[str, float]:
    best = max((hit.score for hit in hits), default=0.0)
    return {hit.memory_id: hit.score / best if best > 0 else 0.0 for hit in hits}


def _retention(memory: Memory, now: datetime) -> float:
    """A rough keep score in [0, 1]: importance, confidence and recency with a half-life of 30 days (DESIGN §9)."""
    age_days = max(0.0, (now - memory.updated_at).total_seconds() / 86_400)
    return 0.5 * memory.importance + 0.25 * memory.confidence + 0.25 * 2 ** (-age_days / 30)


def _coverage(wanted: set[str], memory: Memory) -> float:
    """The share of the query's terms that the memory contains, word endings aside."""
    if not wanted:
        return 0.0
    said = " ".join((memory.text, *memory.tags, memory.key or "", memory.value or "", memory.scope or ""))
    stems = {_stem(term) for term in terms(said)}
    return sum(_stem(term) in stems for term in wanted) / len(wanted)


def _stem(term: str) -> str:
    """A crude common beginning, enough to see `painting` in `painted`; short words stay whole."""
    return term if len(term) <= 4 else term[: max(4, len(term) - 3)]


def _relevant(cosine: float, wanted: set[str], memory: Memory, weights: Weights) -> bool:
    """Whether a hit is above the floor; its words are only looked at where its vector does not settle it."""
    if cosine >= weights.floor_cosine:
        return True
    near, shared = weights.floor_both
    return _coverage(wanted, memory) >= (shared if cosine >= near else weights.floor_coverage)


def _fold(ranked: list[Ranked]) -> list[Ranked]:
    """Show identical texts once, and no memory beside the summary that stands for it."""
    summaries = {hit.memory.id for hit in ranked if hit.memory.kind is Kind.SUMMARY and hit.relevant}
    seen: set[str] = set()
    kept = []
    for hit in ranked:
        text = fold(hit.memory.text)
        if text in seen or hit.memory.summary_id in summaries:
            continue
        seen.add(text)
        kept.append(hit)
    return kept
