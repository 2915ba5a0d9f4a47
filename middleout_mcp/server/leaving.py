"""The end of a serving process: it does not wait for its threads, and nothing that is stuck keeps it."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

from middleout_mcp.server.logs import frames

logger = logging.getLogger(__name__)

_GRACE_SECONDS = 10.0  # twice the time a write may wait for another process's write


def leave(error: BaseException | None) -> NoReturn:
    """End the process without waiting for its threads; a client that closed its end is no error."""
    failed = error is not None and not _client_left(error)
    if error is not None and failed:
        logger.critical("the server stopped: %s", frames(error))
    sys.stderr.flush()
    os._exit(1 if failed else 0)


def _client_left(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_client_left(each) for each in error.exceptions)
    return isinstance(error, ConnectionError)


def give_up_later() -> None:
    """Once the end has begun: whatever is stuck, such as a write to a client that does not read, ends with us."""
    timer = threading.Timer(_GRACE_SECONDS, os._exit, (1,))
    timer.daemon = True
    timer.start()


def on_signals(numbers: Sequence[int], then: Callable[[], None]) -> None:
    """Call `then` in a thread of its own at each of these signals, also while the main thread does nothing but compute.

    To be called in the main thread, and not on Windows, where the event loop needs what wakes us.
    """
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    for number in numbers:
        signal.signal(number, _noted)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def watch() -> None:
        while os.read(woken, 1):
            then()

    threading.Thread(target=watch, daemon=True).start()


def _noted(number: int, frame: object) -> None:
    """Let the signal be known; the pipe tells the rest."""
