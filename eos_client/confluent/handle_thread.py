"""Runs calls into the client library with a time limit of our own, and abandons handles whose call is overdue.

``send_offsets_to_transaction`` was seen to stay in the library for over 100 s with a 30 s timeout. So each producer
handle has a thread of its own; a call that exceeds its budget is abandoned together with the handle.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.completion import Completion
from eos_client.errors import ClientClosedError
from eos_client.ports import Clock, is_simulated

_SERVED_EVERY_S = 0.2


class OverdueError(Exception):
    """The call did not return within its budget. Its thread and its handle must not be used any more."""


class _Call:
    """One call: when it is ``done`` it has the ``error`` that it raised, if any."""

    __slots__ = ("budget_s", "done", "error", "function")

    def __init__(self, function: Callable[[], Any], budget_s: float) -> None:
        self.function = function
        self.budget_s = budget_s
        self.done = Completion()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.function()
        except BaseException as error:  # noqa: BLE001  # it is raised again in the caller's thread
            self.error = error
        except:  # noqa: E722  # the binding raises a fatal error as a KafkaError, which is no exception to Python
            self.error = KafkaException(sys.exc_info()[1])
        finally:
            self.function = _nothing
            self.done.set()


def _require_running_interpreter() -> None:
    if sys.is_finalizing():
        raise ClientClosedError(
            "the interpreter is shutting down, and no client can be used: nothing was committed by this call, and an "
            "open transaction ends by its time-out. Leave blocks and close clients before the program ends, and a "
            "generator or context manager that holds one open."
        )


def _nothing() -> None:
    return None


class HandleThread:
    """Runs one handle's blocking calls, one at a time, in a daemon thread.

    ``clock``: what the handle goes by. In simulated time (``is_simulated``) a budget would depend on how fast the
    machine is, so there calls have none: each ends when its own time is over.
    """

    def __init__(self, name: str, clock: Clock = MONOTONIC_CLOCK) -> None:
        self.is_real = not is_simulated(clock)
        _require_running_interpreter()
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._last: _Call | None = None
        self._thread = threading.Thread(target=_serve, args=(self._calls,), name=name, daemon=True)
        try:
            _start(self._thread)
        except BaseException:  # a signal handler has raised: nobody else could end the thread
            self.end()
            raise

    def run(self, function: Callable[[], Any], budget_s: float) -> BaseException | None:
        """Run ``function`` and return its error, if it raised one; raises OverdueError after ``budget_s`` real seconds.

        Raises ClientClosedError while the interpreter shuts down: no thread runs any more then, and a start would wait
        for ever. A call whose caller was interrupted by an exception is still running: its own budget is waited for
        first.
        """
        _require_running_interpreter()
        before = self._last
        longest_s = budget_s if before is None or before.done.is_set else budget_s + before.budget_s
        call = _Call(function, budget_s)
        try:
            self._last = call
            self._calls.put(call)
            is_done = call.done.wait(longest_s if self.is_real else None)
        except BaseException:
            if not self.is_real:
                self._wait_until_idle()
            raise
        if not is_done:
            raise OverdueError(f"no answer within {longest_s:g} s")
        self._last = None
        error, call.error = call.error, None  # not kept: its traceback would keep the handle alive
        return error

    def _wait_until_idle(self) -> None:
        """Wait until the thread is free, whatever signal handlers raise: a simulation has one thread at work.

        Otherwise its brokers would serve the next call of another handle in the middle of this one.
        """
        behind, raised = _Call(_nothing, 0.0), None
        self._calls.put(behind)
        while not behind.done.is_set:
            try:
                behind.done.wait()
            except BaseException as error:  # noqa: BLE001, PERF203  # it is raised below
                raised = error
        self._last = None
        if raised is not None:
            raise raised

    def call(self, function: Callable[[], Any], budget_s: float) -> None:
        """Run ``function`` and raise its error; otherwise as `run`."""
        error = self.run(function, budget_s)
        if error is not None:
            try:
                raise error
            finally:
                del error  # or the traceback and this frame would keep each other, and the handle, alive

    def abandon(self, final_call: Callable[[], Any], serve: Callable[[], Any] = _nothing) -> None:
        """Let the thread run ``final_call`` once it is free and then end; never waits.

        Until then another thread calls ``serve`` now and then: a call may never return, and the events that the
        client library queues for a handle that is not polled fill the memory.
        In simulated time ``final_call`` runs at once if the thread is free, so that a run stays deterministic.
        """
        is_free = self._last is None or self._last.done.is_set
        if self.is_real and not is_free:
            abandoned = _AbandonedHandle(serve, final_call)
            self._calls.put(_Call(abandoned.end, 0.0))
            name = f"{self._thread.name}, abandoned"
            _start(threading.Thread(target=abandoned.keep_serving, name=name, daemon=True))
        elif self.is_real or not is_free:
            self._calls.put(_Call(final_call, 0.0))
        else:
            with suppress(Exception):  # an error in the thread would not be reported, either
                final_call()
        self.end()

    def end(self) -> None:
        """Let the thread end once it is free; never waits."""
        self._calls.put(None)


class _AbandonedHandle:
    """A handle inside a call that may never return: it is served until that returns and the handle is ended."""

    def __init__(self, serve: Callable[[], Any], final_call: Callable[[], Any]) -> None:
        self._serve = serve
        self._final_call = final_call
        self._being_served = threading.Lock()
        self._is_over = threading.Event()

    def end(self) -> None:
        with self._being_served:
            self._is_over.set()
        self._final_call()

    def keep_serving(self) -> None:
        while not self._is_over.wait(_SERVED_EVERY_S):
            with self._being_served:
                if not self._is_over.is_set():
                    _Call(self._serve, 0.0).run()


def _start(thread: threading.Thread) -> None:
    """Start ``thread``; what a signal handler raises meanwhile comes out as it is.

    ``Thread.start()`` catches it, and fails with a KeyError itself where the thread runs already.
    """
    try:
        thread.start()
    except KeyError as error:
        if (interruption := error.__context__) is None:
            raise
        raise interruption from None


def _serve(calls: queue.SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        call.run()
        del call
