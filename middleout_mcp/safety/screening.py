"""Nothing secret goes further: private spans are taken out, and secrets replaced by their kind.

Detection reads an NFKC copy of the text whose characters are mapped back, so that full-width or styled letters hide
nothing while the stored text stays as it was written; where the text holds invisible characters, as the data of a
message may, it reads a copy without them as well. Known formats are found, not all secrets.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from middleout_mcp.ports import FindSecrets, Span
from middleout_mcp.safety.formats import secrets_by_form
from middleout_mcp.safety.hygiene import INVISIBLE
from middleout_mcp.safety.labelled import labelled_secrets, secret_by_name
from middleout_mcp.safety.looks import is_common

PRIVATE = "[private]"

# An opening tag counts even where its `>` is missing, and one that is never closed reaches to the end of the text.
_TAG = re.compile(
    r"(?i)(?P<close><\s*/\s*private(?:\s[^<>]*)?>|&lt;\s*/\s*private\s*&gt;)"
    r"|<private(?![\w-])(?:[^<>]*>)?|<\s+private(?:\s[^<>]*)?>|&lt;\s*private(?![\w-])[^<>&]*&gt;"
)
_CLUSTER = re.compile("[^\u0300-\u034e\u0350-\u036f][\u0300-\u034e\u0350-\u036f]*|.", re.DOTALL)
"""A character with its accents, which NFKC makes one."""
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
    spans: list[Span] = []
    for shadow, places in _shadows(text):
        found = _merged([*find_secrets(shadow), *secrets_by_form(shadow), *labelled_secrets(shadow)], shadow)
        spans += found if places is None else [Span(places[each.start], places[each.end], each.kind) for each in found]
    spans = _united(spans)
    pieces: list[str] = []
    position = 0
    for span in spans:
        pieces += (text[position : span.start], f"[redacted:{span.kind}]")
        position = span.end
    pieces.append(text[position:])
    return Screened("".join(pieces), tuple(dict.fromkeys(span.kind for span in spans)))


def screen_field(name: str, value: str, find_secrets: FindSecrets) -> Screened:
    """The value of a named field: replaced whole where the name says that it is a secret, else screened as a text."""
    kind = secret_by_name(name, value)
    if kind is not None:
        return Screened(f"[redacted:{kind}]", (kind,))
    return screen(value, find_secrets)


def _without_private(text: str) -> str:
    for clean in (True, False) if INVISIBLE.search(text) else (False,):
        text = _outside_private(text, *_shadow(text, clean))
    return text


def _outside_private(text: str, shadow: str, places: list[int] | None) -> str:
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


def _shadows(text: str) -> list[tuple[str, list[int] | None]]:
    """What is read to find secrets: an invisible character may split one, or be what keeps two words apart."""
    read = [_shadow(text, False)]
    return [*read, _shadow(text, True)] if INVISIBLE.search(text) else read


def _shadow(text: str, clean: bool) -> tuple[str, list[int] | None]:
    """The text in NFKC, without what is invisible where it is to be `clean`, and for each of its characters (and the
    end) the place in `text`; None where it is the same.
    """
    if not clean and (text.isascii() or unicodedata.is_normalized("NFKC", text)):
        return text, None
    pieces: list[str] = []
    places: list[int] = []
    for match in _CLUSTER.finditer(text):
        if clean and INVISIBLE.match(match[0]):
            continue
        piece = unicodedata.normalize("NFKC", match[0])
        pieces.append(piece)
        places += [match.start()] * len(piece)
    return "".join(pieces), [*places, len(text)]


def _merged(spans: Iterable[Span], shadow: str) -> list[Span]:
    """The spans in order, overlapping ones united under the kind of the first, without what was redacted before."""
    done = [found.span() for found in _REDACTED.finditer(shadow)]
    starts = [start for start, _end in done]
    kept: list[Span] = []
    for span in spans:
        place = bisect_right(starts, span.start) - 1
        if not ((place >= 0 and span.end <= done[place][1]) or is_common(shadow[span.start : span.end])):
            kept.append(span)
    return _united(kept)


def _united(spans: Sequence[Span]) -> list[Span]:
    """The spans in order; of those that overlap, one from the first to the last character."""
    united: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if united and span.start < united[-1].end:
            united[-1] = Span(united[-1].start, max(united[-1].end, span.end), united[-1].kind)
        else:
            united.append(span)
    return united
