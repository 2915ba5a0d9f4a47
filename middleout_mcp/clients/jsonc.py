"""JSON with comments and trailing commas, changed in place.

`parse` gives nodes that know where they stand in the text. A change then replaces, inserts or cuts the text of one
member and copies every other byte, so that comments, order, indentation and line ends stay as they are. What is put in
follows its surroundings: the indentation of its neighbours, one line in a one-line file, a trailing comma where the
last member has one. `drop` undoes `put` to the byte, but for white space in an object that was empty before.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from middleout_mcp.clients.malformed import Malformed

_TRIVIA = re.compile(r"(?:[ \t\r\n]|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_SAME_LINE = re.compile(r"[ \t]*(?://[^\r\n]*|/\*.*?\*/)", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD = re.compile(r"[-+.\w]+")
_DEEPEST = 200
_SPACE = " \t\r\n"


@dataclass(frozen=True)
class Member:
    """A key with its value. `start` is where the key begins, `comma` where the comma behind the value is, if any."""

    key: str
    start: int
    value: "Node"
    comma: int | None


@dataclass(frozen=True)
class Node:
    """A value and its place in the text, `end` excluded. `members` is None for what is no object."""

    start: int
    end: int
    value: Any
    members: tuple[Member, ...] | None = None

    def member(self, key: str) -> Member | None:
        """The member of that name; of several the last, as JSON readers take it."""
        return next((each for each in reversed(self.members or ()) if each.key == key), None)


class _Reader:
    """Reads a text from front to back."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fail(self, what: str, at: int | None = None) -> Malformed:
        """The complaint about a place, by default the current one."""
        return Malformed.at(self.text, self.at if at is None else at, what)

    def sign(self) -> str:
        """The next character that is neither space nor comment; empty at the end."""
        found = _TRIVIA.match(self.text, self.at)
        self.at = found.end() if found else self.at
        if self.text.startswith("/*", self.at):
            raise self.fail("this comment does not end; close it with */")
        return self.text[self.at : self.at + 1]

    def document(self) -> Node | None:
        """The one value of the text; None where there is none."""
        if not self.sign():
            return None
        node = self.value(0)
        if self.sign():
            raise self.fail("nothing may follow the closing bracket; remove what is here")
        return node

    def value(self, depth: int) -> Node:
        """The value that begins here."""
        sign = self.sign()
        if depth > _DEEPEST:
            raise self.fail(f"more than {_DEEPEST} brackets are open")
        if sign == "{":
            return self.object(depth)
        if sign == "[":
            return self.array(depth)
        return self.string() if sign == '"' else self.word(sign)

    def string(self) -> Node:
        """A string, at its opening quote."""
        found = _STRING.match(self.text, self.at)
        if found is None:
            raise self.fail('this string does not end on its line; close it with "')
        return self.scalar(found, "a backslash here starts no known escape; write \\\\ for one backslash")

    def word(self, sign: str) -> Node:
        """A number, true, false or null."""
        found = _WORD.match(self.text, self.at)
        if found is None or found[0] in ("NaN", "Infinity", "-Infinity"):
            raise self.fail(f"a value is expected here, not {sign!r}" if sign else "the file ends where a value is due")
        return self.scalar(found, f'{found[0]!r} is no value; a text needs double quotes: "{found[0]}"')

    def scalar(self, found: re.Match[str], complaint: str) -> Node:
        """What was matched, read by the standard library."""
        try:
            value = json.loads(found[0])
        except ValueError:
            raise self.fail(complaint) from None
        self.at = found.end()
        return Node(found.start(), found.end(), value)

    def object(self, depth: int) -> Node:
        """An object, at its opening bracket."""
        start, members = self.at, []
        self.at += 1
        while self.sign() != "}":
            if self.text[self.at : self.at + 1] != '"':
                raise self.fail('a name in double quotes or the closing "}" is expected here')
            key = self.string()
            if self.sign() != ":":
                raise self.fail(f'a colon is missing after "{key.value}"')
            self.at += 1
            value = self.value(depth + 1)
            members.append(Member(key.value, key.start, value, self.comma("}")))
        self.at += 1
        return Node(start, self.at, {each.key: each.value.value for each in members}, tuple(members))

    def array(self, depth: int) -> Node:
        """An array, at its opening bracket."""
        start, items = self.at, []
        self.at += 1
        while self.sign() != "]":
            items.append(self.value(depth + 1).value)
            self.comma("]")
        self.at += 1
        return Node(start, self.at, items)

    def comma(self, closing: str) -> int | None:
        """Where the comma is, which is passed; None at the closing bracket; anything else is an error."""
        end = self.at
        sign = self.sign()
        if sign == ",":
            self.at += 1
            return self.at - 1
        if sign != closing:
            raise self.fail(f'a comma or the closing "{closing}" is missing after this', end)
        return None


def parse(text: str) -> Node | None:
    """The value of a text with its places; None for a text without any. Raises Malformed."""
    return _Reader(text).document()


def read(text: str) -> dict[str, Any]:
    """The object that a text holds, {} for a text without a value. Raises Malformed."""
    root = parse(text)
    if root is None:
        return {}
    if root.members is None:
        raise Malformed.at(text, root.start, "the file must hold an object: put everything between { and }")
    return dict(root.value)


def with_entry(text: str, section: str, name: str, entry: Mapping[str, Any]) -> str:
    """The text whose `section` has exactly this entry by that name; what is the same already is left as it stands."""
    present = _entry(text, section, name)
    if not isinstance(present, dict):
        return put(text, (section, name), dict(entry))
    for key in present.keys() - entry.keys():
        text = drop(text, (section, name, key))
    for key, value in entry.items():
        if key not in present or present[key] != value:
            text = put(text, (section, name, key), value)
    return text


def without_entry(text: str, section: str, name: str) -> str:
    """The text without that entry of the section."""
    return drop(text, (section, name))


def _entry(text: str, section: str, name: str) -> Any:
    entries = read(text).get(section)
    return entries.get(name) if isinstance(entries, dict) else None


def put(text: str, path: tuple[str, ...], value: Any) -> str:
    """The text with the value at a path of keys; objects on the way are made. Raises Malformed where one is none."""
    root = parse(text)
    layout = _Layout(text, root)
    if root is None:
        start = "" if not text or text.endswith("\n") else layout.newline
        return text + start + layout.render(_nested(path, value), "", False) + layout.newline
    begin, one_line, node = root.start, False, root
    for depth, key in enumerate(path):
        if node.members is None:
            what = f'"{path[depth - 1]}"' if depth else "the file"
            raise Malformed.at(text, node.start, f"{what} must hold an object, written between {{ and }}")
        member = node.member(key)
        if member is None:
            return _edited(text, _insertion(layout, node, key, _nested(path[depth + 1 :], value)))
        begin, one_line, node = member.start, layout.on_one_line(node), member.value
    return _edited(text, [(node.start, node.end, layout.render(value, layout.indent(begin), one_line))])


def drop(text: str, path: tuple[str, ...]) -> str:
    """The text without the member at a path of keys; the same text where there is none."""
    node = parse(text)
    for key in path[:-1]:
        member = node.member(key) if node else None
        node = member.value if member else None
    member = node.member(path[-1]) if node else None
    if node is None or member is None:
        return text
    return _edited(text, list(_cut(text, node, member)))


def _nested(path: tuple[str, ...], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    """The text with spans replaced, none of which overlap."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


class _Layout:
    """How a text is written, so that what is new looks like it."""

    def __init__(self, text: str, root: Node | None) -> None:
        self.text, self.root = text, root
        first = text.find("\n")
        self.newline = "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"
        members = (root.members if root else None) or ()
        own_line = next((each for each in members if self.starts_line(each.start)), None)
        self.unit = (self.indent(own_line.start) if own_line else "") or "  "

    def starts_line(self, at: int) -> bool:
        """Whether only white space stands before a place on its line, and a line before that."""
        begin = self.text.rfind("\n", 0, at) + 1
        return begin > 0 and not self.text[begin:at].strip()

    def indent(self, at: int) -> str:
        """The white space at the beginning of the line of a place."""
        line = self.text[self.text.rfind("\n", 0, at) + 1 : at]
        return line[: len(line) - len(line.lstrip())]

    def on_one_line(self, node: Node) -> bool:
        """Whether an object is written on one line, and so is what comes into it."""
        if "\n" in self.text[node.start : node.end]:
            return False
        return bool(node.members) or (self.root is not node and self.root is not None and self.on_one_line(self.root))

    def render(self, value: Any, indent: str, one_line: bool) -> str:
        """A value as text, its later lines indented."""
        if one_line:
            spaced = self.root is not None and ": " in self.text[self.root.start : self.root.end]
            return json.dumps(value, ensure_ascii=False, separators=(", ", ": ") if spaced else (",", ":"))
        return json.dumps(value, ensure_ascii=False, indent=self.unit).replace("\n", self.newline + indent)

    def after_comments(self, at: int) -> int:
        """The place behind the comments that follow on the same line."""
        while found := _SAME_LINE.match(self.text, at):
            at = found.end()
        return at


def _insertion(layout: _Layout, node: Node, key: str, value: Any) -> list[tuple[int, int, str]]:
    """The edits that put a new member at the end of an object."""
    last = node.members[-1] if node.members else None
    one_line = layout.on_one_line(node)
    if last is not None and layout.starts_line(last.start):
        indent = layout.indent(last.start)
    else:
        indent = layout.indent(node.start) + layout.unit
    member = layout.render({key: value}, "", True)[1:-1] if one_line else _member(layout, key, value, indent)
    if last is None:
        return [_into_empty(layout, node, member, indent, one_line)]
    before = (" " if ", " in layout.text[node.start : node.end] or ": " in member else "") if one_line else ""
    before = before if one_line else layout.newline + indent
    if last.comma is not None:
        place = layout.after_comments(last.comma + 1)
        return [(place, place, before + member + ",")]
    end = last.value.end
    place = layout.after_comments(end)
    return [(end, end, "," + before + member)] if place == end else [(end, end, ","), (place, place, before + member)]


def _member(layout: _Layout, key: str, value: Any, indent: str) -> str:
    return f"{json.dumps(key, ensure_ascii=False)}: {layout.render(value, indent, False)}"


def _into_empty(layout: _Layout, node: Node, member: str, indent: str, one_line: bool) -> tuple[int, int, str]:
    """The edit that puts the first member into an object, behind its comments."""
    inner = layout.text[node.start + 1 : node.end - 1]
    comments = list(_COMMENT.finditer(inner))
    place = node.start + 1 + (comments[-1].end() if comments else 0)
    if one_line:
        return place, place, member
    if "\n" in layout.text[place : node.end]:
        return place, place, layout.newline + indent + member
    return place, node.end - 1, layout.newline + indent + member + layout.newline + layout.indent(node.start)


def _cut(text: str, node: Node, member: Member) -> Iterator[tuple[int, int, str]]:
    """The edits that take a member out, with the white space before it and one comma."""
    members = node.members or ()
    index = members.index(member)
    before = members[index - 1].comma if index else None
    begin = (node.start if before is None else before) + 1
    if before is not None and member.comma is None:
        yield before, before + 1, ""
    end = member.value.end
    if member.comma is not None and text[end : member.comma].strip() == "":
        end = member.comma + 1
    elif member.comma is not None:
        yield member.comma, member.comma + 1, ""
    gap = text[begin : member.start]
    comments = list(_COMMENT.finditer(gap))
    start = begin + max(len(gap.rstrip(_SPACE)), comments[-1].end() if comments else 0)
    behind_line_comment = bool(comments) and comments[-1][0].startswith("//")
    if behind_line_comment and not text.startswith(("\n", "\r\n"), end):
        start = text.index("\n", start) + 1
    if index == 0 and member.comma is not None and "\n" not in gap:
        end += len(text[end:]) - len(text[end:].lstrip(" \t"))
    if len(members) == 1 and not (text[node.start + 1 : start] + text[end : node.end - 1]).strip():
        start, end = node.start + 1, node.end - 1
    yield start, end, ""
