"""Properties of ranking: the same candidates give the same order, whatever order they came in."""

import random
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from middleout_mcp.ranking.fusion import Ranked, Weights, rank
from middleout_mcp.records import Hit, Kind, Memory
from middleout_mcp.words import fold, terms

NOW = datetime(2026, 3, 1, tzinfo=UTC)
WORDS = ("heron", "lake", "tea", "Ann", "boat", "the", "reed")
QUERIES = st.sampled_from(["heron lake", "tea", "Ann boat reed", "the", "?!", "nothing of this"])
IDS = [f"m_{number}" for number in range(8)]


@st.composite
def memories(draw: st.DrawFn) -> dict[str, Memory]:
    """Some memories that easily have equal scores, texts and times; summaries and their members among them."""
    made = {}
    for memory_id in draw(st.lists(st.sampled_from(IDS), unique=True, max_size=len(IDS))):
        summary = draw(st.booleans())
        made[memory_id] = Memory(
            id=memory_id,
            namespace="ours",
            kind=Kind.SUMMARY if summary else Kind.FACT,
            text=" ".join(draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4))),
            at=NOW - timedelta(days=draw(st.integers(0, 2))),
            created_at=NOW,
            updated_at=NOW - timedelta(days=draw(st.sampled_from([0, 30, 3000]))),
            agent="ann",
            demoted=draw(st.booleans()),
            summary_id=None if summary else draw(st.sampled_from([None, *IDS[:2]])),
        )
    return made


def hits(*values: float) -> st.SearchStrategy[list[Hit]]:
    scores = st.sampled_from(values)
    return st.dictionaries(st.sampled_from([*IDS, "m_gone"]), scores).map(
        lambda found: [Hit(*p) for p in found.items()]
    )


CANDIDATES = (QUERIES, hits(-0.5, 0.0, 0.2, 0.33, 0.5, 1.0), hits(0.0, 0.1, 3.0, 12.0), memories())


def key(hit: Ranked) -> tuple[float, float, str]:
    return -hit.score, -hit.memory.at.timestamp(), hit.memory.id


@given(*CANDIDATES, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(
    query: str, near: list[Hit], said: list[Hit], known: dict[str, Memory], dice: random.Random
) -> None:
    ranked = rank(query, near, said, known, NOW)
    shuffled = list(known.items())
    for each in (near, said, shuffled):
        dice.shuffle(each)
    assert rank(query, near, said, dict(shuffled), NOW) == ranked


@given(*CANDIDATES)
def test_a_ranking_is_sorted_by_score_then_time_then_id_and_holds_known_candidates_once(
    query: str, near: list[Hit], said: list[Hit], known: dict[str, Memory]
) -> None:
    ranked = rank(query, near, said, known, NOW)
    assert ranked == sorted(ranked, key=key)
    assert all(0 <= hit.score <= 1 for hit in ranked)
    ids = [hit.memory.id for hit in ranked]
    texts = [fold(hit.memory.text) for hit in ranked]
    assert len(ids) == len(set(ids)) == len(set(texts))
    assert set(ids) <= known.keys() & {hit.memory_id for hit in (*near, *said)}


@given(*CANDIDATES)
def test_what_is_left_out_says_the_same_or_stands_in_a_summary_that_is_listed(
    query: str, near: list[Hit], said: list[Hit], known: dict[str, Memory]
) -> None:
    ranked = rank(query, near, said, known, NOW)
    texts = {fold(hit.memory.text) for hit in ranked}
    summaries = {hit.memory.id for hit in ranked if hit.memory.kind is Kind.SUMMARY and hit.relevant}
    for memory_id in {hit.memory_id for hit in (*near, *said)} & known.keys():
        left = known[memory_id]
        assert fold(left.text) in texts or left.summary_id in summaries


@given(*CANDIDATES)
def test_nothing_is_relevant_that_is_neither_near_nor_shares_a_term(
    query: str, near: list[Hit], said: list[Hit], known: dict[str, Memory]
) -> None:
    cosine = {hit.memory_id: hit.score for hit in near}
    for hit in rank(query, near, said, known, NOW):
        shares = bool(set(terms(query)) & set(terms(hit.memory.text)))
        if cosine.get(hit.memory.id, 0.0) >= Weights().floor_cosine:
            assert hit.relevant
        elif not shares:
            assert not hit.relevant
