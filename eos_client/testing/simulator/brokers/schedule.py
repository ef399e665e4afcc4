"""Runs clients' background work, late requests and scripted events in order of time.

One thread runs everything, while a client waits, so two runs of one test are identical.
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


class Schedule:
    """Runs workers and timed actions as simulated time passes."""

    def __init__(self, clock: SimulatedClock) -> None:
        self._clock = clock
        self._workers: list[Worker] = []
        self._frozen: list[Worker] = []
        self._awake: list[Worker] = []
        self._actions: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        clock.passes_by(self.run_until)

    def add(self, worker: Worker) -> None:
        """Run ``worker`` from now on, after the workers that were added before it."""
        self._workers.append(worker)
        self._update_awake()

    def remove(self, worker: Worker) -> None:
        """Stop running ``worker``."""
        self._workers = [w for w in self._workers if w is not worker]
        self._update_awake()

    def freeze(self, worker: Worker) -> None:
        """Stop ``worker`` as SIGSTOP stops a process."""
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

    def run_until(self, end_s: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Run workers and actions until ``end_s``, or until ``stop()`` is true."""
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
