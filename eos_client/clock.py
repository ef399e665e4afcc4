"""The clock that everything which measures time or waits uses, unless it is given another one."""

from __future__ import annotations

import time

from eos_client.ports import Clock


class MonotonicClock:
    """Real time. Calling it gives seconds since some moment that stays the same, whatever is done to the wall clock."""

    __call__ = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


MONOTONIC_CLOCK: Clock = MonotonicClock()
"""The clock of whatever is not given another."""
