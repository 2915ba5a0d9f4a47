"""Which sentences are kept: the same ones each time, within the budget, and what was said twice only once."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from middleout_mcp.budget import count_tokens
from middleout_mcp.compression.sentences import choose
from middleout_mcp.words import sentences
from tests.compression.talk import conversations, odd_texts

TALKS = conversations()


@settings(max_examples=300, deadline=None)
@given(st.lists(odd_texts, max_size=8), st.integers(0, 200))
def test_the_choice_is_the_same_each_time_and_within_the_budget(texts: list[str], budget: int) -> None:
    chosen = choose(texts, budget)
    assert choose(list(texts), budget) == chosen
    assert [(each.source, each.place) for each in chosen] == sorted({(each.source, each.place) for each in chosen})
    for each in chosen:
        assert sentences(texts[each.source])[each.place] == each.text
    assert len(chosen) <= 1 or sum(count_tokens(each.text) + 2 for each in chosen) <= budget


@pytest.mark.parametrize("talk", range(0, len(TALKS), max(1, len(TALKS) // 8)))
def test_of_a_real_conversation_a_fifth_is_chosen_in_the_order_of_time(talk: int) -> None:
    texts = [text for _, text in TALKS[talk]]
    budget = sum(map(count_tokens, texts)) // 5
    chosen = choose(texts, budget)
    spent = sum(count_tokens(each.text) + 2 for each in chosen)
    assert spent <= max(budget, count_tokens(chosen[0].text) + 2)
    assert len({each.text for each in chosen}) == len(chosen)


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 12), st.randoms(use_true_random=False))
def test_what_ten_texts_say_is_told_once_in_whatever_order_they_come(copies: int, dice: random.Random) -> None:
    same = "Ruth sold the larch boat to Kessler for 900 euros."
    other = "Bob moved to Gdańsk with two cats and a harp."
    texts = [same] * copies + [other]
    dice.shuffle(texts)
    assert sorted(each.text for each in choose(texts, 1000)) == sorted([same, other])


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_texts_does_not_change_what_is_told(dice: random.Random) -> None:
    texts = [text for _, text in TALKS[0]][:12]
    told = sorted(each.text for each in choose(texts, 60))
    mixed = list(texts)
    dice.shuffle(mixed)
    assert sorted(each.text for each in choose(mixed, 60)) == told


def test_greetings_are_never_chosen_and_of_nothing_nothing() -> None:
    assert choose([], 100) == []
    assert choose(["Hi!", "Thanks, bye!", "🙂", ""], 100) == []
    assert [each.text for each in choose(["Hi! Ruth sold the boat. Bye!"], 0)] == ["Ruth sold the boat."]
