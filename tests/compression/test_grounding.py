"""A derived text says only what its sources say, and all of it that binds."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from middleout_mcp.compression.grounding import Source, binding, inventions, omissions
from middleout_mcp.memory.writers import extractive, size
from tests.compression.talk import NOON, conversations, memory, odd_texts

TALKS = conversations()
SOURCES = [
    Source("Ruth Amsel bought 1,200 panes on 3 May 2024 from Kessler & Sons for $5k. It rained.", NOON),
    Source("The glazier said “the old frame will not hold them” and charged 12.5% more on Monday.", NOON),
    Source("見積もりは「とても高い」と彼は言った。", NOON),
]


@settings(max_examples=500, deadline=None)
@given(st.lists(odd_texts, min_size=2, max_size=8))
def test_an_extractive_text_invents_no_name_number_or_id(texts: list[str]) -> None:
    members = [memory(number, text) for number, text in enumerate(texts)]
    draft = extractive(members)
    if draft is None:
        return
    assert {each.id for each in (*draft.members, *draft.empty)} == {each.id for each in members}
    sources = [Source(each.text, each.at) for each in draft.members]
    assert list(draft.invented) == inventions(draft.text, sources)
    quoted = [found for found in draft.invented if re.search(f'["“«„」』”»]{re.escape(found)}["“«„」』”»]', draft.text)]
    assert quoted == list(draft.invented)  # of marks in any order; such a summary is not stored
    assert extractive(members) == draft


@pytest.mark.parametrize("talk", range(len(TALKS)))
def test_a_summary_of_a_real_conversation_is_grounded_whole_and_smaller(talk: int) -> None:
    members = [memory(number, f"{speaker}: {text}") for number, (speaker, text) in enumerate(TALKS[talk])]
    draft = extractive(members)
    assert draft is not None
    assert draft.invented == ()
    sources = [Source(each.text, each.at) for each in draft.members]
    assert len(draft.text.encode()) < 0.6 * sum(map(size, draft.members))
    left = [sentence for sentence in omissions(draft.text, sources) if len(sentence) < 200]
    assert left == []


@pytest.mark.parametrize(
    "text",
    [
        "Ruth Amsel paid $5k for 1200 panes.",
        "On 3 May Ruth bought panes; on 2024-05-03 it rained."[:36],
        "May 3rd, 2024: panes from Kessler & Sons.",
        'He said "the old frame will not hold them".',
        "The old frame will not hold 1,200 panes, 12.5% more.",
        "On 1 March 2026, a Sunday, all was told.",
        "彼は「とても高い」と。",
        "it rained.",
    ],
)
def test_what_the_sources_say_in_another_form_is_no_invention(text: str) -> None:
    assert inventions(text, SOURCES) == []


@pytest.mark.parametrize(
    ("text", "invented"),
    [
        ("Ruth bought 1,300 panes.", ["1,300"]),
        ("Ruth bought panes on 4 May 2024.", ["4 May 2024"]),
        ("They came on Tuesday.", ["Tuesday"]),
        ("They cost €5k.", []),  # the figure is there, and how currencies are written varies
        ("They cost $6k and 13%.", ["$6k", "13%"]),
        ("Bought from Ludwig Stern.", ["Ludwig Stern"]),
        ("He said “the new frame is fine”.", ["the new frame is fine"]),
        ("彼は「とても安い」と。", ["とても安い"]),
        ("See m_0123456789 and op_abcdefghi.", ["m_0123456789", "op_abcdefghi"]),
        ("Version v2.3 of 10:45.", ["v2.3", "10:45"]),
    ],
)
def test_what_no_source_says_is_named(text: str, invented: list[str]) -> None:
    assert [found for found in inventions(text, SOURCES) if found in invented or not invented] == invented


@pytest.mark.parametrize(
    "sentence",
    [
        "We decided to paint the frame twice.",
        "The deadline is the 9th of June.",
        "Never open the left valve.",
        "Tom is allergic to sesame.",
        "The panes must be carried by two.",
        "Bob still needs to book the course.",
        "It is unclear whether the roof holds.",
        "Do not call before eight.",
        "Ruth may spend at most 900 euros.",
    ],
)
def test_a_sentence_that_binds_is_put_back_where_a_text_leaves_it_out(sentence: str) -> None:
    assert binding(sentence)
    source = [Source(f"It rained a lot. {sentence} Then we went home.", NOON)]
    assert omissions("It rained.", source) == [sentence]
    assert omissions(f"It rained. {sentence}", source) == []


@pytest.mark.parametrize("sentence", ["Have we decided?", "You must have been tired.", "It rained.", "ok"])
def test_what_binds_nobody_is_not_put_back(sentence: str) -> None:
    assert not binding(sentence)


@settings(max_examples=300, deadline=None)
@given(odd_texts, st.lists(odd_texts, max_size=5))
def test_grounding_never_fails_and_tells_the_same_each_time(text: str, sources: list[str]) -> None:
    given_sources = [Source(each, NOON) for each in sources]
    assert inventions(text, given_sources) == inventions(text, given_sources)
    left = omissions(text, given_sources)
    assert omissions("\n".join([text, *left]), given_sources) == []
    assert inventions("", given_sources) == []
