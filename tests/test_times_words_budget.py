"""The pure rules of layer 0: reading times, cutting to a budget, terms and lines. Each property holds for any text."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from middleout_mcp.budget import count_tokens, cut, cut_line, pack
from middleout_mcp.errors import InvalidInput
from middleout_mcp.records import Session
from middleout_mcp.times import parse_bound, parse_expiry, parse_time, session_over, to_iso, whole_ms
from middleout_mcp.words import cjk_bigrams, episode_line, fold, is_substantive, names, numbers, sentences, terms

NOW = datetime(2026, 5, 6, 12, 30, tzinfo=UTC)  # a Wednesday
FIRST, LAST = (datetime(year, 6, 1, tzinfo=UTC).replace(tzinfo=None) for year in (1, 9999))
BERLIN = ZoneInfo("Europe/Berlin")
ANY_TEXT = st.text(st.characters(), max_size=300)


@given(st.datetimes(min_value=FIRST, max_value=LAST, timezones=st.just(UTC)))
def test_a_time_written_out_is_read_back_to_the_millisecond(time: datetime) -> None:
    assert parse_time(to_iso(whole_ms(time)), NOW, UTC, what="at") == whole_ms(time)


@given(ANY_TEXT)
def test_any_text_is_a_time_or_refused_in_one_sentence(text: str) -> None:
    sentence = ""
    try:
        parse_time(text, NOW, UTC, what="at")
    except InvalidInput as error:
        sentence = str(error)
    assert "\n" not in sentence
    assert sentence.startswith("at") or not sentence


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2026-05-01", UTC, "2026-05-01T00:00:00Z"),
        ("2026-05-01", BERLIN, "2026-04-30T22:00:00Z"),
        ("2026-05-01T09:30", BERLIN, "2026-05-01T07:30:00Z"),
        ("2026-05-01T09:30:00+05:30", BERLIN, "2026-05-01T04:00:00Z"),
        ("yesterday", BERLIN, "2026-05-04T22:00:00Z"),
        ("2 hours ago", UTC, "2026-05-06T10:30:00Z"),
        ("8 May 2023", UTC, "2023-05-08T00:00:00Z"),
        ("1:56 pm on 8 May, 2023", UTC, "2023-05-08T13:56:00Z"),
    ],
)
def test_times_and_words_are_read_in_the_zone(text: str, zone, expected: str) -> None:
    assert to_iso(parse_time(text, NOW, zone, what="at")) == expected


@pytest.mark.parametrize(
    "text", ["", "32 May", "2026-02-30", "2026-13-01", "soon", "x" * 10_000, "99999-01-01", "\x00"]
)
def test_what_is_no_time_is_refused_with_the_mend(text: str) -> None:
    with pytest.raises(InvalidInput, match="ISO 8601"):
        parse_time(text, NOW, UTC, what="at")


def test_a_day_as_a_bound_is_the_whole_day_in_the_zone_also_when_the_clocks_change() -> None:
    start = parse_bound("2026-03-29", NOW, BERLIN, end=False, what="since")
    end = parse_bound("2026-03-29", NOW, BERLIN, end=True, what="until")
    assert end - start == timedelta(hours=23) - timedelta(milliseconds=1)


def test_expiry_is_the_session_a_duration_or_a_later_time() -> None:
    assert parse_expiry("session", NOW, UTC) == "session"
    assert parse_expiry("P30D", NOW, UTC) == NOW + timedelta(days=30)
    for past in ("2020-01-01", "PT0S", "-P1D"):
        with pytest.raises(InvalidInput):
            parse_expiry(past, NOW, UTC)


@pytest.mark.parametrize(
    ("fields", "over"),
    [
        ({}, False),
        ({"last_at": NOW - timedelta(minutes=30)}, True),
        ({"started_at": NOW - timedelta(hours=8)}, True),
        ({"turns": 200}, True),
        ({"ended_at": NOW}, True),
        ({"last_at": NOW + timedelta(days=365)}, True),
    ],
)
def test_a_session_is_over_by_idleness_length_turns_end_or_a_clock_that_jumped_back(fields: dict, over: bool) -> None:
    begun = {"started_at": NOW - timedelta(hours=1), "last_at": NOW - timedelta(minutes=1)}
    session = Session(**{"id": "s", "namespace": "n", "agent": "a", "key": "k", "name": None, **begun, **fields})
    assert session_over(session, NOW) is over


@given(ANY_TEXT, st.integers(0, 80))
def test_a_cut_text_never_exceeds_its_budget_and_is_a_beginning(text: str, tokens: int) -> None:
    shortened, was_cut = cut(text, tokens)
    assert count_tokens(shortened) <= tokens
    assert was_cut == (shortened != text)
    assert text.startswith(shortened.removesuffix("…").rstrip()) if was_cut else True


@given(ANY_TEXT)
def test_a_line_is_one_line_of_at_most_24_words_and_40_tokens(text: str) -> None:
    line = cut_line(text)
    assert "\n" not in line
    assert len(line.split()) <= 24
    assert count_tokens(line) <= 40


@given(st.lists(st.integers(1, 5000), max_size=40), st.integers(0, 10_000))
def test_shares_never_exceed_the_budget_or_the_cost_and_leave_no_hole(costs: list[int], budget: int) -> None:
    shares = pack(costs, budget)
    assert len(shares) == len(costs)
    assert sum(shares) <= budget
    assert all(0 <= share <= cost for share, cost in zip(shares, costs, strict=True))
    assert shares == [share for share in shares if share] + [0] * shares.count(0)


@given(ANY_TEXT)
def test_no_text_breaks_the_analysis_and_folding_is_settled(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert all(isinstance(part, str) for part in (*terms(text), *names(text), *numbers(text), *sentences(text)))
    line = episode_line([("user", text), ("", text)])
    assert len(line.split()) <= 24
    assert count_tokens(line) <= 40
    is_substantive(text)


@pytest.mark.parametrize("text", ["ok", "thanks!", "Hi! How are you?", "haha yes", "👍", ""])
def test_small_talk_is_not_substantive(text: str) -> None:
    assert not is_substantive(text)


@pytest.mark.parametrize("text", ["blue", "at 4", "test", "temp file", "I moved", "東京に行く"])
def test_short_texts_and_words_such_as_test_are_substantive(text: str) -> None:
    assert is_substantive(text)


def test_terms_split_identifiers_keep_versions_and_pair_cjk_characters() -> None:
    found = set(terms("Where does get_user live in v2.3.1, error E1234? 東京都"))
    assert {"get_user", "user", "v2.3.1", "e1234", "東京", "京都"} <= found
    assert "the" not in terms("the lake")
    assert cjk_bigrams("記憶と a") == ["記憶", "憶と"]
