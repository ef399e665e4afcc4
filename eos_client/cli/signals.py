"""What SIGTERM, SIGHUP and Ctrl-C do to a command."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType


@contextmanager
def signals_handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Have ``handler`` called on SIGTERM and SIGINT inside the block; only in the main thread.

    One that the process was started to ignore, as a shell does with SIGINT in the background, stays ignored.
    """
    numbers = [each for each in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, handler) for each in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def signals_as_interrupt() -> AbstractContextManager[None]:
    """Interrupt a waiting command by KeyboardInterrupt, so that every ``with`` block cleans up."""
    return signals_handled(signal.default_int_handler)


@contextmanager
def hang_up_as_termination() -> Iterator[None]:
    """Take SIGHUP, which a closed terminal sends, for SIGTERM inside the block; not where ``nohup`` has it ignored."""
    number = getattr(signal, "SIGHUP", None)  # not on Windows
    if number is None or signal.getsignal(number) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(number, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(number, before)
