"""Tokens counted, texts cut where they may be, budgets shared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from middleout_mcp.budget import count_tokens, cut, cut_line, pack, sentence_ends

any_text = st.text(st.characters(codec=None, exclude_categories=()))
prose = st.lists(
    st.sampled_from(["Ada met Bob.", "Why?", "东京很大。", "e.g. this", "👩‍👩‍👧", "é", "\n", "word", "…"])
).map(" ".join)
texts = any_text | prose


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("é", 1),
        ("ééé", 2),
        ("东京", 2),
        ("東京へ行く", 5),
        ("서울", 2),
        ("你好 world", 4),
        ("，。", 2),
        ("𠀀", 1),
        ("👍", 1),
        ("\ud800", 1),
    ],
)
def test_a_token_is_four_bytes_or_one_cjk_character(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens


@given(any_text, any_text)
def test_tokens_of_a_whole_are_at_most_those_of_its_parts_and_at_most_one_less(one: str, other: str) -> None:
    together, apart = count_tokens(one + other), count_tokens(one) + count_tokens(other)
    assert apart - 1 <= together <= apart


@given(texts, st.integers(-1, 60))
def test_a_cut_text_fits_and_is_the_beginning_of_the_whole(text: str, tokens: int) -> None:
    kept, was_cut = cut(text, tokens)
    assert count_tokens(kept) <= max(0, tokens)
    assert was_cut == (count_tokens(text) > tokens)
    assert kept == text if not was_cut else text.startswith(kept.removesuffix("…").rstrip())
    assert kept.endswith("…") or not was_cut or tokens < 1


@given(texts, st.integers(1, 60))
def test_cutting_again_to_the_same_budget_changes_nothing(text: str, tokens: int) -> None:
    kept, _ = cut(text, tokens)
    assert cut(kept, tokens) == (kept, False)


@pytest.mark.parametrize(
    ("text", "tokens", "kept"),
    [
        ("Ada met Bob in Paris. Then they both went home.", 9, "Ada met Bob in Paris. …"),
        ("Ada met Dr. Smith in Paris on a sunny day.", 6, "Ada met Dr. Smith in…"),
        ("我去了东京。然后我回家了。", 9, "我去了东京。 …"),
        ("abcdefghijklmnopqrstuvwxyz", 3, "abcdefgh…"),
        ("first line\nsecond line\nthird line", 7, "first line\nsecond line …"),
        ("short", 0, ""),
    ],
)
def test_a_text_is_cut_at_a_sentence_else_at_a_word_else_at_a_character(text: str, tokens: int, kept: str) -> None:
    assert cut(text, tokens) == (kept, True)


@pytest.mark.parametrize("text", ["e\u0301" * 40, "👍🏽" * 40, "👩\u200d👩\u200d👧" * 20, "नि" * 40, "❤️" * 40])
def test_a_cut_does_not_part_a_mark_or_joiner_from_its_base(text: str) -> None:
    unit = min((text[:size] for size in range(1, 9) if text == text[:size] * (len(text) // size)), key=len)
    for tokens in range(1, 40):
        kept, _ = cut(text, tokens)
        assert len(kept.removesuffix("…")) % len(unit) == 0


@given(texts, st.integers(1, 30), st.integers(1, 50))
def test_a_line_is_one_line_within_both_limits(text: str, words: int, tokens: int) -> None:
    line = cut_line(text, words=words, tokens=tokens)
    assert len(line.split()) <= words
    assert count_tokens(line) <= tokens
    assert len(line.splitlines()) <= 1
    assert cut_line(line, words=words, tokens=tokens) == line


def test_a_short_text_stays_as_it_is_on_one_line() -> None:
    assert cut_line("  two\n lines\tand more ") == "two lines and more"
    assert cut_line("one two three", words=2) == "one two…"
    assert cut_line("我" * 100) == "我" * 39 + "…"


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("One. Two", [4]),
        ("No end", []),
        ("Dr. Smith paid $3.50 at 5 p.m. on Jan. 5.", []),
        ("It cost $3.50. He paid", [14]),
        ("At 5 p.m. He left.", [9]),
        ("J. R. R. Tolkien wrote.", []),
        ("He waited... then left. Gone", [23]),
        ('"Stop!" she said. Why?! Yes', [7, 17, 23]),
        ("See https://a.example/b.c?d=e. ok", [30]),
        ("1. Buy milk.\n2. Buy eggs.", [12]),
        ("好。真的？是", [2, 5]),
        ("a\n\nb\nc", [1, 4]),
    ],
)
def test_sentences_end_where_a_reader_would_stop(text: str, ends: list[int]) -> None:
    assert list(sentence_ends(text)) == ends


costs = st.lists(st.integers(0, 500), max_size=30)


@given(costs, st.integers(0, 5_000), st.integers(0, 100))
def test_shares_never_exceed_the_budget_or_the_cost(costs: list[int], budget: int, minimum: int) -> None:
    shares = pack(costs, budget, minimum=minimum)
    assert len(shares) == len(costs)
    assert sum(shares) <= budget
    assert all(0 <= share <= cost for share, cost in zip(shares, costs, strict=True))
    assert shares == costs if sum(costs) <= budget else True


@given(costs, st.integers(0, 5_000), st.integers(0, 100))
def test_what_is_kept_is_the_head_of_the_list_and_fills_the_budget(costs: list[int], budget: int, minimum: int) -> None:
    shares = pack(costs, budget, minimum=minimum)
    least = [min(cost, minimum) for cost in costs]
    kept = max(size for size in range(len(costs) + 1) if sum(least[:size]) <= budget)
    assert shares[kept:] == [0] * (len(costs) - kept)
    assert all(share >= low for share, low in zip(shares[:kept], least, strict=False))
    assert sum(shares) == min(budget, sum(costs[:kept]))


@given(st.integers(1, 30), st.integers(1, 5_000))
def test_of_equally_long_items_a_better_one_gets_no_less(count: int, budget: int) -> None:
    shares = pack([1_000] * count, budget, minimum=10)
    assert shares == sorted(shares, reverse=True)


def test_one_long_item_does_not_crowd_out_the_short_ones() -> None:
    assert pack([10, 5_000, 10], 100) == [10, 80, 10]
    assert pack([5_000, 60, 60, 60], 400) == [220, 60, 60, 60]
    assert pack([50_000, 300, 300], 900) == [392, 300, 208]


def test_nothing_is_shared_out_of_nothing() -> None:
    assert pack([], 100) == []
    assert pack([30, 40], 0) == [0, 0]
    assert pack([30, 40], -5) == [0, 0]
