"""Background requests of a client: sent without waiting, and sent again if unanswered or retriable."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import TypeVar

from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.model import BrokerError
from eos_client.testing.simulator.brokers.network import Answer
from eos_client.testing.simulator.clients.refusals import Treatment, treatment_of

T = TypeVar("T")

_BROKER = "simulated:9092/1"
_LOG_INTERVAL_S = 30.0


class Timers:
    """The timed actions of a client, which its background work runs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    @property
    def due_s(self) -> float:
        """When the first action is due; ``math.inf``: there is none."""
        return self._waiting[0][0] if self._waiting else math.inf

    def at(self, when_s: float, action: Callable[[], None]) -> None:
        """Run ``action`` once, at ``when_s``."""
        heapq.heappush(self._waiting, (when_s, next(self._numbers), action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Run ``action`` once, ``delay_s`` seconds from now."""
        self.at(self._clock() + delay_s, action)

    def work(self) -> None:
        """Run the actions that are due."""
        due = []
        while self._waiting and self._waiting[0][0] <= self._clock():
            due.append(heapq.heappop(self._waiting)[2])
        for action in due:
            action()


class RequestRepeater:
    """Sends requests for one client. ``timeout_s``: how long it waits for an answer (``socket.timeout.ms``).

    ``backoff_s``: the wait before a retriable request is sent again. ``log`` is called with librdkafka's log lines, as
    facility and text: only they show that a request was sent twice.
    """

    def __init__(
        self, link: ClientLink, timers: Timers, log: Callable[[str, str], None], *, timeout_s: float, backoff_s: float
    ) -> None:
        self._link = link
        self._timers = timers
        self.log = log
        self._timeout_s = timeout_s
        self._backoff_s = backoff_s
        self._up_since_s = 0.0
        self._failures_since_logged = 0
        self._repetition_logged_s = -math.inf

    def connected(self) -> None:
        """Record and log that the connection is up."""
        self._up_since_s = self._link.clock.now_s
        self.log("STATE", f"{_BROKER}: Broker changed state APIVERSION_QUERY -> UP")

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
        """Send ``request`` until its answer is final, then call ``done`` with the value or the refusal.

        ``attempting`` is called before each attempt, ``refused`` with each retriable refusal. Once ``wanted()`` is
        false, nothing is sent and no function is called any more.
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
        """Send ``request`` once; ``then`` is called with the answer, or with None after the time-out."""
        sent_s = self._link.clock.now_s
        is_answered = False

        def once(answer: Answer[T] | None) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                if answer is None:
                    self._log_timeout(request, sent_s)
                then(answer)

        self._link.post(request, act, once)
        self._timers.after(self._timeout_s, lambda: once(None))

    def _log_timeout(self, request: str, sent_s: float) -> None:
        waited_ms = round((self._link.clock.now_s - sent_s) * 1000)
        self.log("REQTMOUT", f"Timed out {request}Request in flight (after {waited_ms}ms, timeout #0)")
        self._log_disconnect()
        self.log("STATE", f"{_BROKER}: Broker changed state UP -> DOWN")
        self.connected()

    def _log_disconnect(self) -> None:
        """Log a repeated disconnect at most every 30 s, as librdkafka does."""
        now_s, repeated = self._link.clock.now_s, ""
        if self._failures_since_logged:
            if now_s - self._repetition_logged_s < _LOG_INTERVAL_S:
                self._failures_since_logged += 1
                return
            self._repetition_logged_s = now_s
            repeated = f", {self._failures_since_logged} identical error(s) suppressed"
        self._failures_since_logged = 1
        up_ms = round((now_s - self._up_since_s) * 1000)
        state = f"after {up_ms}ms in state UP{repeated}"
        self.log("FAIL", f"{_BROKER}: 1 request(s) timed out: disconnect ({state})")
