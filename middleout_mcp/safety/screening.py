"""Nothing secret goes further: private spans are taken out, and secrets replaced by their kind.

Detection reads an NFKC copy of the text whose characters are mapped back, so that full-width or styled letters hide
nothing while the stored text stays as it was written. Texts come here cleaned (`hygiene`), so that no invisible
character splits a secret. Known formats are found, not all secrets.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from middleout_mcp.errors import InvalidInput
from middleout_mcp.ports import FindSecrets, Span
from middleout_mcp.safety.formats import secrets_by_form
from middleout_mcp.safety.labelled import labelled_secrets, secret_by_name
from middleout_mcp.safety.looks import is_common

PRIVATE = "[private]"
MAX_DEPTH = 100

# An opening tag counts even where its `>` is missing, and one that is never closed reaches to the end of the text.
_TAG = re.compile(
    r"(?i)(?P<close><\s*/\s*private(?:\s[^<>]*)?>|&lt;\s*/\s*private\s*&gt;)"
    r"|<private(?![\w-])(?:[^<>]*>)?|<\s+private(?:\s[^<>]*)?>|&lt;\s*private(?![\w-])[^<>&]*&gt;"
)
_REDACTED = re.compile(r"\[redacted:[\w-]{1,60}\]|\[private\]")


@dataclass(frozen=True, slots=True)
class Screened:
    """A text fit to be stored, and the kinds of secrets that were replaced in it, in order, each once."""

    text: str
    kinds: tuple[str, ...]


def screen(text: str, find_secrets: FindSecrets) -> Screened:
    """Take out `<private>…</private>` and replace secrets by `[redacted:kind]`.

    Raises InvalidInput when `find_secrets` could not read the text: then it must not be stored.
    """
    text = _without_private(text)
    shadow, places = _shadow(text)
    spans = _merged([*find_secrets(shadow), *secrets_by_form(shadow), *labelled_secrets(shadow)], shadow)
    pieces: list[str] = []
    position = 0
    for span in spans:
        start, end = (span.start, span.end) if places is None else (places[span.start], places[span.end])
        pieces += (text[position:start], f"[redacted:{span.kind}]")
        position = end
    pieces.append(text[position:])
    return Screened("".join(pieces), tuple(dict.fromkeys(span.kind for span in spans)))


def screen_json(value: Any, find_secrets: FindSecrets) -> tuple[Any, tuple[str, ...]]:
    """Nested data screened, and the kinds replaced: strings, names of fields, and numbers that are secrets.

    What stands under a name such as `password` is replaced whole. Raises InvalidInput where it is nested too deep.
    """
    kinds: dict[str, None] = {}
    screened = _screen_value(value, "", find_secrets, kinds, 0)
    return screened, tuple(kinds)


def screen_field(name: str, value: str, find_secrets: FindSecrets) -> Screened:
    """The value of a named field: replaced whole where the name says that it is a secret, else screened as a text."""
    kind = secret_by_name(name, value)
    if kind is not None:
        return Screened(f"[redacted:{kind}]", (kind,))
    return screen(value, find_secrets)


def _screen_value(value: Any, name: str, find_secrets: FindSecrets, kinds: dict[str, None], depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise InvalidInput(f"data is nested more than {MAX_DEPTH} levels deep; flatten it.")
    if isinstance(value, dict):
        return _screen_object(value, find_secrets, kinds, depth)
    if isinstance(value, list | tuple):
        return [_screen_value(item, name, find_secrets, kinds, depth + 1) for item in value]
    if isinstance(value, str):
        screened = screen_field(name, value, find_secrets)
    elif isinstance(value, int) and not isinstance(value, bool):
        screened = screen_field(name, str(value), find_secrets)
        if not screened.kinds:
            return value
    else:
        return value
    kinds.update(dict.fromkeys(screened.kinds))
    return screened.text


def _screen_object(value: dict[Any, Any], find_secrets: FindSecrets, kinds: dict[str, None], depth: int) -> Any:
    result: dict[str, Any] = {}
    for given, item in value.items():
        screened = screen(str(given), find_secrets)
        kinds.update(dict.fromkeys(screened.kinds))
        name, count = screened.text, 1
        while name in result:  # two names that became the same
            count += 1
            name = f"{screened.text} {count}"
        result[name] = _screen_value(item, str(given), find_secrets, kinds, depth + 1)
    return result


def _without_private(text: str) -> str:
    shadow, places = _shadow(text)
    pieces: list[str] = []
    position = depth = 0
    for tag in _TAG.finditer(shadow):
        start, end = tag.span() if places is None else (places[tag.start()], places[tag.end()])
        if not tag["close"]:
            if depth == 0:
                pieces += (text[position:start], PRIVATE)
            depth += 1
        elif depth:
            depth -= 1
            position = end
    return "".join(pieces) if depth else "".join(pieces) + text[position:]


def _shadow(text: str) -> tuple[str, list[int] | None]:
    """The text in NFKC, and for each of its characters (and the end) the place in `text`; None where it is the same."""
    if text.isascii() or unicodedata.is_normalized("NFKC", text):
        return text, None
    pieces: list[str] = []
    places: list[int] = []
    for place, character in enumerate(text):
        piece = unicodedata.normalize("NFKC", character)
        pieces.append(piece)
        places += [place] * len(piece)
    return "".join(pieces), [*places, len(text)]


def _merged(spans: Iterable[Span], shadow: str) -> list[Span]:
    """The spans in order, overlapping ones united under the kind of the first, without what was redacted before."""
    done = [found.span() for found in _REDACTED.finditer(shadow)]
    starts = [start for start, _end in done]
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        place = bisect_right(starts, span.start) - 1
        if (place >= 0 and span.end <= done[place][1]) or is_common(shadow[span.start : span.end]):
            continue
        if merged and span.start < merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end), merged[-1].kind)
        else:
            merged.append(span)
    return merged
