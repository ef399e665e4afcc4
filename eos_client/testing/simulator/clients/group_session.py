"""The base of both group protocols: rebalances are queued one at a time, until the application has served each."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TypeVar

from confluent_kafka import KafkaError

from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.model import NO_GENERATION, Membership, PartitionKey
from eos_client.testing.simulator.brokers.network import Answer
from eos_client.testing.simulator.clients.configuration import ConsumerSettings
from eos_client.testing.simulator.clients.inbox import ErrorEvent, Inbox, Rebalance, RebalanceKind
from eos_client.testing.simulator.clients.kafka_errors import kafka_error

T = TypeVar("T")
Topics = Callable[[], frozenset[str]]


class GroupSession(ABC):
    """A member's side of the group protocol, driven by background work and by the rebalances that were served.

    ``hold``: stops fetching and drops queued records when a rebalance is queued. ``owned``: the partitions that were
    assigned and not revoked or lost.
    """

    def __init__(self, link: ClientLink, settings: ConsumerSettings, inbox: Inbox, hold: Callable[[], None]) -> None:
        self.generation = NO_GENERATION
        self.member_id = ""
        self.owned: frozenset[PartitionKey] = frozenset()
        self.fatal: KafkaError | None = None
        self.stalled = False
        self._link = link
        self._settings = settings
        self._inbox = inbox
        self._hold = hold
        self._topics: Topics | None = None
        self._queued_rebalance: Rebalance | None = None
        self._is_leaving = False
        self._leaves_in_flight = 0
        self._session_number = 0

    @property
    def membership(self) -> Membership:
        """The group metadata as of now."""
        return Membership(self.generation, self.member_id, self._settings.instance_id)

    @property
    def has_lost_partitions(self) -> bool:
        """Whether partitions were lost and the callback has not run yet."""
        return self._queued_rebalance is not None and self._queued_rebalance.kind is RebalanceKind.LOSE

    @property
    def is_subscribed(self) -> bool:
        """Whether the application is subscribed."""
        return self._topics is not None

    @property
    def is_departing(self) -> bool:
        """Whether the member is leaving, or its LeaveGroup request was not answered yet."""
        return self._is_leaving or self._leaves_in_flight > 0

    @property
    def due_s(self) -> float:
        """When the next request is due."""
        if self.fatal is not None or self.stalled:
            return math.inf
        return self._due_s()

    # -- what the application does -------------------------------------------------------------------------------

    @abstractmethod
    def subscribe(self, topics: Topics) -> None:
        """Join the group, or change the subscription."""

    @abstractmethod
    def on_served(self, rebalance: Rebalance) -> None:
        """Continue after the application has served ``rebalance``."""

    def on_poll(self) -> None:
        """Continue after a stall: the application polls again."""
        self.stalled = False

    @abstractmethod
    def stall(self) -> None:
        """Leave the group: the application has not polled for ``max.poll.interval.ms``."""

    def unsubscribe(self) -> None:
        """Leave the group once the application has served the revocation of its partitions."""
        self._topics = None
        if self._queued_rebalance is None:
            self._revoke_and_leave()

    # -- what the protocols do -----------------------------------------------------------------------------------

    @abstractmethod
    def work(self) -> None:
        """Send the request that is due."""

    @abstractmethod
    def _due_s(self) -> float: ...

    @abstractmethod
    def leave(self) -> tuple[str, Callable[[], object]] | None:
        """Leave the group; returns the LeaveGroup request to send, if any."""

    @abstractmethod
    def on_commit_refused(self, code: str) -> None:
        """Update the membership after a commit was refused with ``code``."""

    def _revoke_and_leave(self) -> None:
        """Revoke all partitions, then leave."""
        self._is_leaving = True
        if self.owned:
            self._queue_rebalance(RebalanceKind.REVOKE, self.owned)
        else:
            self._send_leave()

    def _send_leave(self) -> None:
        self._is_leaving = False
        request = self.leave()
        if request is not None:
            self._leaves_in_flight += 1
            self._link.post(*request, lambda _: self._on_left())

    def _on_left(self) -> None:
        self._leaves_in_flight -= 1

    def _continue_leaving(self) -> None:
        """Leave after the last rebalance, and join again if the application has subscribed again meanwhile."""
        topics = self._topics
        self._revoke_and_leave()
        if topics is not None and self._queued_rebalance is None:
            self.subscribe(topics)

    def _queue_rebalance(self, kind: RebalanceKind, partitions: Iterable[PartitionKey]) -> None:
        self._queued_rebalance = Rebalance(kind, tuple(sorted(partitions)))
        self._hold()
        self._inbox.put(self._queued_rebalance)

    def _send(self, request: str, act: Callable[[], T], then: Callable[[Answer[T] | None], None]) -> None:
        """Send ``request``; an answer that comes after the session has begun anew is ignored."""
        number = self._session_number

        def handle(answer: Answer[T] | None) -> None:
            if number == self._session_number:
                then(answer)

        self._link.post(request, act, handle)

    def _fail(self, code: str, why: str) -> None:
        """Fail fatally."""
        if self.fatal is None:
            self.fatal = kafka_error(code, f"Fatal consumer error: {why}", fatal=True)
            # Reported once, as an event with librdkafka's own code and without the fatal flag; error_cb is not called.
            said = KafkaError(kafka_error(code).code()).str()
            self._inbox.put(ErrorEvent(kafka_error("_FATAL", f"Fatal error: {said}: {why}")))
