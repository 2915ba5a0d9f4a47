"""Standard input and output as the protocol needs them.

Input can be ended from within, and every line of it that goes on to the SDK is a message: what is none is answered
here, because the SDK would drop it and leave its sender waiting. Output is written in whole lines, so that those
answers fall between the SDK's; whatever else is printed in this process goes to standard error.

The SDK reads lines in a thread that nothing can interrupt, so a signal alone would leave it waiting. Here the thread
waits for three things at once: the client's bytes, a byte in a pipe of our own (`end`), and the hang-up of standard
output, which tells that the client is gone even while another process holds our input open. The last two look like the
end of input, so that there is one way out for all of them. Windows cannot wait like that: there, input ends when the
client closes it.
"""

import io
import os
import queue
import re
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, BinaryIO, TextIO, cast

from middleout_mcp.server.lines import refusals

_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)


def mended(line: bytes) -> bytes:
    """The JSON line with escaped half surrogate pairs replaced by U+FFFD, and with blanks for bare carriage returns.

    JavaScript clients write half pairs when a text was cut inside an emoji, which is no valid JSON. A carriage return
    is a blank in JSON, but the SDK would end the line there.
    """
    if b"\r" in line:
        line = line.replace(b"\r", b" ")
    if b"\\ud" not in line and b"\\uD" not in line:
        return line
    return _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], line)


class Output(io.BufferedIOBase):
    """Whole lines to the client: those written here, and answers from elsewhere in between.

    Answers wait for nobody: a client may send many bad lines before it reads anything, and its good ones must be read
    all the same.
    """

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._line = b""
        self._lock = threading.Lock()
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._writer: threading.Thread | None = None

    def writable(self) -> bool:
        """True: this is an output."""
        return True

    def fileno(self) -> int:
        """The descriptor of the client's end."""
        return self._target.fileno()

    def write(self, data: Any) -> int:
        """Write what is a whole line by now; the rest waits for its end."""
        self._line += data
        whole, end, self._line = self._line.rpartition(b"\n")
        if end:
            self._put(whole + end)
        return len(data)

    def answer(self, lines: Iterable[bytes]) -> None:
        """Have these lines written as soon as the client takes them."""
        for line in lines:
            self._answers.put(line + b"\n")
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_answers, daemon=True)
            self._writer.start()

    def wait_for_answers(self) -> None:
        """Return when every answer is written, or nobody takes them any more."""
        self._answers.join()

    def _write_answers(self) -> None:
        while True:
            line = self._answers.get()
            with suppress(OSError):  # the client is gone; the input ends as well
                self._put(line)
            self._answers.task_done()

    def _put(self, lines: bytes) -> None:
        with self._lock:
            self._target.write(lines)
            self._target.flush()


class _Aside(io.TextIOBase):
    """What `sys.stdout` is for everybody but the SDK, which writes to its `buffer`: printed text goes to stderr."""

    def __init__(self, buffer: Output) -> None:
        self.buffer = buffer

    def write(self, text: str) -> int:
        return sys.stderr.write(text)


class Messages(io.RawIOBase):
    """The lines of another stream that are messages, mended; others are answered. `ended` is called once at the end."""

    def __init__(self, lines: io.BufferedIOBase, output: Output, ended: Callable[[], None]) -> None:
        self._lines = lines
        self._output = output
        self._ended = ended
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """True: this is an input."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with as much of the current line as fits; 0 at the end."""
        while not self._rest:
            line = mended(self._lines.readline())
            if not line:
                self._ended()
                self._output.wait_for_answers()
                return 0
            answers = refusals(line.decode("utf-8", "replace"))
            if answers:
                self._output.answer(answers)
            else:
                self._rest = memoryview(line)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
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


def take_output() -> Output:
    """Put lines to the client in the place of `sys.stdout`. Raises OSError without a usable standard output."""
    output = Output(os.fdopen(os.dup(1), "wb"))
    try:
        os.dup2(2, 1)  # what a library prints past Python is no message either
    except OSError:  # standard error is closed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
    sys.stdout = cast(TextIO, _Aside(output))
    return output


def take_input(output: Output, ended: Callable[[], None]) -> Callable[[], None]:
    """Put messages in the place of `sys.stdin`; returns what ends them. Raises OSError without a usable stdin."""
    if sys.platform == "win32":
        lines: io.BufferedIOBase = sys.stdin.buffer
        end: Callable[[], None] = _nothing_to_end
    else:
        wire = Wire(os.dup(0), output.fileno())
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)  # a child process must not read the protocol
        os.close(nowhere)
        lines, end = io.BufferedReader(wire), wire.end
    messages = io.BufferedReader(Messages(lines, output, ended))
    sys.stdin = io.TextIOWrapper(messages, encoding="utf-8", errors="replace")
    return end


def _nothing_to_end() -> None:
    """Windows: only the client ends the input."""
