"""Requests in flight: latency, one-shot faults, late copies, and the history of requests that were served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from eos_client.testing.simulator.brokers.clock import SimulatedClock
from eos_client.testing.simulator.brokers.faults import Fault, FaultKind, FaultPlan
from eos_client.testing.simulator.brokers.model import BrokerError
from eos_client.testing.simulator.brokers.schedule import Schedule, Worker

T = TypeVar("T")


class RequestTimedOut(Exception):  # noqa: N818  # not an error of the broker: the outcome is unknown
    """No answer came by the caller's deadline; the broker may have served the request, or may still serve it."""


@dataclass
class Answer(Generic[T]):
    """A broker's answer: a value or a refusal, once it ``came``."""

    value: T | None = None
    refusal: BrokerError | None = None
    came: bool = False

    def take(self) -> T:
        """Return the value, or raise the refusal."""
        if self.refusal is not None:
            raise self.refusal
        return self.value  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Sender:
    """A client as the sender of requests. ``names``: all names by which a fault may refer to it."""

    name: str
    names: frozenset[str]
    worker: Worker


@dataclass(frozen=True, slots=True)
class Delivered:
    """One request that a broker has served, and its result: ``ok`` or an error's name."""

    at_s: float
    client: str
    request: str
    result: str


@dataclass
class Network:
    """Carries requests. ``latency_s`` is one request's whole round trip without a fault."""

    clock: SimulatedClock
    schedule: Schedule
    faults: FaultPlan
    latency_s: float = 0.001
    request_timeout_s: float = 60.0
    history: list[Delivered] = field(default_factory=list)
    _deferred: list[tuple[Worker, Callable[[], None]]] = field(default_factory=list)

    def call(
        self,
        sender: Sender,
        request: str,
        act: Callable[[], T],
        *,
        deadline_s: float,
    ) -> T:
        """Send, wait, and send again if no answer came within the request's time-out, as librdkafka does.

        Raises RequestTimedOut at ``deadline_s``, BrokerError for a refusal.
        """
        while True:
            answer = self._send(sender, request, act)
            until_s = min(deadline_s, self.clock.now_s + self.request_timeout_s)
            self.schedule.run_until(until_s, lambda answer=answer: answer.came)  # type: ignore[misc]
            if answer.came:
                return answer.take()
            if self.clock.now_s >= deadline_s:
                raise RequestTimedOut(f"{request} of {sender.name} was not answered by {deadline_s:.3f} s")

    def post(
        self, sender: Sender, request: str, act: Callable[[], T], then: Callable[[Answer[T] | None], None]
    ) -> None:
        """Send without waiting; ``then`` is called with the answer, or with None after the request's time-out."""
        answer = self._send(sender, request, act, lambda: self._deliver(sender, lambda: then(answer)))

        def give_up() -> None:
            if not answer.came:
                answer.came = True
                self._deliver(sender, lambda: then(None))

        self.schedule.at(self.clock.now_s + self.request_timeout_s, give_up)

    def thaw(self, worker: Worker) -> None:
        """Continue a frozen client: it gets the answers that came meanwhile."""
        self.schedule.thaw(worker)
        deferred = [deliver for each, deliver in self._deferred if each is worker]
        self._deferred = [each for each in self._deferred if each[0] is not worker]
        for deliver in deferred:
            deliver()

    def _send(
        self, sender: Sender, request: str, act: Callable[[], T], arrived: Callable[[], None] = lambda: None
    ) -> Answer[T]:
        answer: Answer[T] = Answer()
        fault = self.faults.take(request, sender.names)
        kind = None if fault is None else fault.kind
        if kind is FaultKind.LOSE_REQUEST:
            return answer
        act = act if fault is None or kind is not FaultKind.ERROR else _refusing(fault)

        def serve() -> None:
            served = self._serve(sender, request, act)
            if kind is FaultKind.DUPLICATE:
                self._serve(sender, request, act)
            if kind is not FaultKind.LOSE_REPLY and not answer.came:
                answer.value, answer.refusal, answer.came = served.value, served.refusal, True
                arrived()

        delay_s = fault.delay_s if fault is not None and kind is FaultKind.DELAY else 0.0
        self.schedule.at(self.clock.now_s + self.latency_s + delay_s, serve)
        return answer

    def _serve(self, sender: Sender, request: str, act: Callable[[], T]) -> Answer[T]:
        answer: Answer[T] = Answer(came=True)
        try:
            answer.value = act()
        except BrokerError as refusal:
            answer.refusal = refusal
        result = "ok" if answer.refusal is None else answer.refusal.code
        self.history.append(Delivered(self.clock.now_s, sender.name, request, result))
        return answer

    def _deliver(self, sender: Sender, deliver: Callable[[], None]) -> None:
        if self.schedule.is_frozen(sender.worker):
            self._deferred.append((sender.worker, deliver))
        else:
            deliver()


def _refusing(fault: Fault) -> Callable[[], Any]:
    def refuse() -> Any:
        raise BrokerError(fault.code, "a scripted fault")

    return refuse
