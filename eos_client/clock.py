"""The clock of a process: what everything here that measures time or waits goes by, unless it is given another."""

from __future__ import annotations

import time

from eos_client.ports import Clock


class MonotonicClock:
    """Real time. Calling it gives seconds since some moment that stays the same, whatever is done to the wall clock."""

    __call__ = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


MONOTONIC_CLOCK: Clock = MonotonicClock()
"""The clock of whatever is not given another."""
