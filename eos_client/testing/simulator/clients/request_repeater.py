"""Background requests of a client: sent without waiting, and repeated when they are unanswered or retriable."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Any, TypeVar

from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.model import BrokerError
from eos_client.testing.simulator.brokers.network import Answer
from eos_client.testing.simulator.clients.refusals import Treatment, treatment_of

T = TypeVar("T")

_BROKER = "simulated:9092/1"
_SUPPRESSED_FOR_S = 30.0


class Timers:
    """What a client wants to do later; its background work runs it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    @property
    def due_s(self) -> float:
        """When the first of them is due; ``math.inf``: there is none."""
        return self._waiting[0][0] if self._waiting else math.inf

    def at(self, when_s: float, action: Callable[[], None]) -> None:
        """Run ``action`` once, at ``when_s``."""
        heapq.heappush(self._waiting, (when_s, next(self._numbers), action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Run ``action`` once, ``delay_s`` seconds from now."""
        self.at(self._clock() + delay_s, action)

    def work(self) -> None:
        """Run what is due."""
        due = []
        while self._waiting and self._waiting[0][0] <= self._clock():
            due.append(heapq.heappop(self._waiting)[2])
        for action in due:
            action()


class RequestRepeater:
    """Sends requests for one client. ``timeout_s``: how long it waits for an answer (``socket.timeout.ms``).

    ``backoff_s``: how long it waits before a request that the broker could not serve yet is sent again. ``tell`` gets
    librdkafka's log lines, as facility and text: a request that is sent twice shows nowhere else.
    """

    def __init__(
        self, link: ClientLink, timers: Timers, tell: Callable[[str, str], None], *, timeout_s: float, backoff_s: float
    ) -> None:
        self._link = link
        self._timers = timers
        self._tell = tell
        self._timeout_s = timeout_s
        self._backoff_s = backoff_s
        self._up_since_s = 0.0
        self._failures_since_told = 0
        self._repetition_told_s = -math.inf

    def connected(self) -> None:
        """Note that the connection stands."""
        self._up_since_s = self._link.clock.now_s
        self._tell("STATE", f"{_BROKER}: Broker changed state APIVERSION_QUERY -> UP")

    def send(
        self,
        request: str,
        act: Callable[[], T],
        done: Callable[[T | None, BrokerError | None], None],
        *,
        backoff_s: float | None = None,
        wanted: Callable[[], bool] = lambda: True,
        attempting: Callable[[], None] = lambda: None,
        refused: Callable[[BrokerError], None] = lambda _: None,
    ) -> None:
        """Send ``request`` until it is answered for good, then call ``done`` with the value or the refusal.

        ``attempting`` hears of each attempt, ``refused`` of refusals that are tried again. Nothing is sent or told any
        more once it is not ``wanted``.
        """
        pause_s = self._backoff_s if backoff_s is None else backoff_s

        def attempt() -> None:
            if wanted():
                attempting()
                self.send_once(request, act, answered)

        def answered(answer: Answer[T] | None) -> None:
            if not wanted():
                return
            if answer is None:
                attempt()
            elif answer.refusal is not None and treatment_of(request, answer.refusal.code) is Treatment.RETRY:
                refused(answer.refusal)
                self._timers.after(pause_s, attempt)
            else:
                done(answer.value, answer.refusal)

        attempt()

    def send_once(self, request: str, act: Callable[[], T], then: Callable[[Answer[T] | None], None]) -> None:
        """Send ``request`` once; ``then`` gets the answer, or None when none came in time."""
        sent_s = self._link.clock.now_s
        open_: list[Any] = [then]

        def once(answer: Answer[T] | None) -> None:
            if open_:
                open_.clear()
                if answer is None:
                    self._tell_of_silence(request, sent_s)
                then(answer)

        self._link.post(request, act, once)
        self._timers.after(self._timeout_s, lambda: once(None))

    def _tell_of_silence(self, request: str, sent_s: float) -> None:
        waited_ms = round((self._link.clock.now_s - sent_s) * 1000)
        self._tell("REQTMOUT", f"Timed out {request}Request in flight (after {waited_ms}ms, timeout #0)")
        self._tell_of_failure()
        self._tell("STATE", f"{_BROKER}: Broker changed state UP -> DOWN")
        self.connected()

    def _tell_of_failure(self) -> None:
        """Keep back what looks like the last failure, as librdkafka does, but for one line every 30 s."""
        now_s, repeated = self._link.clock.now_s, ""
        if self._failures_since_told:
            if now_s - self._repetition_told_s < _SUPPRESSED_FOR_S:
                self._failures_since_told += 1
                return
            self._repetition_told_s = now_s
            repeated = f", {self._failures_since_told} identical error(s) suppressed"
        self._failures_since_told = 1
        up_ms = round((now_s - self._up_since_s) * 1000)
        state = f"after {up_ms}ms in state UP{repeated}"
        self._tell("FAIL", f"{_BROKER}: 1 request(s) timed out: disconnect ({state})")
