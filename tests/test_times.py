"""Times: what is read as what, what is refused, days on which clocks change, the ends of sessions."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from middleout_mcp.errors import InvalidInput
from middleout_mcp.records import Session
from middleout_mcp.times import (
    parse_bound,
    parse_duration,
    parse_expiry,
    parse_time,
    session_end,
    session_over,
    to_iso,
    whole_ms,
)

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 5, 13, 10, 0, 5, tzinfo=UTC)  # a Wednesday, 12:00:05 in Berlin

FIRST, LAST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
moments = st.builds(
    lambda age, zone: (FIRST + age).astimezone(zone), st.timedeltas(timedelta(0), LAST - FIRST), st.timezones()
)
any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=120)


def at(text: str, zone: str = "UTC", **options: object) -> str:
    return to_iso(parse_time(text, NOW, ZoneInfo(zone), what="at", **options))  # type: ignore[arg-type]


def span(text: str, zone: str = "UTC") -> tuple[str, str]:
    since = parse_bound(text, NOW, ZoneInfo(zone), end=False, what="since")
    until = parse_bound(text, NOW, ZoneInfo(zone), end=True, what="until")
    return to_iso(since), to_iso(until)


def outcome(parse: Callable[[], datetime | str]) -> str:
    try:
        result = parse()
    except InvalidInput as refusal:
        return str(refusal)
    return result if isinstance(result, str) else to_iso(result)


def session(**fields: object) -> Session:
    given = {"started_at": NOW, "last_at": NOW, **fields}
    return Session(id="s_1", namespace="n", agent="a", key="k", name=None, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-01T09:30:00Z", "2026-05-01T09:30:00Z"),
        ("2026-05-01t09:30z", "2026-05-01T09:30:00Z"),
        ("2026-05-01 09:30", "2026-05-01T07:30:00Z"),
        ("2026-05-01T09", "2026-05-01T07:00:00Z"),
        ("2026-05-01T09:30:15,5+01:00", "2026-05-01T08:30:15.500Z"),
        ("2026-05-01T09:30:00 -0730", "2026-05-01T17:00:00Z"),
        ("2026-05-01T09:30:15.123999Z", "2026-05-01T09:30:15.123Z"),
        ("20260501T093000Z", "2026-05-01T09:30:00Z"),
        ("20260501", "2026-04-30T22:00:00Z"),
        ("2026-05-01", "2026-04-30T22:00:00Z"),
        ("2026-05", "2026-04-30T22:00:00Z"),
        ("2026", "2025-12-31T23:00:00Z"),
        ("2026-W18-5T12:00", "2026-05-01T10:00:00Z"),
        ("2026-121", "2026-04-30T22:00:00Z"),
        (" 2026-05-01\n", "2026-04-30T22:00:00Z"),
    ],
)
def test_iso_8601_is_read_in_all_its_usual_forms(text: str, expected: str) -> None:
    assert at(text, "Europe/Berlin") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-05-13T10:00:05Z"),
        ("today", "2026-05-12T22:00:00Z"),
        ("yesterday", "2026-05-11T22:00:00Z"),
        ("tomorrow 9am", "2026-05-14T07:00:00Z"),
        ("last Monday", "2026-05-10T22:00:00Z"),
        ("next Friday", "2026-05-14T22:00:00Z"),
        ("2 hours ago", "2026-05-13T08:00:05Z"),
        ("an hour ago", "2026-05-13T09:00:05Z"),
        ("in 3 days", "2026-05-16T10:00:05Z"),
        ("2 weeks ago", "2026-04-29T10:00:05Z"),
        ("3 days ago at 5pm", "2026-05-10T15:00:00Z"),
        ("8 May 2023", "2023-05-07T22:00:00Z"),
        ("May 8th, 2023 at 1:56pm", "2023-05-08T11:56:00Z"),
        ("1:56 pm on 8 May, 2023", "2023-05-08T11:56:00Z"),
        ("Mon, 08 May 2023 13:56:00 GMT", "2023-05-08T13:56:00Z"),
        ("8 May 2023 13:56 UTC-3", "2023-05-08T16:56:00Z"),
        ("13/6/2023", "2023-06-12T22:00:00Z"),
        ("6/13/2023 10am", "2023-06-13T08:00:00Z"),
        ("13.6.2023", "2023-06-12T22:00:00Z"),
        ("6.5.2023", "2023-05-05T22:00:00Z"),
        ("2023/6/5", "2023-06-04T22:00:00Z"),
        ("12:30", "2026-05-12T10:30:00Z"),
        ("gestern", "2026-05-11T22:00:00Z"),
        ("vor 2 Tagen", "2026-05-11T10:00:05Z"),
        ("5 de mayo de 2023", "2023-05-04T22:00:00Z"),
        ("hier", "2026-05-11T22:00:00Z"),
    ],
)
def test_words_are_read_from_now_in_the_zone(text: str, expected: str) -> None:
    assert at(text, "Europe/Berlin") == expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "x",
            "foo",
            "soon",
            "\x00",
            "\ud800",
            "8",
            "1st",
            "at 5",
            "in 3",
            "yesterday at 10",
            "yesterday 25:00",
        ),
        *(
            "2023-02-30",
            "2023-13-01",
            "2023-05-08T24:30",
            "2023-05-08T10:60",
            "2023-05-08T10:30+25:00",
            "30 February 2023",
        ),
        *("32 May", "8 May 23", "8 May 2023 at 25:00", "Feb 30", "5/6/2023", "5/6", "6.5.23", "yesterday at 5pm PST"),
        *(
            "0000-01-01",
            "10000-01-01",
            "in 99999 years",
            "999999999 hours ago",
            "1683545000",
            "2023-05T10:00",
            "2023-W54",
        ),
        *("1e9", "1.5", "1,5", "2e-5", "tomorrow tomorrow", "yesterday, yesterday", "tomorrow 10:00 tomorrow"),
        *("in -5 days", "-5 days", "\u22125 days ago", "in in 5 days", "yesterday today", "morgen morgen"),
        *(
            "-0001-01-01",
            "+12023-05-01",
            "-2023-05-01T10:00:00Z",
            "2023-366",
            "Q2 2023",
            "may 5 pm",
            "MMXXIII",
            "x" * 10_000,
            "1 day ago " * 1_000,
            "2026-05-01" + " " * 200,
        ),
    ],
)
def test_what_is_impossible_ambiguous_or_unreadable_is_refused_with_the_mend(text: str) -> None:
    for parse in (at, span):
        with pytest.raises(
            InvalidInput, match=r"^(at|since|until) .*use an ISO 8601 time such as 2026-05-01T09:30:00Z$"
        ):
            parse(text)


def test_a_refusal_does_not_repeat_what_was_given() -> None:
    with pytest.raises(InvalidInput) as refusal:
        at("my secret words")
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("yesterday", "2026-05-12T00:00:00Z", "2026-05-12T23:59:59.999Z"),
        ("2023-05-08", "2023-05-08T00:00:00Z", "2023-05-08T23:59:59.999Z"),
        ("2023-05", "2023-05-01T00:00:00Z", "2023-05-31T23:59:59.999Z"),
        ("2024-02", "2024-02-01T00:00:00Z", "2024-02-29T23:59:59.999Z"),
        ("May 2023", "2023-05-01T00:00:00Z", "2023-05-31T23:59:59.999Z"),
        ("2023-12", "2023-12-01T00:00:00Z", "2023-12-31T23:59:59.999Z"),
        ("2023", "2023-01-01T00:00:00Z", "2023-12-31T23:59:59.999Z"),
        ("2023-W01", "2023-01-02T00:00:00Z", "2023-01-08T23:59:59.999Z"),
        ("last week", "2026-05-04T00:00:00Z", "2026-05-10T23:59:59.999Z"),
        ("this month", "2026-05-01T00:00:00Z", "2026-05-31T23:59:59.999Z"),
        ("last year", "2025-01-01T00:00:00Z", "2025-12-31T23:59:59.999Z"),
        ("2 weeks ago", "2026-04-29T00:00:00Z", "2026-04-29T23:59:59.999Z"),
        ("2 months ago", "2026-03-13T00:00:00Z", "2026-03-13T23:59:59.999Z"),
        ("9999-12-31", "9999-12-31T00:00:00Z", "9999-12-31T23:59:59.999Z"),
        ("9999", "9999-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"),
        ("2023-05-08T10:30Z", "2023-05-08T10:30:00Z", "2023-05-08T10:30:00Z"),
        ("2 hours ago", "2026-05-13T08:00:05Z", "2026-05-13T08:00:05Z"),
    ],
)
def test_a_bound_covers_the_whole_day_week_month_or_year_that_it_names(text: str, since: str, until: str) -> None:
    assert span(text) == (since, until)


@pytest.mark.parametrize(
    ("zone", "day", "since", "until"),
    [
        ("Europe/Berlin", "2026-03-29", "2026-03-28T23:00:00Z", "2026-03-29T21:59:59.999Z"),  # 23 hours
        ("Europe/Berlin", "2026-10-25", "2026-10-24T22:00:00Z", "2026-10-25T22:59:59.999Z"),  # 25 hours
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04T03:00:00Z", "2018-11-05T01:59:59.999Z"),  # begins at 01:00
        ("America/Sao_Paulo", "2018-02-17", "2018-02-17T02:00:00Z", "2018-02-18T02:59:59.999Z"),  # 23:00 comes twice
        ("Pacific/Apia", "2011-12-29", "2011-12-29T10:00:00Z", "2011-12-30T09:59:59.999Z"),  # no 30th follows
        ("Asia/Tokyo", "9999-12-31", "9999-12-30T15:00:00Z", "9999-12-31T23:59:59.999Z"),  # no day follows
        ("America/New_York", "9999-12-31", "9999-12-31T05:00:00Z", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_days_on_which_clocks_change_are_covered_exactly(zone: str, day: str, since: str, until: str) -> None:
    assert span(day, zone) == (since, until)


def test_hours_are_elapsed_time_and_days_are_calendar_days_across_a_clock_change() -> None:
    after = datetime(2026, 3, 29, 10, 0, tzinfo=UTC)  # 12:00 in Berlin, ten hours into a day that lost one
    assert to_iso(parse_time("12 hours ago", after, BERLIN, what="at")) == "2026-03-28T22:00:00Z"
    assert to_iso(parse_time("1 day ago", after, BERLIN, what="at")) == "2026-03-28T11:00:00Z"


def test_a_time_that_the_clocks_skip_or_repeat_is_read_by_the_offset_before_the_change() -> None:
    assert at("2026-03-29T02:30", "Europe/Berlin") == "2026-03-29T01:30:00Z"
    assert at("2026-10-25T02:30", "Europe/Berlin") == "2026-10-25T00:30:00Z"


def test_a_bare_weekday_or_date_lies_in_the_past_unless_the_future_is_preferred() -> None:
    assert at("Friday") == "2026-05-08T00:00:00Z"
    assert at("Friday", prefer="future") == "2026-05-15T00:00:00Z"
    assert at("May 8") == "2026-05-08T00:00:00Z"
    assert at("May 8", prefer="future") == "2027-05-08T00:00:00Z"
    assert at("last Friday", prefer="future") == at("last Friday")


def test_a_given_zone_moves_what_yesterday_is() -> None:
    assert at("yesterday 23:00", "Pacific/Kiritimati") == "2026-05-13T09:00:00Z"
    assert at("yesterday 23:00 UTC", "Pacific/Kiritimati") == "2026-05-12T23:00:00Z"


@given(moments)
@settings(deadline=None)
def test_a_written_time_is_read_back_as_the_same_millisecond(moment: datetime) -> None:
    written = to_iso(moment)
    assert parse_time(written, NOW, BERLIN, what="at") == whole_ms(moment)
    assert written.endswith("Z")
    assert to_iso(whole_ms(moment)) == written


@given(st.dates(date(1, 1, 2), date(9999, 12, 29)), st.timezones())
@settings(deadline=None)
def test_consecutive_days_meet_without_a_gap(day: date, zone: tzinfo) -> None:
    until = parse_bound(str(day), NOW, zone, end=True, what="until")
    since = parse_bound(str(day + timedelta(days=1)), NOW, zone, end=False, what="since")
    assert since - until == timedelta(milliseconds=1)


@given(any_text)
@settings(deadline=None, max_examples=200)
def test_any_text_is_a_time_or_refused_as_invalid_input(text: str) -> None:
    for parse in (
        lambda: parse_time(text, NOW, BERLIN, what="at"),
        lambda: parse_bound(text, NOW, BERLIN, end=True, what="until"),
        lambda: parse_expiry(text, NOW, BERLIN),
    ):
        assert len(outcome(parse).splitlines()) == 1


def test_a_naive_time_is_no_moment() -> None:
    with pytest.raises(ValueError, match="naive"):
        to_iso(datetime(2026, 5, 1))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P30D", timedelta(days=30)),
        ("PT12H", timedelta(hours=12)),
        ("P2W", timedelta(weeks=2)),
        ("P1DT2H30M", timedelta(days=1, hours=2, minutes=30)),
        ("P1M", timedelta(days=30)),
        ("P1Y", timedelta(days=365)),
        ("-P1D", timedelta(days=-1)),
        ("P", None),
        ("PT", None),
        ("P1H", None),
        ("3600", None),
        ("1 day", None),
        ("P999999999999Y", None),
        ("P" + "1" * 5_000 + "D", None),
        ("", None),
    ],
)
def test_durations_are_iso_8601_and_nothing_else(text: str, expected: timedelta | None) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P30D", "2026-06-12T10:00:05Z"),
        ("PT0.5S", "2026-05-13T10:00:05.500Z"),
        ("2026-06-01T09:30Z", "2026-06-01T09:30:00Z"),
        ("2026-06-01", "2026-06-01T23:59:59.999Z"),
        ("today", "2026-05-13T23:59:59.999Z"),
        ("Friday", "2026-05-15T23:59:59.999Z"),
        ("in 3 days", "2026-05-16T10:00:05Z"),
        ("9999-12-31", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_an_expiry_is_a_moment_and_a_named_day_lasts_to_its_end(text: str, expected: str) -> None:
    moment = parse_expiry(text, NOW, UTC)
    assert moment != "session"
    assert to_iso(moment) == expected


def test_an_expiry_may_be_the_end_of_the_session() -> None:
    assert parse_expiry(" Session ", NOW, UTC) == "session"


@pytest.mark.parametrize("text", ["PT0S", "-P1D", "PT0.0001S", "yesterday", "2020", "2 hours ago", "now"])
def test_an_expiry_that_is_not_in_the_future_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^expires is not in the future; use a duration such as P30D"):
        parse_expiry(text, NOW, UTC)


@pytest.mark.parametrize(("text", "reason"), [("P9000Y", "beyond the year 9999"), ("never", "cannot be read")])
def test_an_expiry_beyond_the_calendar_or_without_a_meaning_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        parse_expiry(text, NOW, UTC)


def test_a_session_ends_thirty_minutes_after_its_last_call() -> None:
    sitting = session(last_at=NOW + timedelta(hours=1))
    assert session_end(sitting) == NOW + timedelta(minutes=90)
    assert not session_over(sitting, NOW + timedelta(minutes=89, seconds=59))
    assert session_over(sitting, NOW + timedelta(minutes=90))


def test_a_session_ends_after_eight_hours_however_busy() -> None:
    sitting = session(last_at=NOW + timedelta(hours=7, minutes=59))
    assert session_end(sitting) == NOW + timedelta(hours=8)
    assert session_over(sitting, NOW + timedelta(hours=8))
    assert not session_over(sitting, NOW + timedelta(hours=8) - timedelta(milliseconds=1))


def test_a_session_ends_with_its_two_hundredth_turn() -> None:
    assert not session_over(session(turns=199), NOW)
    assert session_over(session(turns=200), NOW)
    assert session_end(session(turns=200)) == NOW


def test_an_ended_session_stays_ended_when_the_clock_is_set_back() -> None:
    sitting = session(ended_at=NOW + timedelta(minutes=5))
    assert session_over(sitting, NOW - timedelta(days=365))
    assert session_end(sitting) == NOW + timedelta(minutes=5)
    assert session_end(session(ended_at=NOW - timedelta(days=1))) == NOW


def test_a_session_from_a_clock_far_ahead_does_not_live_on_for_a_year() -> None:
    ahead = session(started_at=NOW + timedelta(days=365), last_at=NOW + timedelta(days=365))
    assert session_over(ahead, NOW)


def test_a_small_step_back_of_the_clock_does_not_end_a_session() -> None:
    assert not session_over(session(), NOW - timedelta(minutes=29))


@given(st.timedeltas(timedelta(0), timedelta(hours=9)), st.timedeltas(timedelta(0), timedelta(days=2)))
def test_a_session_is_over_exactly_from_its_end_on(used: timedelta, later: timedelta) -> None:
    sitting = session(last_at=NOW + used)
    now = NOW + used + later
    assert session_over(sitting, now) == (now >= session_end(sitting))


def test_reading_iso_times_does_not_load_the_library_for_words() -> None:
    code = (
        "import sys; from datetime import UTC, datetime; from middleout_mcp.times import parse_time; "
        "parse_time('2026-05-01', datetime.now(UTC), UTC, what='at'); sys.exit('dateparser' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
