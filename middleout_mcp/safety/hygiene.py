"""What stored text may not contain: controls, invisible and direction characters, and nothing but blanks.

The text itself stays what was written: it is normalised to NFC, which changes no meaning. NFKC would store "x²" as
"x2", "①" as "1" and full-width letters as narrow ones; it is applied where texts are searched for secrets
(`screening`), and to the one-line labels that are compared as a whole. Invisible characters are judged by their
neighbours: a joiner stays after Arabic or Indic script and between emoji, a variation selector after what it can vary,
one in a row. Each function repeats until nothing changes, so that cleaning twice is cleaning once.
"""

import re
import unicodedata
from typing import Literal, TypeAlias

from middleout_mcp.errors import InvalidInput

_Form: TypeAlias = Literal["NFC", "NFKC"]

_NEWLINES = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ENDS_OF_PLANES = "".join(chr(plane << 16 | end) for plane in range(17) for end in (0xFFFE, 0xFFFF))
_FLAGS = [
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
]
_INVISIBLE = (
    "\0-\x08\x0e-\x1f\x7f-\x9f"  # controls but for tab and newline
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u3164\uffa0"  # soft hyphen and fillers
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # spaces of no width, joiners, directions
    "\ufe00-\ufe0f\U000e0100-\U000e01ef"  # variation selectors
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"  # shorthand and musical format, tags
    f"\ufdd0-\ufdef{_ENDS_OF_PLANES}"
)
INVISIBLE = re.compile(f"[{_INVISIBLE}]")
"""A character that shows nothing by itself; some texts need it beside others."""
_SUSPECTS = re.compile("|".join(_FLAGS) + f"|[{_INVISIBLE}]")
_JOINING = re.compile(
    "[\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u18af\ua840-\ua87f\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00011fff]"
)
_VARIED = re.compile("[\u1000-\u109f\u1820-\u18aa\u2200-\u22ff\u2e80-\ua4cf\ua840-\ua87f\uf900-\ufaff\uff01-\uff60]")
_IDEOGRAPH = re.compile("[\u2e80-\ua4cf\uf900-\ufaff\U00020000-\U0003fffd]")
_BLANKS = re.compile(r"\s+")
_MARKUP = re.compile(r"(?:(?:#{1,6}|[>*+•|-]|={2,}|-{2,}|`{3,}|~{3,}|\*{2,}|_{2,})(?:\s+|$))+")


def clean_text(text: str, *, max_bytes: int, what: str = "text") -> str:
    """A text fit to be stored, its meaning and line breaks untouched.

    `what` names it in errors. Raises InvalidInput for a text without a visible character or with more than
    `max_bytes` of UTF-8; nothing is cut.
    """
    _check_bytes(text, max_bytes, what)
    text = _settled(text, "NFC")
    if not text.strip():
        raise InvalidInput(f"{what} is empty; give at least one visible character.")
    _check_bytes(text, max_bytes, what)
    return text


def visible(text: str, form: _Form = "NFC") -> str:
    """The text without controls and what is invisible or turns it round, as `clean_text` (NFC) or `clean_line` (NFKC)
    make it; nothing is checked or cut.
    """
    return _settled(text, form)


def clean_line(text: str, *, what: str, limit: int = 200, faithful: bool = False) -> str:
    """A one-line field without line breaks, repeated blanks or a heading, list or quote mark at its start.

    `what` names the field in errors. `faithful` keeps compatibility characters ("m²"), for values and callers' own
    ids; labels that are compared lose them (NFKC). Raises InvalidInput for an empty or too long line.
    """
    while (cleaned := _one_line(text, "NFC" if faithful else "NFKC")) != text:
        text = cleaned
    if not text:
        raise InvalidInput(f"{what} is empty; leave it out or give at least one visible character.")
    if len(text) > limit:
        raise InvalidInput(f"{what} has {len(text):,} characters, over the limit of {limit:,}; shorten it.")
    return text


def _one_line(text: str, form: _Form) -> str:
    flat = _BLANKS.sub(" ", _settled(text, form)).strip()
    markup = _MARKUP.match(flat)
    return flat[markup.end() :] if markup else flat


def _settled(text: str, form: _Form) -> str:
    if text.isascii() and text.isprintable():
        return text
    while (cleaned := _once(text, form)) != text:
        text = cleaned
    return text


def _once(text: str, form: _Form) -> str:
    text = _SURROGATES.sub("\ufffd", _NEWLINES.sub("\n", text))
    return unicodedata.normalize(form, _SUSPECTS.sub(_kept, text))


def _kept(match: re.Match[str]) -> str:
    """The suspect character itself where its neighbours need it, else nothing."""
    found = match[0]
    if len(found) > 1:  # one of the three flags made of tag characters
        return found
    before = match.string[match.start() - 1] if match.start() else ""
    after = match.string[match.end() : match.end() + 1]
    if found in "\u200c\u200d":
        between_emoji = found == "\u200d" and _is_pictured(before) and _is_pictured(after)
        needed = between_emoji or bool(_JOINING.match(before))
    elif found in "\ufe0e\ufe0f":
        needed = before == "ℹ" or (before > " " and unicodedata.category(before)[0] in "SPN")
    elif "\ufe00" <= found <= "\ufe0d":
        needed = bool(_VARIED.match(before))
    else:
        needed = found >= "\U000e0100" and bool(_IDEOGRAPH.match(before))
    return found if needed else ""


def _is_pictured(character: str) -> bool:
    """Whether an emoji may begin or end with this character: symbols, skin tones, the picture selector."""
    return bool(character) and (character == "\ufe0f" or unicodedata.category(character) in ("So", "Sk", "Sm"))


def _check_bytes(text: str, max_bytes: int, what: str) -> None:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        raise InvalidInput(f"{what} has {size:,} bytes, over the limit of {max_bytes:,}; split it into smaller ones.")
