"""Runs clients' background work, late requests and scripted events in order of time.

One thread runs everything, while a client waits, so two runs of one test are identical. A second thread is refused.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Protocol

from eos_client.testing.simulator.brokers.clock import SimulatedClock

_SAME_MOMENT_MAX = 10_000


class Worker(Protocol):
    """Background work: a client's heartbeats, a coordinator's time-outs."""

    @property
    def due_s(self) -> float:
        """When the next work is due; ``math.inf``: none is."""
        ...

    def work(self) -> None:
        """Do the work that is due. Afterwards ``due_s`` must be in the future."""
        ...


class Thread(Protocol):
    """A thread of the application."""

    name: str


class Schedule:
    """Runs workers and timed actions as simulated time passes; ``current_thread`` returns who calls."""

    def __init__(self, clock: SimulatedClock, current_thread: Callable[[], Thread]) -> None:
        self._clock = clock
        self._current_thread = current_thread
        self._time_passes_in: Thread | None = None
        self._workers: list[Worker] = []
        self._frozen: list[Worker] = []
        self._awake: list[Worker] = []
        self._actions: list[tuple[float, int, Callable[[], object]]] = []
        self._scripted: list[tuple[float, Callable[[], object]]] = []
        self._numbers = itertools.count()
        clock.passes_by(self.run_until)

    def add(self, worker: Worker) -> None:
        """Run ``worker`` from now on, after the workers that were added before it."""
        self.require_turn()
        self._workers.append(worker)
        self._update_awake()

    def remove(self, worker: Worker) -> None:
        """Stop running ``worker``."""
        self._workers = [w for w in self._workers if w is not worker]
        self._update_awake()

    def freeze(self, worker: Worker) -> None:
        """Stop ``worker`` as SIGSTOP stops a process."""
        self.require_turn()
        self._frozen.append(worker)
        self._update_awake()

    def thaw(self, worker: Worker) -> None:
        """Continue a frozen ``worker``; work that was due meanwhile is due immediately."""
        self._frozen = [w for w in self._frozen if w is not worker]
        self._update_awake()

    def _update_awake(self) -> None:
        self._awake = [w for w in self._workers if not self.is_frozen(w)]

    def is_frozen(self, worker: Worker) -> bool:
        """Whether ``worker`` is frozen."""
        return any(w is worker for w in self._frozen)

    def at(self, when_s: float, action: Callable[[], object]) -> None:
        """Run ``action`` once, at ``when_s``; actions with the same time keep their order."""
        heapq.heappush(self._actions, (when_s, next(self._numbers), action))

    def script(self, when_s: float, action: Callable[[], object]) -> None:
        """Run a test's ``action`` as `at` does; it may wait for another thread that uses the cluster."""
        self.require_turn()
        self._scripted.append(entry := (when_s, action))

        def act() -> None:
            self._scripted.remove(entry)
            passes_in, self._time_passes_in = self._time_passes_in, None
            try:
                action()
            finally:
                other, self._time_passes_in = self._time_passes_in, passes_in
            if other is not None:
                raise _refusal(other, self._current_thread())

        self.at(when_s, act)

    @property
    def scripted(self) -> list[tuple[float, Callable[[], object]]]:
        """The actions of the test that have not run, each with the time at which it is due; the first due first."""
        return sorted(self._scripted, key=lambda entry: entry[0])

    @property
    def has_scripted(self) -> bool:
        """Whether an action of the test has not run yet."""
        return bool(self._scripted)

    def require_turn(self) -> None:
        """Raise RuntimeError if time passes in a call of another thread, which this one would change things under."""
        inside = self._time_passes_in
        if inside is not None and inside is not (calling := self._current_thread()):
            raise _refusal(inside, calling)

    def run_until(self, end_s: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Run workers and actions until ``end_s``, or until ``stop()`` is true."""
        calling = self._current_thread()
        before = self._time_passes_in
        if before is not None and before is not calling:
            raise _refusal(before, calling)
        self._time_passes_in = calling
        try:
            self._pass_until(end_s, stop)
        finally:
            self._time_passes_in = before

    def _pass_until(self, end_s: float, stop: Callable[[], bool]) -> None:
        moment_s, count = self._clock.now_s, 0
        while not stop():
            if not self._run_next(end_s):
                self._clock.set_to(end_s)
                return
            count = 0 if self._clock.now_s > moment_s else count + 1
            moment_s = self._clock.now_s
            if count > _SAME_MOMENT_MAX:
                raise RuntimeError(f"the simulation does not come to rest at {moment_s:.3f} s")

    def _run_next(self, end_s: float) -> bool:
        """Run the first worker or action that is due by ``end_s``; returns False if there is none."""
        worker, due_s = None, math.inf
        for awake in self._awake:
            its_due_s = awake.due_s
            if its_due_s < due_s:
                worker, due_s = awake, its_due_s
        if self._actions and self._actions[0][0] <= due_s:
            if self._actions[0][0] > end_s:
                return False
            when_s, _, action = heapq.heappop(self._actions)
            self._clock.set_to(when_s)
            action()
            return True
        if worker is None or due_s > end_s:
            return False
        self._clock.set_to(due_s)
        worker.work()
        return True


def _refusal(inside: Thread, calling: Thread) -> RuntimeError:
    return RuntimeError(
        f"thread {calling.name!r} uses a simulated cluster while thread {inside.name!r} is inside a call of it: a "
        "cluster has one clock, so its clients take turns in one thread. Let cluster.after() act while a loop runs; "
        "call two members alternately to let them work beside each other."
    )
