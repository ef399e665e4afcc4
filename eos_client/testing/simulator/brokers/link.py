"""A simulated client's connection to the brokers and to the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import TypeVar

from eos_client.testing.simulator.brokers.brokers import Brokers
from eos_client.testing.simulator.brokers.clock import SimulatedClock
from eos_client.testing.simulator.brokers.network import Answer, Network, Sender
from eos_client.testing.simulator.brokers.schedule import Worker

T = TypeVar("T")


class ClientLink:
    """One client's access to the simulated cluster. ``name`` is unique; ``random`` is the cluster's, seeded.

    ``clock_ahead_s``: how far the clock of the client's host is ahead of the brokers'.
    ``is_killed``: its process has ended.
    ``is_silent``: the client is closed. Its requests may still arrive; answers are ignored, and no work is done.
    """

    def __init__(self, name: str, brokers: Brokers, network: Network, random: Random) -> None:
        self.name = name
        self.brokers = brokers
        self.random = random
        self._network = network
        self._sender: Sender | None = None
        self.clock_ahead_s = 0.0
        self.is_killed = False
        self.is_silent = False

    @property
    def stamp_ms(self) -> int:
        """The time of the client's host, in milliseconds."""
        return round((self.clock.now_s + self.clock_ahead_s) * 1000)

    @property
    def has_scripted_actions(self) -> bool:
        """Whether the test has scripted anything that has not happened yet."""
        return self._network.schedule.has_scripted

    @property
    def clock(self) -> SimulatedClock:
        """The cluster's clock."""
        return self._network.clock

    @property
    def sender(self) -> Sender:
        """The client as the sender of requests."""
        if self._sender is None:
            raise RuntimeError(f"{self.name} sends before it is attached")
        return self._sender

    def require_running(self) -> None:
        """Raise RuntimeError if the client's process has ended or is stopped, or if another thread is inside a call."""
        self._network.schedule.require_turn()
        if self.is_killed:
            raise RuntimeError(f"{self.name} was killed: its process has ended and cannot call anything")
        if self._network.schedule.is_frozen(self.sender.worker):
            raise RuntimeError(f"{self.name} is frozen: its process is stopped and cannot call anything")

    def attach(self, worker: Worker, names: Iterable[str]) -> None:
        """Run ``worker`` as time passes; a fault may name the client by any of ``names``."""
        self._sender = Sender(self.name, frozenset({self.name, *names}), worker)
        self._network.schedule.add(worker)

    def detach(self) -> None:
        """End the background work: the client is closed, or its process has ended."""
        self.silence()
        self._network.schedule.remove(self.sender.worker)

    def silence(self) -> None:
        """Ignore further answers. May be called from any thread, so a worker has to check ``is_silent`` itself."""
        self.is_silent = True

    def call(self, request: str, act: Callable[[], T], *, deadline_s: float) -> T:
        """Send ``request`` and wait; ``act`` serves it at the broker. See `Network.call`."""
        return self._network.call(self.sender, request, act, deadline_s=deadline_s)

    def post(self, request: str, act: Callable[[], T], then: Callable[[Answer[T] | None], None]) -> None:
        """Send ``request`` from background work, without waiting. See `Network.post`."""
        self._network.post(self.sender, request, act, lambda answer: None if self.is_silent else then(answer))

    def wait(self, until_s: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until ``until_s``, or until ``stop()`` is true."""
        self._network.schedule.run_until(until_s, stop)
