"""Consumers that the application has dropped without ``close()``, or has not closed when its process ends.

The client library frees a member of a group by leaving the group, and can stop the whole process by that, as its
``close()`` can (see `safe_close`): a KIP-848 member that has an assignment to be told of does it often. So a thread of
its own leaves the group first.

A consumer and its callbacks refer to each other, so only Python's cyclic collector frees it, which a program that does
nothing but poll may never run. The partitions of the dropped one would wait for ``max.poll.interval.ms``.
"""

from __future__ import annotations

import _thread
import atexit
import gc
import time
import weakref
from collections.abc import Callable
from contextlib import suppress

from eos_client.completion import Completion

EXIT_LIMIT_S = 10.0
"""How long the end of the process waits for its consumers to leave their groups, all together."""

Leave = Callable[[], "Completion | None"]
"""Begins to leave the group; returns what says that it is through, None where another thread may be inside."""


def in_background(leave: Callable[[], None]) -> Completion:
    """Let a new thread ``leave``. Never waits: it may be called while garbage is collected, by any thread."""
    done = Completion()

    def run() -> None:
        try:
            with suppress(Exception):  # nobody is left to hear of it
                leave()
        finally:
            done.reach()

    try:
        _thread.start_new_thread(run, ())
    except RuntimeError:  # the interpreter shuts down, and takes no new thread
        run()
    return done


class Members:
    """The members of groups that this process has built, as long as they exist and are not closed.

    Each is known by a part of its that exists as long as it does.
    """

    def __init__(self) -> None:
        self._members: dict[weakref.ref[object], tuple[object, weakref.WeakMethod[Leave]]] = {}

    def joins(self, member: object, group: object, leave: Leave) -> None:
        """Note that ``member`` is about to join ``group``, after freeing dropped members of it."""
        if self._has_another(member, group):
            gc.collect()
        self._members[weakref.ref(member, self._forget)] = group, weakref.WeakMethod(leave)

    def leaves(self, member: object) -> None:
        """Note that ``member`` is closed."""
        self._forget(weakref.ref(member))

    def leave_at_exit(self) -> None:
        """Let all members leave that no other thread may be using, and wait EXIT_LIMIT_S seconds for it."""
        deadline = time.monotonic() + EXIT_LIMIT_S
        leaves = [leave() for _, leave in self._members.copy().values()]
        for done in [leave() for leave in leaves if leave is not None]:  # all of them, before any is waited for
            if done is not None:
                done.wait(max(0.0, deadline - time.monotonic()))

    def _forget(self, known: weakref.ref[object]) -> None:
        self._members.pop(known, None)

    def _has_another(self, member: object, group: object) -> bool:
        return any(known() is not member for known, (its, _) in self._members.copy().items() if its == group)


MEMBERS = Members()
atexit.register(MEMBERS.leave_at_exit)
