"""Consumers that the application has dropped without ``close()``: each stays a member of its group while it exists.

A consumer and its callbacks refer to each other, so only Python's cyclic collector frees it, which a program that does
nothing but poll may never run. The partitions of the dropped one would wait for ``max.poll.interval.ms``.
"""

from __future__ import annotations

import gc
import weakref


class Members:
    """The members of groups that this process has built, as long as they exist and are not closed.

    Each is known by a part of its that exists as long as it does.
    """

    def __init__(self) -> None:
        self._groups: dict[weakref.ref[object], object] = {}

    def joins(self, member: object, group: object) -> None:
        """Note that ``member`` is about to join ``group``, after freeing dropped members of it."""
        if self._has_another(member, group):
            gc.collect()
        self._groups[weakref.ref(member, self._forget)] = group

    def leaves(self, member: object) -> None:
        """Note that ``member`` is closed."""
        self._forget(weakref.ref(member))

    def _forget(self, known: weakref.ref[object]) -> None:
        self._groups.pop(known, None)

    def _has_another(self, member: object, group: object) -> bool:
        return any(known() is not member for known, its in self._groups.copy().items() if its == group)
