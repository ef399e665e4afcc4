"""Requests under way: latency, one-shot faults, late copies, and the history of what reached the brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from eos_client.testing.simulator.brokers.clock import SimulatedClock
from eos_client.testing.simulator.brokers.faults import Fault, FaultKind, FaultPlan
from eos_client.testing.simulator.brokers.model import BrokerError
from eos_client.testing.simulator.brokers.schedule import Schedule, Worker

T = TypeVar("T")


class RequestTimedOut(Exception):  # noqa: N818  # not an error of the broker: nobody knows what it did
    """No answer came by the caller's deadline; the broker may have done what was asked, or may still do it."""


@dataclass
class Answer(Generic[T]):
    """A broker's answer, once it has come: a value or a refusal."""

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
    """A client as the network knows it. ``names``: everything a fault may call it by."""

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
    _kept_back: list[tuple[Worker, Callable[[], None]]] = field(default_factory=list)

    def call(
        self,
        sender: Sender,
        request: str,
        act: Callable[[], T],
        *,
        deadline_s: float,
    ) -> T:
        """Send, wait, and send again when no answer came within the request's time-out, as librdkafka does.

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
        """Send without waiting; ``then`` gets the answer, or None when none came within the request's time-out."""
        answer = self._send(sender, request, act, lambda: self._tell(sender, lambda: then(answer)))

        def give_up() -> None:
            if not answer.came:
                answer.came = True
                self._tell(sender, lambda: then(None))

        self.schedule.at(self.clock.now_s + self.request_timeout_s, give_up)

    def thaw(self, worker: Worker) -> None:
        """Let a frozen client go on: the answers that came meanwhile reach it now."""
        self.schedule.thaw(worker)
        mine = [told for kept, told in self._kept_back if kept is worker]
        self._kept_back = [k for k in self._kept_back if k[0] is not worker]
        for told in mine:
            told()

    def _send(
        self, sender: Sender, request: str, act: Callable[[], T], arrived: Callable[[], None] = lambda: None
    ) -> Answer[T]:
        answer: Answer[T] = Answer()
        fault = self.faults.take(request, sender.names)
        kind = None if fault is None else fault.kind
        if kind is FaultKind.LOSE_REQUEST:
            return answer
        act = act if fault is None or kind is not FaultKind.ERROR else _refusing(fault)

        def deliver() -> None:
            served = self._serve(sender, request, act)
            if kind is FaultKind.DUPLICATE:
                self._serve(sender, request, act)
            if kind is not FaultKind.LOSE_REPLY and not answer.came:
                answer.value, answer.refusal, answer.came = served.value, served.refusal, True
                arrived()

        delay_s = fault.delay_s if fault is not None and kind is FaultKind.DELAY else 0.0
        self.schedule.at(self.clock.now_s + self.latency_s + delay_s, deliver)
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

    def _tell(self, sender: Sender, told: Callable[[], None]) -> None:
        if self.schedule.is_frozen(sender.worker):
            self._kept_back.append((sender.worker, told))
        else:
            told()


def _refusing(fault: Fault) -> Callable[[], Any]:
    def refuse() -> Any:
        raise BrokerError(fault.code, "a scripted fault")

    return refuse
