"""A signal whose handler raises: how an application breaks a call off from outside."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class BrokenOffError(BaseException):
    """What a signal handler raises in the middle of a call."""


@contextmanager
def interrupting() -> Iterator[Callable[[], None]]:
    """Give a function that makes the main thread's signal handler raise, from any thread."""

    def handler(*_: object) -> None:
        raise BrokenOffError

    before, main = signal.signal(signal.SIGUSR1, handler), threading.get_ident()
    yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)
