"""Detects nested calls into a client in the same thread, because a nested call can crash the process.

The call stack is inspected, because an asynchronous exception could leave a flag set.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

from eos_client.confluent.failures.client_failures import misplaced_call

T = TypeVar("T")


class TrackedCalls:
    """A set of functions, identified by their code objects; the first argument is the object that they belong to.

    ``shared``: the name of an attribute; objects that share its value count as one, as the parts of a client do.
    """

    def __init__(self, *functions: Callable[..., Any], shared: str = "") -> None:
        self._ids = {id(function.__code__) for function in functions}  # the hash of a code object is slow
        self._shared = shared

    def add(self, function: Callable[..., Any]) -> None:
        """Add one more."""
        self._ids.add(id(function.__code__))

    def is_any_running(self, owner: object = None, *, skip_frames: int = 0) -> bool:
        """Whether the calling thread is inside one of the functions, with ``owner`` as the first argument if given.

        ``skip_frames``: how many of the innermost frames to skip, besides this one.
        """
        frame: FrameType | None = sys._getframe(1 + skip_frames)  # noqa: SLF001  # inspect.currentframe may be None
        while frame is not None:  # not by `_upwards`: each poll of a consumer comes here
            if id(frame.f_code) in self._ids and (owner is None or self._is_one(_first_argument(frame), owner)):
                return True
            frame = frame.f_back
        return False

    def owners(self) -> Iterator[Any]:
        """Return the first argument of each of these calls that the calling thread is inside."""
        frames = _upwards(sys._getframe(1))  # noqa: SLF001  # as above
        return (_first_argument(frame) for frame in frames if self.has(frame))

    def has(self, frame: FrameType, owner: object = None) -> bool:
        """Whether ``frame`` is of one of them, with ``owner`` as the first argument, or, without, with any."""
        return id(frame.f_code) in self._ids and (owner is None or self._is_one(_first_argument(frame), owner))

    def _is_one(self, first: object, owner: object) -> bool:
        if first is owner or not self._shared:
            return first is owner
        return getattr(first, self._shared, first) is getattr(owner, self._shared, owner)


def _upwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _first_argument(frame: FrameType) -> Any:
    return frame.f_locals[frame.f_code.co_varnames[0]]


def comes_from(
    calls: TrackedCalls, owner: object, barrier: TrackedCalls, barrier_owner: object, *, skip_frames: int
) -> bool:
    """Whether the nearest caller in ``calls`` (of ``owner``) or ``barrier`` (of ``barrier_owner``) is in ``calls``.

    ``skip_frames``: as in `TrackedCalls.is_any_running`, but not counting the caller either.
    """
    for frame in _upwards(sys._getframe(2 + skip_frames)):  # noqa: SLF001  # as above
        if calls.has(frame, owner):
            return True
        if barrier.has(frame, barrier_owner):
            return False
    return False


def in_library(client: object, call: Callable[[], T]) -> T:
    """Make ``call`` into the library of ``client``, which may serve callbacks meanwhile, in the caller's thread.

    Raises TransactionStateError inside another one: where confluent_kafka (2.16) is about to serve a callback after a
    call that one of its callbacks has made, it ends the process (``CallState_get: Assertion``).
    """
    if _IN_LIBRARY.is_any_running(client, skip_frames=1):
        raise misplaced_call(
            "a call that serves the client's callbacks inside another one, by a callback or a signal handler: "
            "confluent_kafka would end the process. Let the callback or handler return, and make that call then"
        )
    return call()


_IN_LIBRARY = TrackedCalls(in_library)
