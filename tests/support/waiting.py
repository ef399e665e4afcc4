"""Waits for conditions, never for a time. Limits are far from what is normal, and a failure names what did not come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

WAIT_S = 120.0
TICK_S = 0.05


def wait_for(
    condition: Callable[..., Any],
    what: str | Callable[[], str],
    *work: Callable[[], object],
    timeout_s: float = WAIT_S,
    clock: Callable[[], float] = time.monotonic,
) -> Any:
    """Return what ``condition`` returns once it is true; raises TimeoutError, with ``what``, after ``timeout_s``.

    ``work`` is done between two looks, in place of a pause: a client is polled, a supervisor is served. In simulated
    time, with a ``clock`` of its own, it must let time pass.
    """
    deadline_s = clock() + timeout_s
    while not (found := condition()):
        if clock() >= deadline_s:
            raise TimeoutError(f"not within {timeout_s:g} s: {what() if callable(what) else what}")
        for step in work:
            step()
        if not work:
            time.sleep(TICK_S)
    return found
