"""A completion flag that another thread waits for and that no exception of a signal handler can damage.

``threading.Event`` is written in Python around a lock. An asynchronous exception that strikes while a thread holds
that lock leaves it locked, and whoever waits next waits for ever.
"""

from __future__ import annotations

import threading
import time

_SLICE_S = 1.0
"""How often a waiting thread checks the flag, in case the other thread was interrupted before it released the lock."""


class Completion:
    """A flag that is set once."""

    __slots__ = ("_lock", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Set the flag and wake all waiting threads."""
        if not self.is_set:
            self.is_set = True
            self._lock.release()

    def wait(self, limit_s: float | None = None) -> bool:
        """Wait for ``limit_s`` seconds at most, or without limit; returns whether the flag is set."""
        ends_at = None if limit_s is None else time.monotonic() + limit_s
        while not self.is_set:
            remaining_s = _SLICE_S if ends_at is None else min(_SLICE_S, ends_at - time.monotonic())
            if remaining_s <= 0:
                break
            if self._lock.acquire(timeout=remaining_s):
                self._lock.release()  # for another thread that waits
        return self.is_set
