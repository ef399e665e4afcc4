"""Makes a client the property of one thread and refuses calls from others.

A consumer method called while another thread is inside ``poll`` or ``consume`` waits for the client while holding the
GIL, and the whole process hangs for good. So a call from a thread that does not own the client fails at once.

Within that thread, a callback or a signal handler may call while another call of the same client is under way.

One process owns it, too: after ``fork()`` none of the client library's threads runs in the child.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Concatenate, NoReturn, ParamSpec, Protocol, TypeVar, cast

from eos_client.confluent.call_marks import CallMarks, enter
from eos_client.confluent.callback_guard import is_in_a_callback
from eos_client.confluent.failures.client_failures import misplaced_call
from eos_client.errors import ClientClosedError, WrongThreadError

_WRITES = frozenset({"produce", "produce_batch"})


class ThreadOwnership:
    """Who may call a client: its polling thread, or, before anybody polls, one thread at a time.

    The thread that polls (or produces) first becomes the owner and stays it until it ends. ``shared``: any thread may
    call the client, until `end_sharing`. ``marks``: those of the client's calls, which its parts share.
    """

    def __init__(self, client: str, marks: CallMarks | None = None, *, shared: bool = False) -> None:
        self.marks = marks or CallMarks()
        self._client = client
        self._shared = shared
        self._owner: threading.Thread | None = None
        self._in_call = threading.RLock()
        self._is_retired = False
        self.is_forked_copy = False
        self._refused_write: WrongThreadError | None = None
        _LIVING.add(self)

    @property
    def is_owned_by_caller(self) -> bool:
        """Whether the calling thread may call. By the thread itself: idents are used again."""
        return self._shared or self._owner is threading.current_thread()

    @property
    def is_owned_by_other(self) -> bool:
        """Whether another thread owns the client: the calling one may not even repair what a call has left."""
        return self._other_owner is not None

    @property
    def may_end(self) -> bool:
        """Whether the calling thread can end the client: no other one may be inside it, and no parent has it."""
        return not (self.is_owned_by_other or self.is_forked_copy)

    @property
    def _other_owner(self) -> threading.Thread | None:
        # Not by is_alive(): if an exception strikes inside it, Python 3.11 takes the thread for ended from then on.
        owner = self._owner
        is_other = owner is not None and owner is not threading.current_thread() and owner in threading.enumerate()
        return owner if is_other else None

    def end_sharing(self) -> None:
        """From now on one thread owns the client; the calling one, if the client was shared."""
        if self._shared:
            self._owner = threading.current_thread()
            self._shared = False

    def admission(self, method: str, *, claims: bool) -> AbstractContextManager[None]:
        """Admit the calling thread for one call, or raise WrongThreadError."""
        return _Admission(self, method, claims=claims)

    def enter(self, method: str, *, claims: bool) -> None:
        """Begin a call of the calling thread; `leave` ends it.

        Raises WrongThreadError, and ClientClosedError in a process that was forked later.
        """
        self.require_caller(method)
        if not self._in_call.acquire(blocking=False):
            self._refuse(method, "is in use by another thread")
        if claims and not self._is_retired:
            self._owner = threading.current_thread()

    def require_caller(self, method: str) -> None:
        """Raise WrongThreadError where another thread owns the client, ClientClosedError in a forked process."""
        if self.is_forked_copy:
            raise ClientClosedError(
                f"{self._client}.{method}() was called in process {os.getpid()}, which was forked after this "
                f"{self._client} was built: its connections and the client library's threads are the parent's. Build "
                "clients in the process that uses them, or start processes by multiprocessing's 'spawn'."
            )
        if self._owner is not threading.current_thread() and (other := self._other_owner) is not None:
            self._refuse(method, f"belongs to thread {other.name!r}")

    def take_refused_write(self) -> WrongThreadError | None:
        """Return why an output of another thread was refused, once; None if none was since the last time."""
        refused, self._refused_write = self._refused_write, None
        return refused

    def leave(self) -> None:
        """End a call."""
        self._in_call.release()

    def disown(self) -> None:
        """Let another thread take over; only for the owner itself."""
        self._owner = None

    def hand_over(self) -> None:
        """Release the lock that an interrupted call still holds, then disown; only outside of all calls."""
        with suppress(RuntimeError):  # as soon as this thread holds it no more
            while True:
                self._in_call.release()
        self.disown()

    def retire(self) -> None:
        """From now on nobody becomes the owner: the client is closed."""
        self._is_retired = True
        self.disown()

    def mark_forked(self) -> None:
        """In a forked child: refuse every call. A lock may be held by a thread that does not run here."""
        self.is_forked_copy = True
        self._shared = False
        self._owner = None
        self._in_call = threading.RLock()

    def as_owner(self, call: Callable[[], None]) -> Callable[[], None]:
        """Return ``call`` for another thread, which owns the client meanwhile: callbacks in it may use the client."""

        def owning() -> None:
            self._owner = threading.current_thread()
            try:
                call()
            finally:
                self.disown()

        return owning

    def _refuse(self, method: str, why: str) -> NoReturn:
        error = WrongThreadError(
            f"{self._client}.{method}() was called from thread {threading.current_thread().name!r}, but this "
            f"{self._client} {why}: such a call can hang the whole process. Call it from its owner, or hand over "
            "what you need through a queue."
        )
        if method in _WRITES:
            self._refused_write = error
        raise error


_LIVING: weakref.WeakSet[ThreadOwnership] = weakref.WeakSet()


def _leave_to_parent() -> None:
    for ownership in list(_LIVING):
        ownership.mark_forked()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_leave_to_parent)


class _Admission:
    """One call; a plain class, so that an asynchronous exception leaves no generator behind to be closed later."""

    def __init__(self, ownership: ThreadOwnership, method: str, *, claims: bool) -> None:
        self._ownership = ownership
        self._method = method
        self._claims = claims

    def __enter__(self) -> None:
        self._ownership.enter(self._method, claims=self._claims)

    def __exit__(self, *_: object) -> None:
        self._ownership.leave()


class _NeverBuiltError(ClientClosedError, AttributeError):
    """An attribute of a client that was never built: ``hasattr`` and mocks of an instance take it for absent."""


class NeverBuilt:
    """Stands for the ownership of a client whose subclass did not call ``super().__init__()``, and for its parts."""

    is_owned_by_caller = False
    marks = CallMarks()
    _OF_EVERY_CLIENT = frozenset({"list_topics", "cluster_id", "set_sasl_credentials"})

    def __init__(self, message: str) -> None:
        self._message = message

    def admission(self, method: str, *, claims: bool) -> AbstractContextManager[None]:  # noqa: ARG002  # as in ThreadOwnership
        """Raise ClientClosedError, which is the RuntimeError that confluent_kafka raises; ``close`` does nothing."""
        if method == "close":
            return nullcontext()
        message = "Handle has been closed" if method in self._OF_EVERY_CLIENT else self._message
        raise _NeverBuiltError(f"{message}: {method}() was called before super().__init__(). Call that first.")

    def __getattr__(self, method: str) -> object:
        """Raise ClientClosedError for ``method`` of a part; AttributeError for what ``help()`` and mocks look for."""
        if method.startswith("_"):
            raise AttributeError(method)
        return self.admission(method, claims=False)


class _Owned(Protocol):
    """A class with `owned` methods.

    The attribute is private, because each public name of EosConsumer, EosProducer and Transaction is a promise to
    applications. ConfluentConsumer and ConfluentProducer show it to other parts of this package as ``ownership``.
    """

    @property
    def _ownership(self) -> ThreadOwnership | NeverBuilt: ...


CALL = "a call of the client"
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=_Owned)


def owned(
    *, claims: bool = False, exclusive: bool = False, allow_in_callbacks: bool = False
) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """Let only the owner call the method; with ``claims``, the first caller becomes the owner.

    ``exclusive``: refuse the call while another call of the same client is under way, that is, in a signal handler or,
    unless ``allow_in_callbacks``, in a callback: records that the outer call has not handed over yet must not be
    committed or sought, and a closed client must not be used. See `call_marks.in_library`, too.
    """

    def decorate(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        name = method.__name__.lstrip("_")

        @functools.wraps(method)
        def checked(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
            if exclusive:
                refuse_nested(self, name, allow_in_callbacks=allow_in_callbacks)
            ownership = self._ownership
            marks = ownership.marks
            outside = enter(marks, CALL)
            try:
                if ownership.is_owned_by_caller:
                    return method(self, *args, **kwargs)
                with ownership.admission(name, claims=claims):
                    return method(self, *args, **kwargs)
            finally:
                marks.stack = outside

        return cast("Callable[Concatenate[S, P], R]", checked)

    return decorate


def counts_as_call(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Let ``method``, which goes on after it has called one that is `owned`, count as a call until it returns."""

    @functools.wraps(method)
    def counted(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        marks = self._ownership.marks
        outside = enter(marks, CALL)
        try:
            return method(self, *args, **kwargs)
        finally:
            marks.stack = outside

    return cast("Callable[Concatenate[S, P], R]", counted)


def is_in_call(client: _Owned) -> bool:
    """Whether the calling thread is inside a call of ``client``, or of a part that shares its ownership."""
    return client._ownership.marks.is_under_way(CALL)  # noqa: SLF001  # what `owned` asks of it


def refuse_nested(client: _Owned, name: str, *, allow_in_callbacks: bool = False) -> None:
    """Raise TransactionStateError inside a call of ``client``, with ``allow_in_callbacks`` only in a signal handler."""
    if is_in_call(client) and not (allow_in_callbacks and is_in_a_callback()):
        raise misplaced_call(
            f"{name}() inside another call of the same client, by a callback or a signal handler: the call that was "
            f"interrupted has not returned yet. Let the callback or handler return, or raise, and call {name}() then"
        )
