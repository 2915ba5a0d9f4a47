"""Logging to stderr that cannot carry memory text: of an exception only its type and its frames are written."""

import logging
import os
import sys
import traceback
from types import TracebackType
from typing import Literal, TextIO, TypeAlias

_ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

_FRAMES_SHOWN = 12


def frames(error: BaseException) -> str:
    """The types and frames of an exception and its causes, innermost last; no message, no values of variables."""
    lines: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        lines.append(f"{'caused by ' if lines else ''}{type(current).__name__}")
        shown = traceback.extract_tb(current.__traceback__)[-_FRAMES_SHOWN:]
        lines.extend(f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in shown)
        if isinstance(current, BaseExceptionGroup):
            lines.extend(f"  holds {type(each).__name__}" for each in current.exceptions)
        current = current.__cause__ or current.__context__
    return "\n".join(lines)


class FramesFormatter(logging.Formatter):
    """Formats exceptions, those that other packages log too, with `frames` alone."""

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802 - the name is logging's
        """Only what `frames` gives."""
        return frames(ei[1]) if ei[1] is not None else ""


def log_to_stderr(level: str) -> None:
    """Log to stderr: ours from `level` on, other packages, which may log what they were given, from WARNING."""
    handler = logging.StreamHandler(text_stream("stderr"))
    handler.setFormatter(FramesFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("mcp").setLevel(logging.WARNING)
    logging.getLogger("middleout_mcp").setLevel(level)


def text_stream(name: Literal["stdout", "stderr"]) -> TextIO:
    """That stream, able to take any character: UTF-8 into pipes and files, escapes where a console's code page ends."""
    if getattr(sys, name) is None:  # closed by whoever started us
        setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - it stays open
    stream: TextIO = getattr(sys, name)
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")
    return stream
