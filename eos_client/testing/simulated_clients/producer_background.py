"""What a producer does while its application does something else. It outlives the application's last call."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eos_client.testing.simulated_clients.cluster_queries import cluster_metadata
from eos_client.testing.simulated_clients.kafka_errors import kafka_exception
from eos_client.testing.simulated_clients.producer_events import ProducerEvents
from eos_client.testing.simulated_clients.producer_records import RecordPlacing
from eos_client.testing.simulated_clients.producer_settings import ProducerSettings
from eos_client.testing.simulated_clients.record_sender import NOBODY, RecordSender
from eos_client.testing.simulated_clients.request_repeater import RequestRepeater, Timers
from eos_client.testing.simulated_clients.transaction_requests import TransactionRequests
from eos_client.testing.simulated_clients.transaction_state import TransactionState
from eos_client.testing.simulation.link import ClientLink
from eos_client.testing.simulation.network import RequestTimedOut

_LEVELS = {"TXNERR": logging.ERROR, "FATAL": logging.CRITICAL, "REQTMOUT": logging.WARNING, "FAIL": logging.ERROR}


class ProducerBackground:
    """The parts of one producer handle, joined. A `Worker`. ``crashes``: what callbacks raised within a call."""

    def __init__(self, settings: ProducerSettings, link: ClientLink) -> None:
        self._settings = settings
        self._link = link
        self._timers = Timers(link.clock)
        self.crashes: list[BaseException] = []
        self.events = ProducerEvents(link.clock, only_errors=settings.only_errors)
        self.state = TransactionState(settings.transactional_id, self._tell)
        requests = RequestRepeater(
            link, self._timers, self._tell, timeout_s=settings.request_timeout_s, backoff_s=settings.backoff_s
        )
        self.sender = RecordSender(link, settings, self.state, self.events, self._timers, requests)
        self.placing = RecordPlacing(link, settings, self._timers, self.sender)
        self.transaction = TransactionRequests(
            link, settings, self.state, self.events, self._timers, requests, self.sender
        )
        self._statistics_wait = False
        if settings.stats_cb is not None and settings.statistics_interval_s > 0:
            self._timers.after(settings.statistics_interval_s, self._statistics)

    @property
    def due_s(self) -> float:
        """When it has something to do next."""
        return self._timers.due_s

    def work(self) -> None:
        """Do it."""
        self._timers.work()

    def serve_safely(self) -> None:
        """Serve what waits for the application, up to a callback that raises: that is kept in ``crashes``."""
        while self.events and not self.crashes:
            with self._keeping_crashes():
                self.events.serve()

    @contextmanager
    def _keeping_crashes(self) -> Iterator[None]:
        try:
            yield
        except Exception as crash:  # noqa: BLE001  # the call goes on, and raises it at its end
            self.crashes.append(crash)

    def purge(self, *, in_queue: bool = True, in_flight: bool = False) -> None:
        """Give up records."""
        self.sender.purge(in_queue=in_queue, in_flight=in_flight)
        if in_queue:
            self.placing.purge()

    def _tell(self, facility: str, line: str) -> None:
        logger = self._settings.logger
        if logger is not None:
            name, level = f"{self._settings.client_id}#{self._link.name}", _LEVELS[facility]
            self.events.call(lambda: logger.log(level, "%s [%s] %s", facility, name, f"[thrd:main]: {line}"))

    def _statistics(self) -> None:
        self._timers.after(self._settings.statistics_interval_s, self._statistics)
        callback = self._settings.stats_cb
        if callback is None or self._statistics_wait:
            return
        self._statistics_wait = True
        identity = self.sender.identity or NOBODY
        known = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
        eos = {**known, "txn_state": self.state.phase.value, "txn_may_enq": self.state.may_enqueue}
        text = json.dumps(
            {"name": self._link.name, "client_id": self._settings.client_id, "type": "producer", "eos": eos}
        )

        def told() -> None:
            self._statistics_wait = False
            callback(text)

        self.events.call(told)

    def metadata(self, topic: str | None, deadline_s: float) -> Any:
        """Ask the brokers for their topics; raises KafkaException _TRANSPORT when no answer comes in time."""
        brokers = self._link.brokers
        try:
            return self._link.call("Metadata", lambda: cluster_metadata(brokers, topic), deadline_s=deadline_s)
        except RequestTimedOut as silence:
            raise kafka_exception("_TRANSPORT", "Failed to get metadata: Local: Broker transport failure") from silence
