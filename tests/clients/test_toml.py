"""A TOML file changed in place: our table comes and goes, and all else stays to the byte."""

import tomllib

import pytest

from middleout_mcp.clients import toml
from middleout_mcp.clients.malformed import Malformed

SECTION = "mcp_servers"
ENTRY = {"command": "C:\\mid dle\\middleout-mcp.exe", "args": ["--home", 'a "b"'], "env": {"A": "1"}}

FILES = [
    "",
    'model = "x" # mine\n',
    '# top\n[mcp_servers.a]\ncommand = "y" # c\n\n# about tui\n[tui]\ntheme = "z"\n',
    '[mcp_servers.a]\r\ncommand = "y"\r\n\r\n[tui]\r\ntheme = "z"\r\n',
    'mcp_servers.a.command = "x"\n\n[z]\nlist = [\n  ["a"],\n  ["b"]\n]\n',
    'mcp_servers = { a = {command = "x"} } # inline\n',
    "[mcp_servers]\n\n[mcp_servers.a]\ncommand = '''\n[mcp_servers.memory]\n'''\n",
    '[[list]]\nx = 1\n\n\n[mcp_servers."b c".env]\nA = "1"\n\n# the end\n',
]


@pytest.mark.parametrize("text", FILES)
def test_an_entry_comes_in_and_goes_without_a_trace(text: str) -> None:
    changed = toml.with_entry(text, SECTION, "memory", ENTRY)
    before = tomllib.loads(text)
    assert tomllib.loads(changed) == {**before, SECTION: {**before.get(SECTION, {}), "memory": ENTRY}}
    assert changed.startswith(text) or "{ a = " in text
    assert toml.with_entry(changed, SECTION, "memory", ENTRY) == changed
    assert toml.without_entry(changed, SECTION, "memory") == text


@pytest.mark.parametrize("text", FILES)
def test_another_entry_takes_its_place(text: str) -> None:
    changed = toml.with_entry(toml.with_entry(text, SECTION, "memory", ENTRY), SECTION, "memory", {"command": "new"})
    assert tomllib.loads(changed)[SECTION]["memory"] == {"command": "new"}
    assert toml.without_entry(changed, SECTION, "memory") == text


def test_line_ends_are_those_of_the_file() -> None:
    changed = toml.with_entry(FILES[3], SECTION, "memory", ENTRY)
    assert changed.count("\n") == changed.count("\r\n")


def test_what_the_user_wrote_into_the_table_stays_with_its_comments() -> None:
    text = (
        '[mcp_servers.memory]\ncommand = "old"\nstartup_timeout_sec = 20 # slow disk\n\n'
        '[mcp_servers.memory.env]\nA = "1" # mine\n# end\n\n# about tui\n[tui]\ntheme = "z"\n'
    )
    entry = {"command": "new", "startup_timeout_sec": 20, "env": {"A": "1", "B": "2"}}
    changed = toml.with_entry(text, SECTION, "memory", entry)
    assert tomllib.loads(changed)[SECTION]["memory"] == entry
    for kept in ("20 # slow disk\n", 'A = "1" # mine\n', "# end\n", '# about tui\n[tui]\ntheme = "z"\n'):
        assert kept in changed
    assert toml.without_entry(changed, SECTION, "memory") == '# end\n\n# about tui\n[tui]\ntheme = "z"\n'


def test_a_table_between_others_is_cut_out_and_their_comments_stay() -> None:
    text = '[mcp_servers.a]\nx = 1\n\n[mcp_servers.memory]\ncommand = "c"\n\n# about b\n[mcp_servers.b]\ny = 2\n'
    assert (
        toml.without_entry(text, SECTION, "memory") == "[mcp_servers.a]\nx = 1\n\n# about b\n[mcp_servers.b]\ny = 2\n"
    )
    assert toml.without_entry(text, SECTION, "other") == text


@pytest.mark.parametrize(
    ("text", "line", "column", "word"),
    [
        ("a = 1\nb = = 2\n", 2, 5, "invalid"),
        ("a = 1\na = 2\n", 2, 6, "overwrite"),
        ("[x\n", 1, 3, "]"),
        ('x = 1\na = "y\n', 2, 7, "character"),
        ("x = 1\nmcp_servers = 3\n", 2, 1, "must be a table"),
        ("x = [", 1, 6, "invalid"),
    ],
)
def test_a_malformed_text_is_refused_with_its_place(text: str, line: int, column: int, word: str) -> None:
    with pytest.raises(Malformed) as refused:
        toml.with_entry(text, SECTION, "memory", ENTRY)
    assert (refused.value.line, refused.value.column) == (line, column)
    assert word in str(refused.value)
