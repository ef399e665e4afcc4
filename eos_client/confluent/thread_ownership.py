"""One thread owns a client.

A consumer method called while another thread is inside ``poll`` or ``consume`` waits for the client while holding the
GIL, and the whole process hangs for good. So a call from a thread that does not own the client fails at once.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from eos_client.errors import WrongThreadError


class ThreadOwnership:
    """Who may call a client: its polling thread, or, before anybody polls, one thread at a time.

    The thread that polls (or produces) first becomes the owner and stays it until it ends.
    """

    def __init__(self, client: str) -> None:
        self._client = client
        self._owner: threading.Thread | None = None
        self._in_call = threading.RLock()

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread is the owner. By the thread itself: idents are used again."""
        return self._owner is threading.current_thread()

    @contextmanager
    def admit(self, method: str, *, claims: bool) -> Iterator[None]:
        """Admit the calling thread for one call, or raise WrongThreadError."""
        if self._owner is not None and self._owner.is_alive() and self._owner is not threading.current_thread():
            raise self._wrong_thread(method, f"belongs to thread {self._owner.name!r}")
        if not self._in_call.acquire(blocking=False):
            raise self._wrong_thread(method, "is in use by another thread")
        try:
            if claims:
                self._owner = threading.current_thread()
            yield
        finally:
            self._in_call.release()

    def disown(self) -> None:
        """Let another thread take over; only for the owner itself."""
        self._owner = None

    def _wrong_thread(self, method: str, why: str) -> WrongThreadError:
        return WrongThreadError(
            f"{self._client}.{method}() was called from thread {threading.current_thread().name!r}, but this "
            f"{self._client} {why}: such a call can hang the whole process. Call it from its owner, or hand over "
            "what you need through a queue."
        )


class _Owned(Protocol):
    _ownership: ThreadOwnership


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=_Owned)


def owned(*, claims: bool = False) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """Let only the owner call the method; with ``claims``, the first caller becomes the owner."""

    def decorate(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        name = method.__name__

        @functools.wraps(method)
        def checked(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
            ownership = self._ownership
            if ownership.is_mine:
                return method(self, *args, **kwargs)
            with ownership.admit(name, claims=claims):
                return method(self, *args, **kwargs)

        return cast("Callable[Concatenate[S, P], R]", checked)

    return decorate
