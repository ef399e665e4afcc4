"""Which calls the calling thread is inside of, and none into a client library inside another one of that client.

The stack tells: a mark would stay where an asynchronous exception strikes before it is taken back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

from eos_client.confluent.failures import misplaced_call

T = TypeVar("T")


class Calls:
    """Some functions, told by their code, whose first argument is the object that they belong to."""

    def __init__(self, *functions: Callable[..., Any]) -> None:
        self._ids = {id(function.__code__) for function in functions}  # the hash of a code object is slow

    def add(self, function: Callable[..., Any]) -> None:
        """Add one more."""
        self._ids.add(id(function.__code__))

    def are_under_way(self, owner: object = None, *, above: int = 0) -> bool:
        """Whether the calling thread is inside one of them with ``owner`` as the first argument, or, without, at all.

        ``above``: how many of the calls that end in this one are left out, not counting this one.
        """
        frame: FrameType | None = sys._getframe(1 + above)  # noqa: SLF001  # inspect.currentframe may be None
        while frame is not None:
            if id(frame.f_code) in self._ids and (owner is None or _first_argument(frame) is owner):
                return True
            frame = frame.f_back
        return False

    def has(self, frame: FrameType, owner: object) -> bool:
        """Whether ``frame`` is of one of them, with ``owner`` as the first argument."""
        return id(frame.f_code) in self._ids and _first_argument(frame) is owner

    def owners(self) -> Iterator[Any]:
        """Whatever the first argument is of those that the calling thread is inside of."""
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # as above
        while frame is not None:
            if id(frame.f_code) in self._ids:
                yield _first_argument(frame)
            frame = frame.f_back


def _first_argument(frame: FrameType) -> Any:
    return frame.f_locals[frame.f_code.co_varnames[0]]


def comes_from(calls: Calls, owner: object, beyond: Calls, outer: object) -> bool:
    """Whether the way up from the caller meets one of ``calls`` of ``owner`` before any of ``beyond`` of ``outer``."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # as above
    while frame is not None:
        if calls.has(frame, owner):
            return True
        if beyond.has(frame, outer):
            return False
        frame = frame.f_back
    return False


def in_library(client: object, call: Callable[[], T]) -> T:
    """Make ``call`` into the library of ``client``, which may serve callbacks meanwhile, in the caller's thread.

    Raises TransactionStateError inside another one: where confluent_kafka (2.16) is about to serve a callback after a
    call that one of its callbacks has made, it ends the process (``CallState_get: Assertion``).
    """
    if _IN_LIBRARY.are_under_way(client, above=1):
        raise misplaced_call(
            "a call that serves the client's callbacks inside another one, by a callback or a signal handler: "
            "confluent_kafka would end the process. Let the callback or handler return, and make that call then"
        )
    return call()


_IN_LIBRARY = Calls(in_library)
