"""Calls with a budget that is ours.

``send_offsets_to_transaction`` was seen to stay in the library for over 100 s with a 30 s timeout. So each producer
handle has a thread of its own; a call that exceeds its budget is left behind together with the handle.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.ports import Clock

T = TypeVar("T")


class OverdueError(Exception):
    """The call did not return within its budget. Its thread and its handle must not be used any more."""


class _Call:
    __slots__ = ("done", "error", "function", "result")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.function()
        except BaseException as error:  # noqa: BLE001  # it is raised again in the caller's thread
            self.error = error
        except:  # noqa: E722  # the binding raises a fatal error as a KafkaError, which is no exception to Python
            self.error = KafkaException(sys.exc_info()[1])
        finally:
            self.function = _nothing
            self.done.set()


def _nothing() -> None:
    return None


class HandleThread:
    """Runs one handle's blocking calls, one at a time, in a daemon thread.

    ``clock``: what the handle goes by. In simulated time (``is_simulated``) a budget would depend on how fast the
    machine is, so there calls have none: each ends when its own time is over.
    """

    def __init__(self, name: str, clock: Clock = MONOTONIC_CLOCK) -> None:
        self._is_real = not getattr(clock, "is_simulated", False)
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._calls,), name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], T], budget_s: float) -> T:
        """Run ``function`` and return its result; raises OverdueError after ``budget_s`` seconds of real time."""
        call = _Call(function)
        self._calls.put(call)
        if not call.done.wait(budget_s if self._is_real else None):
            raise OverdueError(f"no answer within {budget_s:g} s")
        error, call.error = call.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # or the traceback and this frame would keep each other, and the handle, alive
        result: T = call.result
        return result

    def abandon(self, last: Callable[[], Any]) -> None:
        """Let the thread run ``last`` once it is free and then end; never waits."""
        self._calls.put(_Call(last))
        self.end()

    def end(self) -> None:
        """Let the thread end once it is free; never waits."""
        self._calls.put(None)


def _serve(calls: queue.SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        call.run()
        del call
