"""The background work of a producer, which continues after a call has returned."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import ThrottleEvent

from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.network import RequestTimedOut
from eos_client.testing.simulator.clients.cluster_queries import cluster_metadata
from eos_client.testing.simulator.clients.kafka_errors import kafka_error, kafka_exception
from eos_client.testing.simulator.clients.producer_events import ProducerEvents
from eos_client.testing.simulator.clients.producer_records import RecordPlacing
from eos_client.testing.simulator.clients.producer_settings import ProducerSettings
from eos_client.testing.simulator.clients.record_sender import NO_IDENTITY, RecordSender
from eos_client.testing.simulator.clients.request_repeater import RequestRepeater, Timers
from eos_client.testing.simulator.clients.transaction_requests import TransactionRequests
from eos_client.testing.simulator.clients.transaction_state import TransactionState

_LEVELS = {
    "TXNERR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "REQTMOUT": logging.WARNING,
    "FAIL": logging.ERROR,
    "STATE": logging.DEBUG,
    "GETPID": logging.DEBUG,
    "ADDPARTS": logging.DEBUG,
}
_EOS = frozenset({"all", "eos"})
_DEBUG_CONTEXTS = {"STATE": frozenset({"all", "broker"}), "GETPID": _EOS, "ADDPARTS": _EOS}


class ProducerBackground:
    """The parts of one producer handle. A `Worker`. ``crashes``: the exceptions of callbacks inside a call."""

    def __init__(self, settings: ProducerSettings, link: ClientLink) -> None:
        self._settings = settings
        self._link = link
        self._timers = Timers(link.clock)
        self.crashes: list[BaseException] = []
        self.events = ProducerEvents(link.clock, only_errors=settings.only_errors)
        self.state = TransactionState(settings.transactional_id, self._log)
        requests = RequestRepeater(
            link, self._timers, self._log, timeout_s=settings.request_timeout_s, backoff_s=settings.backoff_s
        )
        self.sender = RecordSender(link, settings, self.state, self.events, self._timers, requests)
        self.placing = RecordPlacing(link, settings, self._timers, self.sender)
        self.transaction = TransactionRequests(
            link, settings, self.state, self.events, self._timers, requests, self.sender
        )
        self._has_queued_statistics = False
        requests.connected()
        if settings.stats_cb is not None and settings.statistics_interval_s > 0:
            self._timers.after(settings.statistics_interval_s, self._statistics)

    @property
    def due_s(self) -> float:
        """When the next timed action is due."""
        return math.inf if self._link.is_silent else self._timers.due_s

    def work(self) -> None:
        """Run the timed actions that are due."""
        self._timers.work()

    def serve_safely(self) -> None:
        """Serve the queued callbacks; stop at one that raises, and keep its exception in ``crashes``."""
        while self.events and not self.crashes:
            with self._keeping_crashes():
                self.events.serve()

    @contextmanager
    def _keeping_crashes(self) -> Iterator[None]:
        try:
            yield
        except Exception as crash:  # noqa: BLE001  # the call continues, and raises it at its end
            self.crashes.append(crash)

    def purge(self, *, in_queue: bool = True, in_flight: bool = False) -> None:
        """Purge records."""
        self.sender.purge(in_queue=in_queue, in_flight=in_flight)
        if in_queue:
            self.placing.purge()

    def _log(self, facility: str, line: str) -> None:
        logger = self._settings.logger
        contexts = _DEBUG_CONTEXTS.get(facility)
        if logger is not None and (contexts is None or not contexts.isdisjoint(self._settings.debug_contexts)):
            name, level = f"{self._settings.client_id}#{self._link.name}", _LEVELS[facility]
            self.events.call(lambda: logger.log(level, "%s [%s] %s", facility, name, f"[thrd:main]: {line}"))

    def _statistics(self) -> None:
        self._timers.after(self._settings.statistics_interval_s, self._statistics)
        callback = self._settings.stats_cb
        if callback is None or self._has_queued_statistics:
            return
        self._has_queued_statistics = True
        identity = self.sender.identity or NO_IDENTITY
        known = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
        eos = {**known, "txn_state": self.state.phase.value, "txn_may_enq": self.state.may_enqueue}
        text = json.dumps(
            {"name": self._link.name, "client_id": self._settings.client_id, "type": "producer", "eos": eos}
        )

        def call_stats_cb() -> None:
            self._has_queued_statistics = False
            callback(text)

        self.events.call(call_stats_cb)

    def report_error(self, code: str) -> None:
        """Queue a call of ``error_cb`` with an error from which the client recovers."""
        callback, error = self._settings.error_cb, kafka_error(code)
        if callback is not None:
            self.events.call(lambda: callback(error))

    def report_throttle(self, seconds: float) -> None:
        """Queue a call of ``throttle_cb``: a broker has delayed an answer by ``seconds``."""
        callback = self._settings.throttle_cb
        if callback is not None:
            self.events.call(lambda: callback(ThrottleEvent("simulated", 1, seconds)))

    def metadata(self, topic: str | None, deadline_s: float) -> Any:
        """Return the cluster's metadata; raises KafkaException _TRANSPORT if no answer comes in time."""
        brokers = self._link.brokers
        try:
            return self._link.call("Metadata", lambda: cluster_metadata(brokers, topic), deadline_s=deadline_s)
        except RequestTimedOut as timeout:
            raise kafka_exception("_TRANSPORT", "Failed to get metadata: Local: Broker transport failure") from timeout
