"""Secrets and private spans go no further; what only looks like one stays as it was written (CASE 19)."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from middleout_mcp.adapters import redact_secret
from middleout_mcp.adapters.redact_secret import find_secrets
from middleout_mcp.errors import InvalidInput
from middleout_mcp.ports import Span
from middleout_mcp.safety.nested import screen_all, screen_json
from middleout_mcp.safety.screening import screen, screen_field
from tests.safety.samples import HARMLESS, SECRETS

TOKEN = "ghp_" + "a1B2" * 9
EVALUATION = Path(os.environ.get("MIDDLEOUT_EVAL_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))


def nothing(text: str) -> list[Span]:
    return []


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_a_secret_is_replaced_by_its_kind_and_its_text_is_gone(text: str, secret: str) -> None:
    assert secret in text
    screened = screen(text, find_secrets)
    assert secret not in screened.text
    assert screened.kinds
    assert all(f"[redacted:{kind}]" in screened.text for kind in screened.kinds)


@pytest.mark.parametrize("text", HARMLESS)
def test_a_harmless_text_that_speaks_of_secrets_stays_as_it_is(text: str) -> None:
    assert screen(text, find_secrets) == screen(text, nothing)
    assert screen(text, find_secrets).text == text


def test_what_surrounds_a_secret_stays() -> None:
    screened = screen(f"Use {TOKEN} for the bot, user bob, password: hunter2, host db1.", find_secrets)
    assert (
        screened.text == "Use [redacted:github_token] for the bot, user bob, password: [redacted:password], host db1."
    )
    assert screened.kinds == ("github_token", "password")


def test_offsets_hold_behind_emoji_and_styled_letters() -> None:
    text = f"ﬃ 😀 ½ ﷺ token {TOKEN} ﬃ end"
    assert screen(text, find_secrets).text == "ﬃ 😀 ½ ﷺ token [redacted:github_token] ﬃ end"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a <private>b</private> c", "a [private] c"),
        ("a <PRIVATE >b</ Private > c", "a [private] c"),
        ('a <private reason="x > y">b\nb</private>c', "a [private]c"),
        ("a <private>b <private>c</private> d</private> e", "a [private] e"),
        ("<private>x</private>-<private>y</private>", "[private]-[private]"),
        ("a <private>b", "a [private]"),
        ("a <private>b <private>c</private> d", "a [private]"),
        ("a <private b", "a [private]"),
        ("a <private/> b", "a [private]"),
        ("a &lt;private&gt;b&lt;/private&gt; c", "a [private] c"),
        ("a ＜private＞b＜/private＞ c", "a [private] c"),
        ("a </private> b", "a </private> b"),
        ("std::vec<private_count> and x < private == y", "std::vec<private_count> and x < private == y"),
    ],
)
def test_a_private_span_is_taken_out_and_an_unclosed_one_reaches_to_the_end(text: str, kept: str) -> None:
    assert screen(text, find_secrets).text == kept


def test_screening_twice_is_screening_once() -> None:
    for text, _secret in SECRETS:
        once = screen(text, find_secrets).text
        assert screen(once, find_secrets).text == once, text


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_known_token_is_found_in_any_company(before: str, after: str) -> None:
    assert TOKEN not in screen(f"{before} {TOKEN} {after}", find_secrets).text


def test_nested_data_keeps_its_structure_and_loses_its_secrets() -> None:
    data = {
        "user": "bob",
        "password": "letmein",
        "dbPass": "swordfish",
        "pin": 4471,
        "tokens": 1024,
        "api_key": "YOUR_API_KEY",
        "limits": {"max_tokens": 2048, "rate": 0.5, "on": True, "none": None},
        "notes": ["fine", f"the token is {TOKEN}", ["<private>home</private>"]],
        "card": 4242424242424242,
        TOKEN: 1,
        TOKEN[:-1] + "3": 2,
    }
    screened, kinds = screen_json(data, find_secrets)
    assert screened == {
        "user": "bob",
        "password": "[redacted:password]",
        "dbPass": "[redacted:password]",
        "pin": "[redacted:pin]",
        "tokens": 1024,
        "api_key": "YOUR_API_KEY",
        "limits": {"max_tokens": 2048, "rate": 0.5, "on": True, "none": None},
        "notes": ["fine", "the token is [redacted:github_token]", ["[private]"]],
        "card": "[redacted:card_number]",
        "[redacted:github_token]": 1,
        "[redacted:github_token] 2": 2,
    }
    assert set(kinds) == {"password", "pin", "github_token", "card_number"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["", "plain"]),
        st.lists,
        max_leaves=20,
    )
)
def test_data_without_secrets_is_returned_as_given(data: Any) -> None:
    screened, kinds = screen_json(data, find_secrets)
    assert json.dumps(screened) == json.dumps(data)
    assert kinds == ()


@pytest.mark.parametrize(
    "secret",
    [
        f"token \0{TOKEN}",
        f"token {TOKEN[:9]}\0{TOKEN[9:]}",
        f"token {TOKEN[:9]}\u200b{TOKEN[9:]}",
        f"token {TOKEN[:9]}\ufe0f{TOKEN[9:]}",
        f"a\x1f{TOKEN}",
        "<pri\u200bvate>a1B2a1B2</private>",
        "<\0private>a1B2a1B2</private>",
        "<private\0>a1B2a1B2</private>",
        "my pass\u2060word is hunt\u200ba1B2!",
        "contrasen\u0303a: hunta1B2!",
    ],
)
def test_no_invisible_character_hides_a_secret_in_data(secret: str) -> None:
    screened, kinds = screen_json({"list": [secret], secret: 1, "left": "a\0b \u200b\ufe0f\u202e"}, find_secrets)
    assert "a1B2" not in json.dumps(screened)
    assert screened["left"] == "a\0b \u200b\ufe0f\u202e"
    assert kinds or "[private]" in screened["list"]


def test_an_invisible_character_in_the_name_of_a_field_hides_nothing() -> None:
    assert screen_json({"pass\u200bword": "letmein", "ｐｉｎ": 4471}, find_secrets)[1] == ("password", "pin")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_is_refused_with_its_place(number: float) -> None:
    with pytest.raises(InvalidInput, match=r"^messages\[0\]\.data\.a b\[1\] is no finite number"):
        screen_json({"a\nb": [1.5, number]}, find_secrets, "messages[0].data")


@settings(deadline=None)
@given(
    st.sampled_from(SECRETS),
    st.lists(st.sampled_from(HARMLESS), min_size=1, max_size=5),
    st.lists(st.sampled_from(HARMLESS), max_size=5),
)
def test_texts_read_together_are_screened_like_each_by_itself(
    secret: tuple[str, str], before: list[str], after: list[str]
) -> None:
    texts = [*before, secret[0], *after]
    alone = {text: screen(text, find_secrets) for text in texts}
    assert screen_all(texts, find_secrets) == {text: each for text, each in alone.items() if each.text != text}


@pytest.mark.parametrize("text", [text for text, _ in SECRETS])
def test_no_neighbour_hides_a_secret(text: str) -> None:
    around = ["bits", "example", "order", "x", "days", "is", ":", "commit", "12", "-"]
    assert text in screen_all([*around, text, *reversed(around)], find_secrets)


def test_a_hundred_thousand_small_texts_are_screened_in_few_readings() -> None:
    readings = 0

    def counting(text: str) -> list[Span]:
        nonlocal readings
        readings += 1
        return []

    data = [f"small {n}" for n in range(100_000)]
    assert screen_json(data, counting)[0] == data
    assert readings < 1_000


def test_data_nested_too_deep_is_refused() -> None:
    data: Any = "x"
    for _ in range(200):
        data = [data]
    with pytest.raises(InvalidInput, match="nested more than 100 levels deep; flatten it"):
        screen_json(data, find_secrets)


def test_the_name_of_a_field_labels_its_value() -> None:
    assert screen_field("wifi password", "sunflower", find_secrets).text == "[redacted:password]"
    assert screen_field("favourite flower", "sunflower", find_secrets).text == "sunflower"


def test_a_text_that_could_not_be_read_is_refused_and_not_let_through() -> None:
    def fails(text: str) -> list[Span]:
        raise InvalidInput("The text could not be screened for secrets.")

    with pytest.raises(InvalidInput):
        screen("hello", fails)


def test_the_package_reads_past_surrogates_and_its_own_limits() -> None:
    assert find_secrets(f"\ud800😀 {TOKEN}") == [Span(3, 3 + len(TOKEN), "github_token")]
    many = find_secrets(f"{TOKEN}\n" * 51_000)
    assert len(many) == 51_000
    assert many == sorted(many, key=lambda span: span.start)


def test_a_secret_at_the_edge_of_a_window_is_found_whole() -> None:
    for place in range(redact_secret.WINDOW - len(TOKEN) - 5, redact_secret.WINDOW + 5, 3):
        text = "x " * (place // 2) + TOKEN + " x" * 20_000
        start = text.index(TOKEN)
        assert find_secrets(text) == [Span(start, start + len(TOKEN), "github_token")]


@pytest.mark.parametrize(
    "piece",
    [
        "password ", "password is ", "password for a b ", "password=", "パスワードは", "my my ", "login: ", "token ",
        "4111 ", "1-", "DE89 3704 ", "a://b:c@", "mysql -u x ", "curl ", "<private", "<private ", "</private>",
        "-----BEGIN PRIVATE KEY-----", "Private-Lines: 1 AA ", "SSN 078-05-1120 ", "[redacted:x] ", "eyJ", '"', "ﬃ",
    ],
)  # fmt: skip
def test_no_text_makes_screening_slow(piece: str) -> None:  # a quadratic rule would take minutes
    screen(piece * (200_000 // len(piece)), find_secrets)


def rows(name: str) -> Iterator[dict[str, Any]]:
    if not (EVALUATION / name).exists():
        pytest.skip("the evaluation data is not there")
    for line in (EVALUATION / name).read_text("utf-8").splitlines():
        yield json.loads(line)


def test_of_the_secrets_set_at_least_70_are_found_with_at_most_one_false_alarm() -> None:
    found = false = 0
    for row in rows("secrets_dev.jsonl"):
        kinds = screen(row["text"], find_secrets).kinds
        found += bool(kinds and row["label"])
        false += bool(kinds and not row["label"])
    assert found >= 70
    assert false <= 1


def test_in_3000_turns_of_talk_at_most_two_are_taken_for_secrets() -> None:
    file = EVALUATION / "locomo_dev.json"
    if not file.exists():
        pytest.skip("the evaluation data is not there")
    sessions = [value for sample in json.loads(file.read_text("utf-8")) for value in sample["conversation"].values()]
    turns = [turn["text"] for session in sessions if isinstance(session, list) for turn in session]
    assert len(turns) > 2_900
    assert sum(bool(screen(turn, find_secrets).kinds) for turn in turns) <= 2
