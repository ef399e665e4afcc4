"""What SIGTERM, SIGHUP and Ctrl-C do to a command."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

STOP = (signal.SIGTERM, signal.SIGINT)
HANG_UP = tuple(each for each in signal.Signals if each.name == "SIGHUP")  # none on Windows


@contextmanager
def signals_handled(
    handler: Callable[[int, FrameType | None], object], signals: Iterable[signal.Signals] = STOP
) -> Iterator[None]:
    """Have ``handler`` called on ``signals`` inside the block; only in the main thread.

    One that the process was started to ignore, as a shell does with SIGINT in the background and ``nohup`` with SIGHUP,
    stays ignored.
    """
    numbers = [each for each in signals if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, handler) for each in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def signals_as_interrupt() -> AbstractContextManager[None]:
    """Interrupt a waiting command by KeyboardInterrupt, so that every ``with`` block cleans up."""
    return signals_handled(signal.default_int_handler)


def hang_up_as_termination() -> AbstractContextManager[None]:
    """Take SIGHUP, which a closed terminal sends, for SIGTERM inside the block."""
    return signals_handled(lambda *_: signal.raise_signal(signal.SIGTERM), HANG_UP)
