"""The checks at the start of every call of a simulated consumer, and the consumer's background work."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, ThrottleEvent, TopicPartition

from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.model import BrokerError, PartitionKey
from eos_client.testing.simulator.brokers.network import RequestTimedOut
from eos_client.testing.simulator.clients.classic_session import ClassicSession
from eos_client.testing.simulator.clients.configuration import consumer_settings
from eos_client.testing.simulator.clients.consumer_session import ConsumerSession
from eos_client.testing.simulator.clients.fetcher import Fetcher
from eos_client.testing.simulator.clients.inbox import ClientCallback, ErrorEvent, Inbox
from eos_client.testing.simulator.clients.kafka_errors import kafka_error
from eos_client.testing.simulator.clients.offset_commits import OffsetCommits

T = TypeVar("T")


class Background:
    """A consumer's background work (a `Worker`): membership, look-ups, fetches, automatic commits."""

    def __init__(self, config: Mapping[str, Any], link: ClientLink) -> None:
        self.settings = consumer_settings(config)
        self.link = link
        self.inbox = Inbox(link.random)
        self.fetcher = Fetcher(link, self.settings, self.inbox)
        session = ConsumerSession if self.settings.is_member_epoch else ClassicSession
        self.session = session(link, self.settings, self.inbox, self.fetcher.hold)
        self.commits = OffsetCommits(link, self.settings, self.inbox, self.session)
        self._polled_s: float | None = None
        interval_s = self.settings.statistics_interval_s
        has_statistics = interval_s > 0 and self.settings.stats_cb is not None
        self._statistics_s = link.clock() + interval_s if has_statistics else math.inf
        self._parts = (self.session, self.fetcher, self.commits)
        link.attach(self, self._names())

    def _names(self) -> list[str]:
        settings = self.settings
        return [n for n in (settings.client_id, settings.group_id, settings.instance_id) if n]

    @property
    def due_s(self) -> float:
        """When the next piece of work is due."""
        return min(self._stall_s, self._statistics_s, self.session.due_s, self.fetcher.due_s, self.commits.due_s)

    def work(self) -> None:
        """Do what is due."""
        now_s = self.link.clock()
        if now_s >= self._stall_s:
            limit_ms, over_ms = self.settings.poll_limit_s * 1000, (now_s - self._stall_s) * 1000
            why = f"Application maximum poll interval ({limit_ms:.0f}ms) exceeded by {over_ms:.0f}ms"
            self.inbox.put(ErrorEvent(kafka_error("_MAX_POLL_EXCEEDED", why)))
            self.session.stall()
        if now_s >= self._statistics_s:
            self._statistics_s = now_s + self.settings.statistics_interval_s
            self._queue_call(self.settings.stats_cb, json.dumps(self._statistics()))
        for part in self._parts:
            if part.due_s <= now_s:
                part.work()

    def _statistics(self) -> dict[str, Any]:
        topics: dict[str, Any] = {}
        for (topic, number), flow in self.fetcher.flows.items():
            offsets = {"hi_offset": flow.watermarks[1], "ls_offset": flow.last_stable_offset}
            topics.setdefault(topic, {"partitions": {}})["partitions"][str(number)] = offsets
        return {"name": self.link.name, "client_id": self.settings.client_id, "type": "consumer", "topics": topics}

    def report_error(self, code: str) -> None:
        """Queue a call of ``error_cb`` with an error from which the client recovers."""
        self._queue_call(self.settings.error_cb, kafka_error(code))

    def report_throttle(self, seconds: float) -> None:
        """Queue a call of ``throttle_cb``: a broker has delayed an answer by ``seconds``."""
        self._queue_call(self.settings.throttle_cb, ThrottleEvent("simulated", 1, seconds))

    def _queue_call(self, callback: Callable[[Any], Any] | None, argument: Any) -> None:
        if callback is not None:
            self.inbox.put(ClientCallback(lambda: callback(argument)))

    @property
    def _stall_s(self) -> float:
        session = self.session
        if self._polled_s is None or session.stalled or session.fatal is not None or not session.is_subscribed:
            return math.inf
        return self._polled_s + self.settings.poll_limit_s

    def poll_begins(self) -> None:
        """Stop counting towards ``max.poll.interval.ms``: the application is inside ``poll``."""
        self._polled_s = None
        self.session.on_poll()

    def poll_ends(self) -> None:
        """Count towards ``max.poll.interval.ms`` from now on."""
        self._polled_s = self.link.clock()
        self.session.on_poll()


class ClientCore:
    """The part that refuses calls of a closed or frozen client."""

    def __init__(self, config: Mapping[str, Any], link: ClientLink) -> None:
        self._background = Background(config, link)
        self._link = link
        self._closed = False

    def _use(self, closed: str = "Consumer closed") -> Background:
        """Return the parts of the client; raises RuntimeError if it is closed or its process is stopped."""
        if self._closed:
            raise RuntimeError(closed)
        self._link.require_running()
        return self._background

    def _call(self, request: str, act: Callable[[], T], timeout: float, failure: str) -> T:
        """Send ``request`` and wait for its answer for up to ``timeout`` seconds; negative: without a limit."""
        try:
            return self._link.call(request, act, deadline_s=self._deadline_s(timeout))
        except BrokerError as refusal:
            raise failed(failure, refusal.code) from refusal
        except RequestTimedOut as late:
            raise failed(failure, "_TIMED_OUT") from late

    def _deadline_s(self, timeout: float) -> float:
        """Return when a call with ``timeout`` ends; ``math.inf`` for a negative one."""
        return math.inf if timeout < 0 else self._link.clock() + timeout


def failed(failure: str, code: str) -> KafkaException:
    """Return confluent_kafka's exception for ``code``, with ``failure`` before the library's text."""
    text = KafkaError(kafka_error(code).code()).str()
    return KafkaException(kafka_error(code, f"{failure}: {text}"))


def key_of(partition: TopicPartition) -> PartitionKey:
    """Return the topic and number of ``partition``."""
    return PartitionKey(partition.topic, partition.partition)
