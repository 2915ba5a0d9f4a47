"""Properties of capturing a conversation and of its buffer: everything once, in order, and nothing of its own."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from middleout_mcp.budget import count_tokens
from middleout_mcp.conversation.buffer import LINES, select
from middleout_mcp.conversation.capture import TurnDraft, align, events, link_turns, spoken, stretch_key
from middleout_mcp.records import Episode, Turn
from middleout_mcp.words import episode_line, is_substantive

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TEXTS = st.sampled_from(
    ["Hi!", "ok", "thanks", "Ann moved to Oslo.", "Is tea hot?", "数据库在周五之前迁移完成", "test"]
)
DRAFTS = st.builds(
    TurnDraft,
    role=st.sampled_from(["user", "assistant"]),
    text=TEXTS | st.text(min_size=1, max_size=400),
    at=st.none() | st.integers(0, 3).map(lambda minutes: NOW + timedelta(minutes=minutes)),
    name=st.sampled_from([None, "Ann"]),
)


def stored(drafts: list[TurnDraft]) -> list[Turn]:
    """The drafts as a thread keeps them."""
    return [
        Turn(thread="t", seq=seq, role=d.role, text=d.text, at=d.at or NOW, at_given=d.at is not None, name=d.name)
        for seq, d in enumerate(drafts, 1)
    ]


@given(st.lists(DRAFTS, max_size=12))
def test_every_substantive_turn_becomes_one_event_in_order_and_no_other_does(drafts: list[TurnDraft]) -> None:
    made = events(drafts)
    assert [event.index for event in made] == [i for i, draft in enumerate(drafts) if is_substantive(draft.text)]
    assert [event.text for event in made] == [spoken(drafts[event.index]) for event in made]
    assert events(drafts) == made


@given(st.lists(DRAFTS, max_size=8), st.lists(DRAFTS, max_size=8), st.integers(0, 8))
def test_turns_sent_again_are_recognised_and_the_new_ones_follow_in_order(
    before: list[TurnDraft], new: list[TurnDraft], overlap: int
) -> None:
    incoming = before[max(0, len(before) - overlap) :] + new
    known = align(stored(before), incoming)
    assert len(known) == len(incoming)
    numbers = [seq for seq in known if seq is not None]
    assert numbers == sorted(set(numbers))
    assert all((before[seq - 1].role, before[seq - 1].text) == (incoming[i].role, incoming[i].text)
               for i, seq in enumerate(known) if seq is not None)  # fmt: skip
    kept = before + [draft for draft, seq in zip(incoming, known, strict=True) if seq is None]
    assert None not in align(stored(kept), kept)  # a whole conversation sent again adds nothing
    assert stretch_key(incoming) == stretch_key(list(incoming))


@given(TEXTS | st.text(max_size=80), st.lists(TEXTS, min_size=1, max_size=12))
def test_a_memory_is_linked_to_turns_that_exist_once_each_and_never_to_none(text: str, turns: list[str]) -> None:
    linked = link_turns(text, turns)
    assert linked
    assert linked == sorted(set(linked))
    assert set(linked) <= set(range(len(turns)))


@given(st.lists(st.tuples(st.sampled_from(["Ann", "user", "  "]), st.text(max_size=600) | TEXTS), max_size=10))
def test_the_line_of_any_stretch_is_one_line_within_its_limits_and_the_same_each_time(turns: list) -> None:
    line = episode_line(turns)
    assert len(line.splitlines()) <= 1
    assert len(line.split()) <= 24
    assert count_tokens(line) <= 40
    assert episode_line(turns) == line


@given(st.lists(st.sampled_from(["a line", ""]), max_size=40), st.integers(1, 90))
def test_the_buffer_shows_or_counts_every_stretch_out_of_view_once_and_in_order(lines: list[str], first: int) -> None:
    episodes = [
        Episode(id=f"e_{n}", namespace="ours", thread="t", key=str(n), start=NOW, end=NOW, line=line,
                first_seq=2 * n + 1, last_seq=2 * n + 2, tokens=9, agent="ann", session=None, created_at=NOW)
        for n, line in enumerate(lines)
    ]  # fmt: skip
    shown = select(episodes, first)
    told = [episode for each in shown for episode in (*each.gap, each.episode)]
    assert told == [episode for episode in episodes if episode.line and episode.first_seq < first]
    assert len(shown) <= LINES
    assert not told or shown[0].episode == told[0]
    assert len(shown) == LINES or not any(each.gap for each in shown)
