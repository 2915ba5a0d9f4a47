"""ISO 8601, durations, relative dates, the ends of sessions and steps. Nothing here reads the clock.

A text is first read as ISO 8601, which is exact. Anything else goes to `dateparser`, which guesses: it ignores what it
does not understand and completes what is missing. So its answer is believed only if every number of the text is in it,
and only with the parts that the text really gave. It parses twice, from two different times: an answer that does not
move is absolute, one that moves along by the same amount is an offset, the rest hangs on the calendar. All of it is
done on wall-clock time in the caller's zone; only hours and smaller offsets are elapsed time.
"""

import re
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from middleout_mcp.errors import InvalidInput
from middleout_mcp.records import Session

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Prefer: TypeAlias = Literal["past", "future"]
"""Which of two readings is meant where a text such as "Friday" names no year or week."""

STEP = timedelta(minutes=30)
"""The longest time from one recall of a session to the next that still counts as one step."""
IDLE = timedelta(minutes=30)
LONGEST_SESSION = timedelta(hours=8)
MOST_TURNS = 200

LONGEST_TEXT = 100  # characters; the longest sensible date in words has about 60
_MILLISECOND = timedelta(milliseconds=1)
_LAST = datetime.max.replace(microsecond=999_000, tzinfo=UTC)
_LANGUAGES = ["en", "de", "fr", "es", "it", "pt", "nl"]
_MEND = "use an ISO 8601 time such as 2026-05-01T09:30:00Z"


def whole_ms(time: datetime) -> datetime:
    """`time` in UTC, cut to whole milliseconds. Raises ValueError for a naive time."""
    if time.tzinfo is None:
        raise ValueError("a naive time names no moment")
    moment = time.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def to_iso(time: datetime) -> str:
    """`time` as ISO 8601 UTC such as `2026-05-01T09:30:00Z`, with milliseconds only where they are not zero."""
    moment = whole_ms(time)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds" if moment.microsecond else "seconds") + "Z"


class _Reading(NamedTuple):
    """What a text means: a moment, and where it names a whole day, week, month or year, the bounds of that."""

    at: datetime
    start: datetime | None = None
    end: datetime | None = None  # exclusive; None beyond the year 9999
    counted: bool = False  # "in 3 days": a moment for an expiry, a day for a range


def parse_time(text: str, now: datetime, zone: tzinfo, *, what: str, prefer: Prefer = "past") -> datetime:
    """The moment that `text` names, UTC, whole milliseconds; a day, month or year means its first moment in `zone`.

    ISO 8601, or words in a few languages, relative to `now`. Raises InvalidInput, naming the argument as `what`.
    """
    try:
        return whole_ms(_read(text, now, zone, what, prefer).at)
    except OverflowError:
        raise _unreadable(what) from None


def parse_bound(text: str, now: datetime, zone: tzinfo, *, end: bool, what: str, prefer: Prefer = "past") -> datetime:
    """Like `parse_time`, for the bounds of a range: a day, week, month or year is covered whole.

    With `end` the result is its last millisecond, else its first. Raises InvalidInput.
    """
    try:
        reading = _read(text, now, zone, what, prefer)
        if reading.start is None:
            return whole_ms(reading.at)
        return _last_moment(reading) if end else whole_ms(reading.start)
    except OverflowError:
        raise _unreadable(what) from None


def _last_moment(reading: _Reading) -> datetime:
    """The last millisecond of the day, week, month or year read, at most that of the year 9999."""
    try:
        return _LAST if reading.end is None else whole_ms(reading.end) - _MILLISECOND
    except OverflowError:
        return _LAST


def parse_duration(text: str) -> timedelta | None:
    """An ISO 8601 duration such as `P30D` or `PT12H`, negative ones too; None where `text` is none.

    A month counts as 30 days, a year as 365.
    """
    if len(text) > LONGEST_TEXT or not re.match(r"[+-]?P", text.strip()):
        return None
    from pydantic import ValidationError

    try:
        return _durations().validate_python(text.strip())
    except (ValidationError, OverflowError):
        return None


@cache
def _durations() -> "TypeAdapter[timedelta]":
    from pydantic import TypeAdapter

    return TypeAdapter(timedelta)


def parse_expiry(text: str, now: datetime, zone: tzinfo, *, what: str = "expires") -> Literal["session"] | datetime:
    """When something expires: "session", a duration from `now`, or a time; a named day lasts to its end.

    Raises InvalidInput for what cannot be read, is not after `now`, or lies beyond the year 9999.
    """
    if text.strip().lower() == "session":
        return "session"
    duration = parse_duration(text)
    try:
        moment = whole_ms(now + duration) if duration is not None else _expiry(text, now, zone, what)
    except OverflowError:
        raise InvalidInput(f"{what} lies beyond the year 9999; use a shorter duration such as P30D") from None
    if moment <= now:
        raise InvalidInput(f"{what} is not in the future; use a duration such as P30D, or a later time")
    return moment


def _expiry(text: str, now: datetime, zone: tzinfo, what: str) -> datetime:
    try:
        reading = _read(text, now, zone, what, "future")
    except InvalidInput:
        raise InvalidInput(
            f"{what} cannot be read; use session, a duration such as P30D, or a time such as 2026-05-01T09:30:00Z"
        ) from None
    return whole_ms(reading.at) if reading.start is None or reading.counted else _last_moment(reading)


def session_end(session: Session) -> datetime:
    """When the session ended, or will end if no further call comes: 30 min after its last call, at most 8 h after its
    start, at once with 200 turns (DESIGN §2). Never before its start.
    """
    if session.ended_at is not None:
        return max(session.started_at, session.ended_at)
    last = max(session.started_at, session.last_at)
    return last if session.turns >= MOST_TURNS else min(last + IDLE, session.started_at + LONGEST_SESSION)


class SessionLimits(NamedTuple):
    """What holds for a session that runs at a moment and was not ended: every bound is exclusive."""

    started_after: datetime
    last_after: datetime
    last_before: datetime
    turns_below: int


def session_limits(now: datetime) -> SessionLimits:
    """The one rule for whether a session runs at `now`, for records here and for rows in a store.

    Its last call may lie ahead of `now` by less than 30 min: a session begun under a clock far ahead would never end.
    """
    return SessionLimits(now - LONGEST_SESSION, now - IDLE, now + IDLE, MOST_TURNS)


def session_over(session: Session, now: datetime) -> bool:
    """Whether the next call starts a new session."""
    limits = session_limits(now)
    runs = session.started_at > limits.started_after and session.turns < limits.turns_below
    return session.ended_at is not None or not (runs and limits.last_after < session.last_at < limits.last_before)


def _unreadable(what: str) -> InvalidInput:
    return InvalidInput(f"{what} is not a time that can be read; {_MEND}")


def _read(text: str, now: datetime, zone: tzinfo, what: str, prefer: Prefer) -> _Reading:
    """Read `text` in every way that is allowed. Raises InvalidInput, or OverflowError at the ends of the calendar."""
    if len(text) > LONGEST_TEXT:
        raise _unreadable(what)
    tidy = _numeric_date(" ".join(text.split()), what)
    try:
        reading = _iso(tidy, zone) or _words(tidy, now, zone, prefer)
    except ValueError:  # no such day, month, hour
        reading = None
    if reading is None:
        raise _unreadable(what)
    return reading


_NO_YEAR = re.compile(r"(?<![\d/])\d{1,2}/\d{1,2}(?![\d/])", re.ASCII)
_DAY_FIRST = re.compile(r"(?<![\d.:/-])(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})(?![\d/-]|\.\d)", re.ASCII)
_YEAR_FIRST = re.compile(r"(?<![\d.:/-])(\d{4})([./-])(\d{1,2})\2(\d{1,2})(?![\d/-]|\.\d)", re.ASCII)


def _numeric_date(text: str, what: str) -> str:
    """`text` with a date such as 13/6/2023, 13.6.2023 or 2023/6/13 written as ISO. Raises InvalidInput for 5/6/2023."""

    if _NO_YEAR.search(text):
        raise InvalidInput(f"{what} can be read as two different days; {_MEND}")

    def rewritten(match: re.Match[str]) -> str:
        first, mark, second, year = int(match[1]), match[2], int(match[3]), match[4]
        if len(year) == 2 or (mark != "." and first != second and first <= 12 and second <= 12):
            raise InvalidInput(f"{what} can be read as two different days; {_MEND}")
        day, month = (second, first) if mark != "." and second > 12 else (first, second)
        return f"{year}-{month:02}-{day:02}"

    return _DAY_FIRST.sub(rewritten, _YEAR_FIRST.sub(lambda m: f"{m[1]}-{int(m[3]):02}-{int(m[4]):02}", text))


_ISO = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d))?|(?P<monthday>\d{4})|-?W(?P<week>\d\d)(?:-?(?P<weekday>\d))?"
    r"|-?(?P<ordinal>\d{3}))?"
    r"(?:[T ](?P<time>\d\d(?::?\d\d(?::?\d\d(?:[.,]\d{1,30})?)?)?) ?(?P<offset>Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII | re.IGNORECASE,
)


def _iso(text: str, zone: tzinfo) -> _Reading | None:
    """`text` read as ISO 8601, None where it is not; raises ValueError for a date or time that does not exist."""
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    start, end = _iso_days(match)
    if match["time"] is None:
        return _whole(start, end, zone)
    if not (match["day"] or match["monthday"] or match["weekday"] or match["ordinal"]):
        raise ValueError("a time needs a day")
    clock = time.fromisoformat(match["time"].replace(",", ".") + (match["offset"] or "").upper())
    moment = datetime.combine(start, clock)
    return _Reading(moment if moment.tzinfo else moment.replace(tzinfo=zone))


def _iso_days(match: re.Match[str]) -> tuple[date, date | None]:
    """The first day, and the day after the last, of an ISO date; None for the day after the last of the calendar."""
    year = int(match["year"])
    if match["week"]:
        start = date.fromisocalendar(year, int(match["week"]), int(match["weekday"] or 1))
        return start, _day_after(start, 1 if match["weekday"] else 7)
    if match["ordinal"]:
        start = date(year, 1, 1) + timedelta(days=int(match["ordinal"]) - 1)
        if start.year != year:
            raise ValueError("no such day of the year")
        return start, _day_after(start)
    if match["monthday"]:
        start = date(year, int(match["monthday"][:2]), int(match["monthday"][2:]))
        return start, _day_after(start)
    if match["day"]:
        start = date(year, int(match["month"]), int(match["day"]))
        return start, _day_after(start)
    start = date(year, int(match["month"] or 1), 1)
    return start, _next_month(start) if match["month"] else _next_year(start)


def _day_after(start: date, days: int = 1) -> date | None:
    return start + timedelta(days=days) if (date.max - start).days >= days else None


def _next_month(start: date) -> date | None:
    return _next_year(start.replace(month=1)) if start.month == 12 else start.replace(month=start.month + 1)


def _next_year(start: date) -> date | None:
    return start.replace(year=start.year + 1) if start.year < 9999 else None


def _whole(start: date, end: date | None, zone: tzinfo) -> _Reading:
    """The days `start` to `end` (exclusive) in `zone`; a midnight that a clock change skips falls on the change."""
    first = datetime.combine(start, time.min, zone)
    return _Reading(first, first, datetime.combine(end, time.min, zone) if end else None)


_ZONE_AT_END = re.compile(
    r"(?<=[\dm])(?: ?(?:Z|UTC|GMT)(?:([+-])(\d\d?)(?::?(\d\d))?)?| ?([+-])(\d\d):?(\d\d))$", re.ASCII | re.IGNORECASE
)
_COUNTED = re.compile(r"\d|\b(?:ago|in|from|later|hence|vor|hace|il y a|fa|há|atrás|geleden)\b", re.IGNORECASE)
_QUANTITY = re.compile(
    r"\d+(?:[.,]\d+)?(?=\s*[^\W\d_])(?!\s*(?:[ap]\.?m|at|and|in|on|yesterday|today|tomorrow)\b)", re.IGNORECASE
)
_CLOCK = re.compile(r"\b\d{1,2}:\d\d")
_BARE_HOUR = re.compile(r"\bat \d{1,2}(?![\w:.]|\s?(?:[ap]\.?m|h|o'clock)\b)", re.IGNORECASE)  # 5 or 17 o'clock?
_FALSE_ISO = re.compile(r"\d{4}-?\d\d(?!\d*:)[\d\s:.,-]*|[+-]\d{4,}-.*", re.ASCII)
"""In 2023-13-01 dateparser would find some day, and in -0001-01-01, before our calendar, one of the year 1."""
_NO_WORDS = re.compile(
    r"[\d.,]*\d(?:e[-+]?\d+)?"  # a number alone
    r"|(?:.*\b(?:in|vor|dans|hace|fa|há|em|over)\s)?[-+\u2212\u2013]\s?\d.*"  # less than no time
    r"|.*\b([^\W\d_]{2,})\b[\W\d_]+\1\b.*"  # a word said twice
    r"|(?:.*\b(?:yesterday|today|tomorrow)\b){2}.*",
    re.IGNORECASE,
)
"""dateparser would read 1e9 as September, "in -5 days" as the past, and one of two words."""
_NEEDS = {
    "time": {"day"},
    "part_of_day": {"day"},
    "day": {"month", "day"},
    "week": {"day"},
    "month": {"month"},
    "year": {"year"},
}
_OTHER_TIME = timedelta(days=403, hours=1, minutes=7, seconds=13)  # another year, month, weekday and time of day


def _words(text: str, now: datetime, zone: tzinfo, prefer: Prefer) -> _Reading | None:
    """`text` read as words, None where they name no time."""
    if len(text) < 2 or _FALSE_ISO.fullmatch(text) or _NO_WORDS.fullmatch(text) or _BARE_HOUR.search(text):
        return None
    offset = _ZONE_AT_END.search(text)
    if offset:
        text, zone = text[: offset.start()], _fixed(offset)
    base = now.astimezone(zone).replace(tzinfo=None)
    found, other = _guess(text, base, prefer), _guess(text, base - _OTHER_TIME, prefer)
    if found is None or other is None:
        return None
    relative = "year" in found.parts and found.wall.year != other.wall.year
    if not _accounted(text, found, relative):
        return None
    wall, moment = found.wall, found.wall.replace(tzinfo=zone)
    if found.period == "time" and wall - base == other.wall - (base - _OTHER_TIME):
        return _Reading(now + (wall - base))  # "2 hours ago", across a clock change too
    if found.period in ("time", "part_of_day"):
        return _Reading(moment)
    if not (relative and _COUNTED.search(text)):
        return _whole(*_period(wall.date(), found.period), zone)
    day = _whole(*_period(wall.date(), "day"), zone)
    return day._replace(at=moment, counted=True) if wall.time() == base.time() else day


def _fixed(match: re.Match[str]) -> tzinfo:
    """The zone of an offset such as `Z`, `+02:00` or `UTC-3`. Raises ValueError beyond a day."""
    sign = match[1] or match[4]
    distance = timedelta(hours=int(match[2] or match[5] or 0), minutes=int(match[3] or match[6] or 0))
    return timezone(-distance if sign == "-" else distance)


class _Guess(NamedTuple):
    """An answer of dateparser: wall-clock time, period, and which of year, month, day, time the text gives."""

    wall: datetime
    period: str
    parts: tuple[str, ...]


def _guess(text: str, base: datetime, prefer: Prefer) -> _Guess | None:
    """What dateparser makes of `text` seen from the wall-clock time `base`."""
    from dateparser.date import DateDataParser

    settings: dict[str, Any] = {
        "RELATIVE_BASE": base,
        "PREFER_DATES_FROM": prefer,
        "RETURN_TIME_AS_PERIOD": True,
        "PARSERS": ["relative-time", "absolute-time"],
        "TIMEZONE": "UTC",  # keeps it from asking the machine; the result is wall-clock time all the same
    }
    parser = DateDataParser(languages=_LANGUAGES, settings=settings, try_previous_locales=False, use_given_order=True)
    data = parser.get_date_data(text)
    if data.date_obj is None or data.date_obj.tzinfo is not None:  # abbreviations such as CST name several zones
        return None
    return _Guess(data.date_obj, str(data.period), data.parts)


def _accounted(text: str, guess: _Guess, relative: bool) -> bool:
    """Whether the guess has every number of the text, and the text every part that the guess needs."""
    wall, period = guess.wall, guess.period
    if period not in _NEEDS or not _NEEDS[period] <= set(guess.parts):
        return False
    if _CLOCK.search(text) and "time" not in guess.parts:
        return False
    given = {int(number) for number in re.findall(r"\d+", _QUANTITY.sub(" ", text) if relative else text)}
    if period in ("month", "year") and not relative:
        return given <= {wall.year} and (period == "month" or bool(given))
    clock = {wall.hour, wall.hour % 12 or 12, wall.minute, wall.second}
    return given <= {wall.year, wall.month, wall.day} | clock


def _period(day: date, period: str) -> tuple[date, date | None]:
    """The day, week (from Monday), month or year that `day` lies in: first day, and day after the last."""
    if period == "week":
        start = day - timedelta(days=day.weekday())
        return start, _day_after(start, 7)
    if period == "month":
        return day.replace(day=1), _next_month(day.replace(day=1))
    if period == "year":
        return day.replace(month=1, day=1), _next_year(day.replace(month=1, day=1))
    return day, _day_after(day)
