"""Standard input as the protocol needs it: it can be ended from within, and every line of it can be parsed.

The SDK reads lines in a thread that nothing can interrupt, so a signal alone would leave it waiting. Here the thread
waits for three things at once: the client's bytes, a byte in a pipe of our own (`end`), and the hang-up of standard
output, which tells that the client is gone even while another process holds our input open. The last two look like the
end of input, so that there is one way out for all of them. Windows cannot wait like that: there, input ends when the
client closes it.
"""

import io
import os
import re
import sys
from collections.abc import Callable
from typing import Any

_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)


def mended(line: bytes) -> bytes:
    """The JSON line with escaped half surrogate pairs replaced by U+FFFD.

    JavaScript clients write them when a text was cut inside an emoji; the SDK drops such a line without an answer.
    """
    if b"\\ud" not in line and b"\\uD" not in line:
        return line
    return _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], line)


class MendedLines(io.RawIOBase):
    """The lines of another stream, mended; `ended` is called once when there are no more."""

    def __init__(self, lines: io.BufferedIOBase, ended: Callable[[], None]) -> None:
        self._lines = lines
        self._ended = ended
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """True: this is an input."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with as much of the current line as fits; 0 at the end."""
        if not self._rest:
            self._rest = memoryview(mended(self._lines.readline()))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        if not count:
            self._ended()
        return count


class Wire(io.RawIOBase):
    """The bytes of a descriptor until its end, until `end` is called, or until nobody reads `output` any more."""

    def __init__(self, source: int, output: int) -> None:
        self._source = source
        self._output = output
        self._woken, self._waker = os.pipe()

    def readable(self) -> bool:
        """True: this is an input."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Wait for bytes and read them; 0 at the end."""
        if not self._more():
            return 0
        data = os.read(self._source, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def end(self) -> None:
        """End the stream at once, in whatever thread it is being read."""
        os.write(self._waker, b"\0")

    def _more(self) -> bool:
        import select

        waiting = select.poll()
        waiting.register(self._source, select.POLLIN)
        waiting.register(self._woken, select.POLLIN)
        waiting.register(self._output, 0)
        while True:
            ready = dict(waiting.poll())
            if self._woken in ready or ready.get(self._output, 0) & (select.POLLERR | select.POLLHUP):
                return False
            if self._source in ready:
                return True
            waiting.unregister(self._output)  # it reports something that is no hang-up, and would do so for ever


def take_input(ended: Callable[[], None]) -> Callable[[], None]:
    """Put mended lines in the place of `sys.stdin`; returns what ends them. Raises OSError without a usable stdin."""
    if sys.platform == "win32":
        lines: io.BufferedIOBase = sys.stdin.buffer
        end: Callable[[], None] = _nothing_to_end
    else:
        wire = Wire(os.dup(0), os.dup(1))
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)  # a child process must not read the protocol
        os.close(nowhere)
        lines, end = io.BufferedReader(wire), wire.end
    sys.stdin = io.TextIOWrapper(io.BufferedReader(MendedLines(lines, ended)), encoding="utf-8", errors="replace")
    return end


def _nothing_to_end() -> None:
    """Windows: only the client ends the input."""
