"""Tells a nested call, which is refused, from one that an asynchronous exception has interrupted.

A callback or a signal handler may call a client while a call of it is under way. A flag could not tell: an exception
that strikes before it is cleared would leave it set for good. So a call leaves its frame as a *mark*: ``frame.clear()``
raises RuntimeError as long as the frame runs, and only then (CPython documents it).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

from eos_client.confluent.failures.client_failures import misplaced_call

CallStack = tuple[tuple[object, FrameType], ...]
P = ParamSpec("P")
T = TypeVar("T")

_IN_LIBRARY = "in the client library"


class CallMarks(threading.local):
    """The calls of one client, or of one session, that are under way in the calling thread.

    ``stack`` has the kind and the frame of each, the outermost first; each thread sees only its own. It is replaced by
    one assignment, and what a call has found there is put back when it ends. An exception can at worst leave the mark
    of a call that has ended; the next look-up drops it.
    """

    stack: CallStack = ()

    def run(self, kind: object, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make ``call``, marked as one of this ``kind``."""
        outside = enter(self, kind)
        try:
            return call(*args, **kwargs)
        finally:
            self.stack = outside  # or the mark would keep the frame, and with it all that the call has used, alive

    def is_under_way(self, *kinds: object) -> bool:
        """Whether the calling thread is inside a call of one of ``kinds``; without any, of whatever kind."""
        for mark in self.stack:
            kind, frame = mark
            if not kinds or kind in kinds:
                try:
                    frame.clear()
                except RuntimeError:
                    return True
                self.stack = tuple(other for other in self.stack if other is not mark)
        return False


def enter(marks: CallMarks, kind: object) -> CallStack:
    """Mark the caller as a call of this ``kind``; returns the stack that it has to put back at its end.

    Each call of a client comes here: a method of a ``threading.local`` would take twice as long.
    """
    outside = marks.stack
    marks.stack = (*outside, (kind, sys._getframe(1)))  # noqa: SLF001  # inspect has no quick way to the caller's frame
    return outside


def in_library(marks: CallMarks, call: Callable[[], T]) -> T:
    """Make ``call`` into the library of the client with ``marks``, which may serve callbacks in the caller's thread.

    Raises TransactionStateError as `refuse_inside_library` does.
    """
    refuse_inside_library(marks)
    return marks.run(_IN_LIBRARY, call)


def refuse_inside_library(marks: CallMarks) -> None:
    """Raise TransactionStateError inside a call into the library of the client with ``marks``.

    Where confluent_kafka (2.16) is about to serve a callback after a call that one of its callbacks has made, it ends
    the process (``CallState_get: Assertion``).
    """
    if marks.is_under_way(_IN_LIBRARY):
        raise misplaced_call(
            "a call that serves the client's callbacks inside another one, by a callback or a signal handler: "
            "confluent_kafka would end the process. Let the callback or handler return, and make that call then"
        )
