"""Waiting for something to become true, as long as a machine with other work may need for it."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_S = 60.0


def until(reached: Callable[[], object], what: str) -> None:
    """Return once `reached` holds; fails with `what` when it does not in time."""
    deadline = time.monotonic() + LIMIT_S
    while not reached():
        assert time.monotonic() < deadline, f"not within {LIMIT_S:g} s: {what}"
        time.sleep(0.01)
