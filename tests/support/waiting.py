"""Waits for conditions, never for a time. Limits are far from what is normal, and a failure names what did not come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WAIT_S = 120.0
TICK_S = 0.02


def wait_for(condition: Callable[[], T], what: str, *work: Callable[[], object], timeout_s: float = WAIT_S) -> T:
    """Return what ``condition`` returns once it is true; the test fails with ``what`` if that takes ``timeout_s``.

    ``work`` is done between two looks, in place of a pause: a client is polled, a supervisor is served.
    """
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {what}"
        for step in work:
            step()
        if not work:
            time.sleep(TICK_S)
    return found
