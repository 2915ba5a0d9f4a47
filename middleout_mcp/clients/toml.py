"""Our entry in a TOML file, changed in place: a table `[SECTION.NAME]`.

New tables and keys are added, and tables cut out, by whole lines: tomlkit holds that comments between two tables belong
to the first. Values are changed by tomlkit, and so is all that is not written as a table with a header. What comes out
is read again with the standard library: it must hold what was there, and our entry, and nothing else.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

import tomlkit
from tomlkit.exceptions import NonExistentKey, TOMLKitError

from middleout_mcp.clients.malformed import Malformed

_PLACE = re.compile(r"(.*) \(at line (\d+), column (\d+)\)$", re.DOTALL)
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def read(text: str) -> dict[str, Any]:
    """What a text holds. Raises Malformed."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _PLACE.match(str(error))
        if found:
            raise Malformed(_lowered(found[1]), int(found[2]), int(found[3])) from None
        raise Malformed.at(text, len(text), _lowered(str(error))) from None


def with_entry(text: str, section: str, name: str, entry: Mapping[str, Any]) -> str:
    """The text whose `section` has exactly this entry by that name. Raises Malformed where that cannot be done."""
    data = read(text)
    entries = data.get(section, {})
    if not isinstance(entries, dict):
        raise Malformed(f'"{section}" must be a table', *_line_of(text, section))
    wanted = {**data, section: {**entries, name: dict(entry)}}
    if name not in entries:
        ways: tuple[Callable[[], str], ...] = (
            lambda: _appended(text, section, name, entry),
            lambda: _inside(text, section, name, entry),
        )
    else:
        ways = (lambda: _by_lines(text, section, name, entry), lambda: _inside(text, section, name, entry))
    return _first_that_holds(ways, wanted, text, section)


def without_entry(text: str, section: str, name: str) -> str:
    """The text without that entry of the section. Raises Malformed where that cannot be done."""
    data = read(text)
    entries = data.get(section)
    if not isinstance(entries, dict) or name not in entries:
        return text
    wanted = {**data, section: {key: value for key, value in entries.items() if key != name}}
    ways = (lambda: _without_lines(text, section, name), lambda: _inside(text, section, name, None))
    return _first_that_holds(ways, wanted, text, section)


def _first_that_holds(ways: tuple[Callable[[], str], ...], wanted: dict[str, Any], text: str, section: str) -> str:
    for way in ways:
        try:
            changed = way()
            if _without_empty(tomllib.loads(changed), section) == _without_empty(wanted, section):
                return changed
        except (tomllib.TOMLDecodeError, TOMLKitError):
            continue
    complaint = f"this way of writing {section} cannot be changed safely; change it by hand"
    raise Malformed(complaint, *_line_of(text, section))


def _without_empty(data: dict[str, Any], section: str) -> dict[str, Any]:
    """The data, an empty section counting as none: a table without entries need not be written."""
    return {key: value for key, value in data.items() if key != section or value}


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _line_of(text: str, section: str) -> tuple[int, int]:
    """Line and column where a section is first named."""
    found = re.search(rf"^[ \t\[]*{re.escape(section)}\b", text, re.MULTILINE)
    return (text.count("\n", 0, found.start()) + 1 if found else 1), 1


def _newline(text: str) -> str:
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def _value(value: Any) -> str:
    """A value on one line; a table becomes an inline one."""
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        table.update(value)
        return str(table.as_string())
    return str(tomlkit.item(value).as_string())


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _value(key)


def _appended(text: str, section: str, name: str, entry: Mapping[str, Any]) -> str:
    newline = _newline(text)
    gap = newline if text.endswith("\n") else newline * 2 if text else ""
    lines = [f"[{section}.{_key(name)}]", *(f"{_key(key)} = {_value(value)}" for key, value in entry.items())]
    return text + gap + "".join(line + newline for line in lines)


def _inside(text: str, section: str, name: str, entry: Mapping[str, Any] | None) -> str:
    """The text after tomlkit changed the entry, or took it out where it is None."""
    document = tomlkit.parse(text)
    entries: Any = document[section]
    if entry is None:
        del entries[name]
    elif name not in entries:
        table = tomlkit.inline_table()
        table.update(entry)
        entries[name] = table
    else:
        _make_equal(entries[name], entry)
    return str(tomlkit.dumps(document))


def _make_equal(present: Any, wanted: Mapping[str, Any]) -> None:
    """Change what differs in a table, and in the tables inside it."""
    for key in [key for key in present if key not in wanted]:
        del present[key]
    for key, value in wanted.items():
        if isinstance(value, Mapping) and isinstance(present.get(key), Mapping):
            _make_equal(present[key], value)
        elif key not in present or present[key] != value:
            present[key] = value


def _by_lines(text: str, section: str, name: str, entry: Mapping[str, Any]) -> str:
    """The text with the entry changed, and keys that are new on lines of their own below the last of their table.

    tomlkit would put them below the comments there, which may belong to the next table.
    """
    present = tomllib.loads(text)[section][name]
    old = {key: value for key, value in entry.items() if key in present}
    new: list[tuple[tuple[str, ...], str, Any]] = [
        ((section, name), key, value) for key, value in entry.items() if key not in present
    ]
    for key, value in old.items():
        if isinstance(value, Mapping) and isinstance(present[key], Mapping):
            old[key] = {inner: each for inner, each in value.items() if inner in present[key]}
            new += [((section, name, key), inner, each) for inner, each in value.items() if inner not in present[key]]
    text = _inside(text, section, name, old)
    for table, key, value in new:
        lines = text.splitlines(keepends=True)
        spans = [span for keys, *span in _tables(lines) if keys == table]
        if not spans:
            raise NonExistentKey(key)  # not written as a table of its own
        lines.insert(spans[0][1], f"{_key(key)} = {_value(value)}{_newline(text)}")
        text = "".join(lines)
    return text


def _tables(lines: list[str]) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """The tables that have a header line: keys, index of that line, index behind the last line that is theirs.

    Blank lines and comments at the end belong to what comes next. A line that looks like a header inside a long text
    is none: what stands before a header is TOML by itself.
    """
    headers = [(at, keys) for at, line in enumerate(lines) if (keys := _header(line)) and _holds("".join(lines[:at]))]
    for (at, keys), following in zip_longest(headers, headers[1:]):
        end = following[0] if following else len(lines)
        while not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#"):
            end -= 1
        yield keys, at, end


def _header(line: str) -> tuple[str, ...] | None:
    """The keys of a line that looks like the header of a table; None for any other."""
    if not line.lstrip().startswith("[") or not _holds(line):
        return None
    data: Any = tomllib.loads(line)
    keys = []
    while data:
        ((key, data),) = data.items()
        keys.append(key)
        data = data[0] if isinstance(data, list) else data
    return tuple(keys)


def _holds(text: str) -> bool:
    """Whether a text is TOML."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _without_lines(text: str, section: str, name: str) -> str:
    """The text without the entry's tables, each with one blank line before it."""
    lines = text.splitlines(keepends=True)
    for keys, begin, end in reversed(list(_tables(lines))):
        if keys[:2] == (section, name):
            blank = begin > 0 and not lines[begin - 1].strip()
            del lines[begin - blank : end]
    return "".join(lines)
