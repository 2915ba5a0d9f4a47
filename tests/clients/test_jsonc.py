"""JSON with comments changed in place: what was not asked for stays to the byte, wherever the comments are."""

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from middleout_mcp.clients import jsonc
from middleout_mcp.clients.malformed import Malformed

ENTRY = {"command": "/opt/middleout-mcp", "args": ["--namespace", "ann"]}
SECTION = "mcpServers"

SPACE = st.sampled_from(["", " ", "\n", "\n  ", "\t", "\r\n    ", "  "])
SAID = st.sampled_from(["", " x ", ' "a": {', " , }", " // ", "/*"])
COMMENT = st.one_of(SAID.map(lambda said: f"/*#{said}*/"), SAID.map(lambda said: f"//#{said}\n"))
TRIVIA = st.lists(st.one_of(SPACE, COMMENT), max_size=3).map("".join)
KEY = st.text(alphabet='abé"\\/ ', max_size=4)
SCALAR = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), KEY)


@st.composite
def texts(draw: st.DrawFn, value: Any) -> str:
    """One of the ways to write a value, with comments anywhere."""
    if isinstance(value, dict):
        parts = [
            f"{draw(TRIVIA)}{json.dumps(key)}{draw(TRIVIA)}:{draw(TRIVIA)}{draw(texts(each))}{draw(TRIVIA)}"
            for key, each in value.items()
        ]
        brackets = "{}"
    elif isinstance(value, list):
        parts = [f"{draw(TRIVIA)}{draw(texts(each))}{draw(TRIVIA)}" for each in value]
        brackets = "[]"
    else:
        return json.dumps(value, ensure_ascii=draw(st.booleans()))
    comma = "," if parts and draw(st.booleans()) else ""
    return brackets[0] + ",".join(parts) + comma + draw(TRIVIA) + brackets[1]


VALUES = st.recursive(
    SCALAR, lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(KEY, inner, max_size=2)), max_leaves=5
)
SERVERS = st.dictionaries(st.sampled_from(["a", "b", "memory"]), VALUES, max_size=3)


@st.composite
def files(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """What a file holds, and its text."""
    data = draw(st.dictionaries(KEY, VALUES, max_size=2))
    if draw(st.booleans()):
        data[SECTION] = draw(SERVERS)
    order = draw(st.permutations(list(data)))
    data = {key: data[key] for key in order}
    return data, draw(TRIVIA) + draw(texts(data)) + draw(TRIVIA)


def signs(text: str) -> str:
    """All but what an edit may add or take: white space, and the commas between members."""
    return re.sub(r"[\s,]", "", text)


@given(files())
def test_comments_and_trailing_commas_are_read_over(file: tuple[dict[str, Any], str]) -> None:
    data, text = file
    assert jsonc.read(text) == data


@given(files(), st.sampled_from([ENTRY, {"command": "x"}]))
def test_an_entry_comes_in_and_nothing_else_changes(file: tuple[dict[str, Any], str], entry: dict[str, Any]) -> None:
    data, text = file
    changed = jsonc.with_entry(text, SECTION, "memory", entry)
    assert jsonc.read(changed) == {**data, SECTION: {**data.get(SECTION, {}), "memory": entry}}
    assert jsonc.with_entry(changed, SECTION, "memory", entry) == changed
    if "memory" not in data.get(SECTION, {}):
        assert_inserted(text, changed)


def assert_inserted(text: str, changed: str) -> None:
    """Every sign of the text is in the changed one, in order, around one insertion."""
    before, after = signs(text), signs(changed)
    same = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
    assert any(after.endswith(before[n:]) for n in range(same + 1))


@example(({SECTION: {"a": None}, "": 0}, f'{{"{SECTION}":{{"a":null//# ends in a space \n}},"":0}}'))
@given(files())
def test_taking_it_out_again_gives_the_bytes_back(file: tuple[dict[str, Any], str]) -> None:
    data, text = file
    servers = data.get(SECTION, {})
    if "memory" in servers:
        return
    there_and_back = jsonc.without_entry(jsonc.with_entry(text, SECTION, "memory", ENTRY), SECTION, "memory")
    if servers:
        assert there_and_back == text
    else:
        assert jsonc.read(there_and_back) == {**data, SECTION: {}}
        assert text.count("#") <= there_and_back.count("#")


@given(files())
def test_an_entry_taken_out_leaves_the_others_and_the_comments_around_it(file: tuple[dict[str, Any], str]) -> None:
    data, text = file
    for name in data.get(SECTION, {}):
        changed = jsonc.without_entry(text, SECTION, name)
        rest = {key: value for key, value in data[SECTION].items() if key != name}
        assert jsonc.read(changed) == {**data, SECTION: rest}
        inside = span_of(text, name)
        assert signs(changed).count("#") == text.count("#") - inside.count("#")


def span_of(text: str, name: str) -> str:
    """The text of a server's entry."""
    root = jsonc.parse(text)
    section = root and root.member(SECTION)
    member = section and section.value.member(name)
    assert member
    return text[member.start : member.value.end]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", '{\n  "s": {\n    "m": {\n      "c": 1\n    }\n  }\n}'),
        ('{"s":{"a":{}}}', '{"s":{"a":{},"m":{"c":1}}}'),
        ('{"s": {"a": {}}}', '{"s": {"a": {}, "m": {"c": 1}}}'),
        ('{\n\t"s": {}\n}\n', '{\n\t"s": {\n\t\t"m": {\n\t\t\t"c": 1\n\t\t}\n\t}\n}\n'),
        (
            '{\r\n   "s": {\r\n      "a": {} // one\r\n   }\r\n}',
            '{\r\n   "s": {\r\n      "a": {}, // one\r\n      "m": {\r\n         "c": 1\r\n      }\r\n   }\r\n}',
        ),
        (
            '{\n  "s": {\n    "a": {}, // one\n    // two\n  },\n}',
            '{\n  "s": {\n    "a": {}, // one\n    "m": {\n      "c": 1\n    },\n    // two\n  },\n}',
        ),
        (
            '{\n  "s": {\n    // none yet\n  }\n}',
            '{\n  "s": {\n    // none yet\n    "m": {\n      "c": 1\n    }\n  }\n}',
        ),
        ("", '{\n  "s": {\n    "m": {\n      "c": 1\n    }\n  }\n}\n'),
        ("// mine\n", '// mine\n{\n  "s": {\n    "m": {\n      "c": 1\n    }\n  }\n}\n'),
    ],
)
def test_what_is_new_is_written_like_what_is_there(text: str, expected: str) -> None:
    assert jsonc.with_entry(text, "s", "m", {"c": 1}) == expected


def test_only_what_differs_in_an_entry_is_rewritten() -> None:
    text = '{"s": {"m": {\n  "command": "old", // mine\n  "args": [ "x" ],\n  "env": { "A":"1" }, /* kept */\n}}}'
    changed = jsonc.with_entry(text, "s", "m", {"command": "new", "env": {"A": "1"}})
    assert changed == '{"s": {"m": {\n  "command": "new", // mine\n  "env": { "A":"1" }, /* kept */\n}}}'


def test_of_a_name_that_stands_twice_the_last_one_counts() -> None:
    text = '{"s": {"m": {"c": 1}}, "s": {"m": {"c": 2}}}'
    assert jsonc.with_entry(text, "s", "m", {"c": 3}) == '{"s": {"m": {"c": 1}}, "s": {"m": {"c": 3}}}'


@pytest.mark.parametrize(
    ("text", "line", "column", "word"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', 2, 9, "comma"),
        ('{\n  "a": 1,\n', 3, 1, 'closing "}"'),
        ('{"a": }', 1, 7, "value"),
        ('{"a" 1}', 1, 6, "colon"),
        ("{a: 1}", 1, 2, "double quotes"),
        ("{'a': 1}", 1, 2, "double quotes"),
        ('{"a": "x\n"}', 1, 7, "does not end"),
        ('{"a": "C:\\Users"}', 1, 7, "backslash"),
        ('{"a": yes}', 1, 7, '"yes"'),
        ('{"a": NaN}', 1, 7, "value"),
        ('{"a": 1 /* x }', 1, 9, "comment"),
        ('{"a": [1 2]}', 1, 9, "comma"),
        ("{} {}", 1, 4, "nothing may follow"),
        ("[]", 1, 1, "object"),
        ('{"s": []}', 1, 7, "object"),
        ('{"s": ' + "[" * 300 + "]" * 300 + "}", 1, 207, "brackets"),
    ],
)
def test_a_malformed_text_is_refused_with_its_place_and_the_mend(text: str, line: int, column: int, word: str) -> None:
    with pytest.raises(Malformed) as refused:
        jsonc.with_entry(text, "s", "m", {})
    assert (refused.value.line, refused.value.column) == (line, column)
    assert word in str(refused.value)
