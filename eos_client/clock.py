"""The default clock."""

from __future__ import annotations

import sys
import time

from eos_client.ports import Clock


class MonotonicClock:
    """Real time; changes of the wall clock do not affect it.

    On Linux it includes the time for which the host was suspended, which ``time.monotonic`` leaves out: a session may
    have ended meanwhile.
    """

    if sys.platform == "linux":

        def __call__(self) -> float:
            """Return the seconds since the host was started."""
            return time.clock_gettime(time.CLOCK_BOOTTIME)
    else:
        __call__ = staticmethod(time.monotonic)

    sleep = staticmethod(time.sleep)


MONOTONIC_CLOCK: Clock = MonotonicClock()
