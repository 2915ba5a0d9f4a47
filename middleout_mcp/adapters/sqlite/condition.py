"""A `Filter` as SQL over `memory m`; every search and listing puts it before its cut.

Expiry is decided here, by `now` alone: a memory past its time, or whose session has ended, counts as expired from that
millisecond on, whether or not a job has marked it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from middleout_mcp.adapters.sqlite.namespaces import within
from middleout_mcp.adapters.sqlite.rows import bindable, marks, to_ms
from middleout_mcp.records import Filter, Status
from middleout_mcp.times import session_limits

_Part: TypeAlias = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Clause:
    """A condition, and the values of its question marks in order."""

    sql: str
    values: tuple[Any, ...]


def where(condition: Filter, namespaces: dict[int, str]) -> Clause:
    """The condition, within these namespaces."""
    parts = [(within("m.namespace", namespaces), ()), *_visible(condition), *_asked(condition)]
    return Clause(" AND ".join(f"({sql})" for sql, _ in parts), tuple(value for _, values in parts for value in values))


def _visible(condition: Filter) -> Iterator[_Part]:
    """Status, expiry, suppression and privacy."""
    now = to_ms(condition.now)
    yield _of_status(condition)
    if not condition.hidden:
        yield "m.suppressed_until IS NULL OR m.suppressed_until <= ?", (now,)
    if condition.suppressed_in:
        places = tuple(map(bindable, condition.suppressed_in))
        yield f"m.suppressed_in IS NULL OR m.suppressed_in NOT IN ({marks(places)})", places
    if condition.agent is not None:
        yield "m.privacy <> 'private' OR m.agent = ?", (bindable(condition.agent),)
    if not condition.sensitive:
        yield "m.privacy <> 'sensitive'", ()
    if not condition.compressed:
        yield "m.summary_id IS NULL", ()
    if condition.lapsed:
        lapsed, values = _lapsed(condition)
        yield f"m.status = 'live' AND ({lapsed})", values


def _of_status(condition: Filter) -> _Part:
    lapsed, values = _lapsed(condition)
    sql = ["0"]  # no status asked for: nothing is found
    found: tuple[Any, ...] = ()
    for status in dict.fromkeys(condition.statuses):
        if status is Status.LIVE:
            sql, found = [*sql, f"m.status = 'live' AND NOT ({lapsed})"], found + values
        elif status is Status.EXPIRED:
            sql, found = [*sql, f"m.status = 'expired' OR (m.status = 'live' AND ({lapsed}))"], found + values
        else:
            sql.append(f"m.status = '{status}'")
    if condition.as_of is not None and Status.SUPERSEDED not in condition.statuses:
        sql.append("m.status = 'superseded' AND m.merged_into IS NULL")  # a merged copy speaks through its winner
    return " OR ".join(f"({part})" for part in sql), found


def _lapsed(condition: Filter) -> _Part:
    now = to_ms(condition.now)
    sql, values = "m.expires_at IS NOT NULL AND m.expires_at <= ?", (now,)
    if not condition.ended_sessions:
        return sql, values
    limits = session_limits(condition.now)
    running = (
        "SELECT 1 FROM session s WHERE s.namespace = m.namespace AND s.id = m.expires_session AND s.ended_at IS NULL"
        " AND s.started_at > ? AND s.last_at > ? AND s.last_at < ? AND s.turns < ?"
    )
    bounds = (to_ms(limits.started_after), to_ms(limits.last_after), to_ms(limits.last_before), limits.turns_below)
    return f"({sql}) OR (m.expires_session IS NOT NULL AND NOT EXISTS ({running}))", (*values, *bounds)


def _timed(condition: Filter) -> Iterator[_Part]:
    """When it happened, and when it was valid."""
    if condition.since is not None:
        yield "m.at >= ?", (to_ms(condition.since),)
    if condition.until is not None:
        yield "m.at <= ?", (to_ms(condition.until),)
    if condition.as_of is not None:
        moment = to_ms(condition.as_of)
        yield "coalesce(m.valid_from, m.at) <= ? AND (m.valid_to IS NULL OR m.valid_to > ?)", (moment, moment)


def _tagged(tags: Sequence[str]) -> _Part:
    """All of these tags; however many they are, one part of the query."""
    wanted = list(dict.fromkeys(tags))
    carried = (
        "SELECT count(DISTINCT t.value) FROM json_each(m.tags) t WHERE t.value IN (SELECT value FROM json_each(?))"
    )
    return f"({carried}) = ?", (json.dumps(wanted), len(wanted))


def _asked(condition: Filter) -> Iterator[_Part]:
    """What the caller narrows the search to."""
    if condition.kinds:
        kinds = tuple(dict.fromkeys(map(str, condition.kinds)))
        yield f"m.kind IN ({marks(kinds)})", kinds
    if condition.tags:
        yield _tagged(condition.tags)
    if condition.scope is not None:
        yield "m.scope IS NULL OR m.scope = ?", (bindable(condition.scope),)
    yield from _timed(condition)
    for column in ("thread", "session"):
        if (wanted := getattr(condition, column)) is not None:
            yield f"m.{column} = ?", (bindable(wanted),)
    if condition.ids is not None:
        yield (
            "m.id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(condition.ids)),),
        )  # half a surrogate pair, escaped, equals nothing
    if condition.pinned is not None:
        yield "m.pinned = ?", (int(condition.pinned),)
    if condition.state is not None:
        yield "m.state = ?", (str(condition.state),)
