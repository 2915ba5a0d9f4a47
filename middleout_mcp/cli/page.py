"""What a person reads: tables that fit a terminal, plain aligned text in a pipe, and times in their own zone.

Whatever is printed was written by someone else: control characters are spelt out, so that no stored text can move the
cursor or colour the screen, and a console that lacks a character gets its escape instead of an error.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from middleout_mcp.cli.report import output_stream

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_GAP = "  "


class Page:
    """One answer, printed from top to bottom on standard output."""

    def __init__(self, zone: tzinfo) -> None:
        stream = output_stream()
        self._zone = zone
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=False)
        self._terminal = stream.isatty()

    def line(self, text: str = "", *, style: str = "", indent: int = 0) -> None:
        """A line or a paragraph; line breaks of the text are kept, each line indented."""
        shown = _safe(text)
        if self._terminal:
            self._console.print(Padding(Text(shown, style=style), (0, 0, 0, indent), expand=False))
            return
        for each in shown.splitlines() or [""]:
            print(f"{' ' * indent}{each}".rstrip())

    def heading(self, text: str) -> None:
        """The title of a part, after an empty line."""
        self.line()
        self.line(text, style="bold")

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        indent: int = 0,
        title: str | None = None,
        styles: Mapping[str, str] | None = None,
    ) -> None:
        """Rows under their column names; the last column may be long. Columns without any value are left out, and so
        are the names where all are empty. Nothing is printed for no rows. `styles` are those of rows by first cell.
        """
        used = [index for index in range(len(columns)) if any(row[index] for row in rows)]
        names = [columns[index] for index in used]
        cells = [[_safe(" ".join(row[index].split())) for index in used] for row in rows]
        if not used:
            return
        if title is not None:
            self.heading(title)
        if self._terminal:
            self._wrapped(names, cells, indent, styles or {})
        else:
            _aligned(names, cells, indent)

    def _wrapped(
        self, names: Sequence[str], cells: Sequence[Sequence[str]], indent: int, styles: Mapping[str, str]
    ) -> None:
        table = Table(box=None, show_header=any(names), header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        for name in names[:-1]:
            table.add_column(name, no_wrap=True)
        table.add_column(names[-1], overflow="fold")
        for row in cells:
            table.add_row(*map(Text, row), style=styles.get(row[0], ""))
        self._console.print(Padding(table, (0, 0, 0, indent), expand=False))

    def fields(self, values: Mapping[str, Any], *, title: str | None = None) -> None:
        """Names with their values; what is empty is left out."""
        rows = [(str(name).replace("_", " "), self.value(value)) for name, value in values.items()]
        self.table(("", ""), [row for row in rows if row[1]], indent=2, title=title)

    def value(self, value: Any) -> str:
        """A value on one line: times in the reader's zone, whole numbers with separators."""
        match value:
            case None | "" | []:
                return ""
            case bool():
                return "yes" if value else "no"
            case int():
                return f"{value:,}"
            case str() if _TIME.fullmatch(value):
                return self.time(value)
            case Mapping():
                parts = ((name, self.value(each)) for name, each in value.items())
                return ", ".join(f"{name.replace('_', ' ')} {part}" for name, part in parts if part)
            case list() | tuple():
                return "; ".join(map(self.value, value))
        return str(value)

    def time(self, moment: str) -> str:
        """An ISO 8601 time as date and time in the reader's zone; midnight as the date alone."""
        local = datetime.fromisoformat(moment).astimezone(self._zone)
        return local.strftime("%Y-%m-%d" if local.hour == local.minute == 0 else "%Y-%m-%d %H:%M")


def size(count: int) -> str:
    """A number of bytes as a person says it."""
    value, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.0f} {units[0]}" if value >= 10 or units[0] == "bytes" else f"{value:.1f} {units[0]}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 memory`, `2 memories`."""
    plural = many or (f"{one[:-1]}ies" if one.endswith("y") else f"{one}s")
    return f"{count:,} {one if count == 1 else plural}"


def short(text: str, limit: int = 300) -> str:
    """A text on one line, cut where it is long: `show` has it whole, and so has JSON."""
    folded = " ".join(text.split())
    return folded if len(folded) <= limit else f"{folded[: limit - 1]}…"


def _safe(text: str) -> str:
    return _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def _aligned(names: Sequence[str], cells: Sequence[Sequence[str]], indent: int) -> None:
    rows = [list(names), *cells] if any(names) else cells
    widths = [max(cell_len(row[index]) for row in rows) for index in range(len(names) - 1)]
    for row in rows:
        padded = [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=False)]
        print(" " * indent + _GAP.join([*padded, row[-1]]).rstrip())
