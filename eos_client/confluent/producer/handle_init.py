"""Runs ``init_transactions`` of a handle, and remembers abandoned handles whose own is still under way.

A new handle asks for its id without naming an epoch, so the coordinator gives the newest epoch to whichever request it
serves last (KIP-360): two handles whose requests are both under way may fence each other in either order. So an init
that timed out or was interrupted is continued by the same handle, which has one request under way at a time. Only a
handle whose init is overdue is replaced meanwhile, and its request may be served after its successor's; so may one
whose connection was lost, and which the client library has sent again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from eos_client.ports import Clock

_ABANDONED: dict[Hashable, int] = {}
"""Abandoned inits of closed producers of this process, counted by registration key."""
_LATE_INIT_S = 10.0
"""A commit that succeeds this long after an init shows that no request from before it is still on its way."""


class HandleInit:
    """The progress of one handle's init. ``attempt`` runs in the thread of the handle, everything else in its owner's.

    ``is_unanswered``: its request may be on its way. ``is_fresh``: it has succeeded, and no transaction has begun
    since.
    """

    __slots__ = ("is_fresh", "is_unanswered")

    def __init__(self) -> None:
        self.is_unanswered = False
        self.is_fresh = False

    def attempt(self, raw: Any, timeout_s: float) -> None:
        """Initialise ``raw``, or continue with it; does nothing between its init and its first transaction."""
        if not self.is_fresh:
            raw.init_transactions(timeout_s)
            self.is_fresh = True

    def mark_requested(self, *, is_needed: bool) -> None:
        """Expect an answer from now on, unless none is needed."""
        self.is_unanswered = is_needed

    def mark_answered(self) -> None:
        """End the init: it succeeded, it failed for good, or the handle is abandoned."""
        self.is_unanswered = False

    def end_freshness(self) -> None:
        """Let a transaction begin: another init would not be the same one."""
        self.is_fresh = False


class AbandonedInits:
    """Whether a fence may be of our own making: each init that was abandoned without an answer explains one fence.

    It may be a producer's own, or that of an earlier one of this process: closing a producer does not recall a request
    that is in flight. A further fence is another instance's, and so is every fence after a commit that came
    `_LATE_INIT_S` after the init that followed. So a newer instance loses the id at most once for each abandoned init,
    and two instances never take turns.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._succeeded_at = 0.0

    @property
    def may_explain_fence(self) -> bool:
        """Whether one of them may have taken the newer epoch."""
        return self._count > 0

    def add(self) -> None:
        """Record that a handle was abandoned before its init was answered, or has lost a connection meanwhile."""
        self._count += 1

    def leave_to_process(self, registration_key: Hashable) -> None:
        """Leave them to the next producer of this process that has the same ``registration_key``."""
        if self._count:
            _ABANDONED[registration_key] = _ABANDONED.get(registration_key, 0) + self._count
            self._count = 0

    def take_from_process(self, registration_key: Hashable) -> None:
        """Take over what an earlier producer of this process with this ``registration_key`` has left."""
        self._count += _ABANDONED.pop(registration_key, 0)

    def record_init(self) -> None:
        """Record that another handle's init has succeeded."""
        self._succeeded_at = self._clock()

    def record_fence(self) -> None:
        """Record a fence: it counts against one abandoned init."""
        self._count = max(0, self._count - 1)

    def record_commit(self) -> None:
        """Record a commit of the present handle, which was not fenced until now."""
        if self._count and self._clock() - self._succeeded_at >= _LATE_INIT_S:
            self._count = 0
