"""Screening of many texts, and of nested data, which may hold a hundred thousand of them.

Most of them hold nothing, so they are read joined; only where something is found in a piece of that, each text of it is
read by itself, which decides. Data comes back exactly as given but for what had to go.
"""

import math
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from middleout_mcp.errors import InvalidInput
from middleout_mcp.ports import FindSecrets
from middleout_mcp.safety.hygiene import INVISIBLE
from middleout_mcp.safety.labelled import secret_by_name
from middleout_mcp.safety.screening import Screened, screen

MAX_DEPTH = 100
_APART = "\n.\n"
"""Between two texts: ends a clause and a line, so that the one is no context of the other."""
_TOGETHER = 4_096  # characters read at once
_SHORTEST_NUMBER = 10**8  # of those that are secrets without a label, such as cards
_ANY_SECRET = "a1B2c3D4e5F6g7H8"  # what every name of a secret would stand for
_NAME_SHOWN = 40


def screen_all(texts: Iterable[str], find_secrets: FindSecrets) -> dict[str, Screened]:
    """Those of the texts in which something was found, as they may be stored. Raises InvalidInput as `screen` does."""
    changed: dict[str, Screened] = {}
    for together in _pieces(dict.fromkeys(texts)):
        whole = _APART.join(together)
        if len(together) > 1 and screen(whole, find_secrets).text == whole:
            continue
        for text in together:
            screened = screen(text, find_secrets)
            if screened.text != text:
                changed[text] = screened
    return changed


def _pieces(texts: Iterable[str]) -> Iterator[list[str]]:
    together: list[str] = []
    length = 0
    for text in texts:
        if together and length + len(text) > _TOGETHER:
            yield together
            together, length = [], 0
        together.append(text)
        length += len(text) + len(_APART)
    if together:
        yield together


def screen_json(value: Any, find_secrets: FindSecrets, what: str = "data") -> tuple[Any, tuple[str, ...]]:
    """Nested data screened, and the kinds replaced: strings, names of fields, and numbers that are secrets.

    What stands under a name such as `password` is replaced whole. Raises InvalidInput, with `what` as the place, where
    it is nested too deep or holds a number that is none.
    """
    texts = list(_texts(value, (what,)))
    work = _Screening(screen_all(texts, find_secrets), {}, {})
    return work.value(value, ""), tuple(work.kinds)


def _texts(value: Any, place: tuple[str | int, ...]) -> Iterator[str]:
    """Every text in the data, names of fields and numbers that could be secrets included."""
    if len(place) - 1 > MAX_DEPTH:
        raise InvalidInput(f"{place[0]} is nested more than {MAX_DEPTH} levels deep; flatten it.")
    if isinstance(value, dict):
        for name, item in value.items():
            yield str(name)
            yield from _texts(item, (*place, str(name)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts(item, (*place, index))
    elif isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(
            f"{_spelled(place)} is no finite number, and JSON has no other; give a number, text or null."
        )
    elif isinstance(value, str) or _is_long(value):
        yield str(value)


def _spelled(place: tuple[str | int, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else "." + " ".join(part.split())[:_NAME_SHOWN] for part in place)
    return INVISIBLE.sub("", "".join(parts)).removeprefix(".")


def _is_long(value: Any) -> bool:
    return isinstance(value, int) and abs(value) >= _SHORTEST_NUMBER


@dataclass(frozen=True, slots=True)
class _Screening:
    """Puts what was found in its texts into the data."""

    changed: dict[str, Screened]
    kinds: dict[str, None]
    labels: dict[str, bool]
    """Which names of fields could name a secret."""

    def value(self, value: Any, name: str) -> Any:
        """The value of a field of this name, screened."""
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list | tuple):
            return [self.value(item, name) for item in value]
        if not isinstance(value, str | int) or isinstance(value, bool):
            return value
        kind = self._named(name, str(value))
        if kind is not None:
            self.kinds[kind] = None
            return f"[redacted:{kind}]"
        return self._text(str(value), value)

    def _object(self, value: dict[Any, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for given, item in value.items():
            screened = self._text(str(given), str(given))
            name, count = screened, 1
            while name in result:  # two names that became the same
                count += 1
                name = f"{screened} {count}"
            result[name] = self.value(item, str(given))
        return result

    def _text(self, text: str, given: Any) -> Any:
        screened = self.changed.get(text)
        if screened is None:
            return given
        self.kinds.update(dict.fromkeys(screened.kinds))
        return screened.text

    def _named(self, name: str, value: str) -> str | None:
        if name not in self.labels:
            self.labels[name] = secret_by_name(_plain(name), _ANY_SECRET) is not None
        return secret_by_name(_plain(name), _plain(value)) if self.labels[name] else None


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", INVISIBLE.sub("", text))
