"""Which memories become one summary: never those that must stay apart, and never too many or too few."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from middleout_mcp.compression.bands import split
from middleout_mcp.compression.clusters import LARGEST, SMALLEST, contiguous, groups, still_together
from middleout_mcp.policy import compressible
from middleout_mcp.records import Kind, Memory, Privacy, Status, TaskState
from tests.compression.talk import memory, mixed_memories


def assert_together(members: tuple[Memory, ...]) -> None:
    assert len({(each.scope, each.privacy) for each in members}) <= 1
    assert len({None if each.known_by is None else frozenset(each.known_by) for each in members}) <= 1
    values: dict[str, set[str | None]] = {}
    for each in members:
        if each.key is not None:
            values.setdefault(each.key, set()).add(each.value)
    assert all(len(given) == 1 for given in values.values())


@settings(max_examples=400, deadline=None)
@given(mixed_memories, st.data())
def test_scopes_privacy_holders_and_contradictions_are_never_mixed(memories: list[Memory], data: st.DataObject) -> None:
    labels = data.draw(st.lists(st.integers(-1, 3), min_size=len(memories), max_size=len(memories)))
    found = groups(memories, labels)
    placed = Counter(each.id for group in found for each in group.members)
    assert not placed or max(placed.values()) == 1
    assert set(placed) <= {each.id for each in memories}
    for group in found:
        assert_together(group.members)
        assert SMALLEST <= len(group.members) <= LARGEST
        if not group.theme:
            assert len({(each.thread, each.session) for each in group.members}) == 1
    assert groups(memories, labels) == found


@settings(max_examples=200, deadline=None)
@given(mixed_memories)
def test_what_was_changed_since_a_plan_is_left_out_of_it(memories: list[Memory]) -> None:
    kept = still_together(memories)
    assert_together(kept)
    assert {each.id for each in kept} <= {each.id for each in memories}
    assert still_together(kept) == kept


@given(mixed_memories)
def test_pins_open_tasks_sure_preferences_and_what_few_may_see_are_never_compressed(memories: list[Memory]) -> None:
    for each in memories:
        if compressible(each):
            assert each.privacy is Privacy.NORMAL
            assert not each.pinned
            assert not (each.kind is Kind.TASK and each.state is TaskState.OPEN)
            assert not (each.kind is Kind.PREFERENCE and each.confidence >= 0.8)


def test_what_is_hidden_marked_ended_or_told_already_is_never_compressed() -> None:
    fine = {"kind": Kind.FACT}
    assert compressible(memory(1, "x", **fine))
    for fields in (
        {"status": Status.ARCHIVED},
        {"summary_id": "m_1"},
        {"kind": Kind.SUMMARY},
        {"disputed": True},
        {"suppressed_in": "s_1"},
        {"suppressed_until": memory(1, "x").at},
        {"expires_at": memory(1, "x").at},
        {"expires_session": "s_1"},
    ):
        assert not compressible(memory(1, "x", **{**fine, **fields})), fields


def test_a_theme_must_recur_and_must_not_be_everything() -> None:
    recurring = [memory(number, "x", session=f"s{number % 3}", thread=f"t{number}") for number in range(9)]
    (theme,) = groups(recurring, [0] * 9)
    assert theme.theme and len(theme.members) == 9
    once = [memory(number, "x", session="s", thread=f"t{number}") for number in range(9)]
    assert groups(once, [0] * 9) == []
    many = [memory(number, "x", session=f"s{number % 3}", thread=f"t{number}") for number in range(60)]
    assert groups(many, [0] * 60) == []
    assert len(groups(many, [0] * 15 + [-1] * 45)) == 1


def test_a_group_of_nothing_but_contradictions_is_none() -> None:
    apart = [memory(number, "x", key="colour", value=str(number), session=f"s{number}") for number in range(6)]
    assert groups(apart, [0] * 6) == []


def test_a_long_conversation_becomes_pieces_as_even_as_can_be() -> None:
    for size in (3, 64, 65, 130, 200, 321):
        pieces = contiguous([memory(number, "x") for number in range(size)])
        assert sum(map(len, pieces)) == size
        assert max(map(len, pieces)) <= LARGEST
        assert max(map(len, pieces)) - min(map(len, pieces)) <= len(pieces)


def test_pinned_and_used_memories_are_the_foundation_and_active_sessions_stay_as_they_are() -> None:
    every = [memory(1, "x", pinned=True), memory(2, "x", use=3.0), memory(3, "x", session="a"), memory(4, "x")]
    bands = split(every, {"a"})
    assert [len(band) for band in (bands.foundation, bands.middle, bands.active)] == [2, 1, 1]
