"""Makes SIGTERM and SIGINT stop the loop cleanly; a second signal ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_CONTAINERS_FIRST_PROCESS = 1


def _end_process(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)  # what a shell says of a process that the signal has ended


def _at_once() -> Any:
    """Return what ends this process at a signal: for process 1, the kernel ignores the default action."""
    return _end_process if os.getpid() == _CONTAINERS_FIRST_PROCESS else signal.SIG_DFL


class StopSignals:
    """While entered, the first signal calls ``stop``. Outside the main thread Python delivers no signals.

    The first signal restores the default action of both signals, so a second one works even while the process is inside
    librdkafka; process 1 of a container, which has no default action, ends when librdkafka returns. A second signal
    that arrived together with the first takes its default action at once.

    Forked processes inherit the handler. SIGTERM ends them at once, as ``Pool`` and ``Process.terminate`` expect. The
    first SIGINT, which a terminal sends to them as well, leaves them to finish their part of the work.
    """

    def __init__(self, stop: Callable[[str], None]) -> None:
        self._stop = stop
        self._previous: dict[int, Any] = {}
        self._process = os.getpid()
        self._first: int | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._arrived) for number in _SIGNALS}

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        is_forked = os.getpid() != self._process
        if self._first not in (None, number) or (is_forked and number == signal.SIGTERM):
            signal.signal(number, _at_once())
            signal.raise_signal(number)
        elif self._first is None:
            self._first = number
            try:
                # Has Python call this handler for the other signal, if it is pending: without one, it would be lost.
                signal.raise_signal(number)
            finally:
                for each in _SIGNALS:
                    signal.signal(each, _at_once())
                self._stop(signal.Signals(number).name)

    def __exit__(self, *_: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)
