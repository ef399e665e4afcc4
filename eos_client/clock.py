"""The default clock."""

from __future__ import annotations

import time

from eos_client.ports import Clock


class MonotonicClock:
    """Real time; changes of the wall clock do not affect it."""

    __call__ = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


MONOTONIC_CLOCK: Clock = MonotonicClock()
