"""What both group protocols share: rebalances are reported one at a time and wait for the application."""

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
from eos_client.testing.simulator.clients.inbox import Inbox, Rebalance, RebalanceKind, Trouble
from eos_client.testing.simulator.clients.kafka_errors import kafka_error

T = TypeVar("T")
Topics = Callable[[], frozenset[str]]


class GroupSession(ABC):
    """A member's side of the group protocol, driven by background work and by what the application has served.

    ``hold``: makes the queued records void when a rebalance is told. ``owned``: what the group gave and has not taken.
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
        self._told: Rebalance | None = None
        self._is_leaving = False
        self._departures = 0
        self._number = 0

    @property
    def membership(self) -> Membership:
        """The group metadata as of now."""
        return Membership(self.generation, self.member_id, self._settings.instance_id)

    @property
    def has_lost_partitions(self) -> bool:
        """Whether partitions were lost, and the application has not heard of it yet."""
        return self._told is not None and self._told.kind is RebalanceKind.LOSE

    @property
    def is_subscribed(self) -> bool:
        """Whether the application wants to be in the group."""
        return self._topics is not None

    @property
    def is_departing(self) -> bool:
        """Whether the group still has to hear that the member leaves."""
        return self._is_leaving or self._departures > 0

    @property
    def due_s(self) -> float:
        """When there is something to send."""
        if self.fatal is not None or self.stalled:
            return math.inf
        return self._due_s()

    # -- what the application does -------------------------------------------------------------------------------

    @abstractmethod
    def subscribe(self, topics: Topics) -> None:
        """Join the group, or change the subscription."""

    @abstractmethod
    def served(self, rebalance: Rebalance) -> None:
        """Go on: the application has served ``rebalance``."""

    def polled(self) -> None:
        """Go on: the application polls again."""
        self.stalled = False

    @abstractmethod
    def stall(self) -> None:
        """Give up: the application has not polled for ``max.poll.interval.ms``."""

    def unsubscribe(self) -> None:
        """Leave the group once the application has given up its partitions."""
        self._topics = None
        if self._told is None:
            self._give_up()

    # -- what the protocols do -----------------------------------------------------------------------------------

    @abstractmethod
    def work(self) -> None:
        """Send what is due."""

    @abstractmethod
    def _due_s(self) -> float: ...

    @abstractmethod
    def leave(self) -> tuple[str, Callable[[], object]] | None:
        """Be no member any more; returns the request that tells the coordinator, if one is to be sent."""

    @abstractmethod
    def commit_refused(self, code: str) -> None:
        """Heed what ``code``, with which a commit was refused, says about the membership."""

    def _give_up(self) -> None:
        """Have everything revoked, then leave."""
        self._is_leaving = True
        if self.owned:
            self._tell(RebalanceKind.REVOKE, self.owned)
        else:
            self._depart()

    def _depart(self) -> None:
        self._is_leaving = False
        request = self.leave()
        if request is not None:
            self._departures += 1
            self._link.post(*request, lambda _: self._departed())

    def _departed(self) -> None:
        self._departures -= 1

    def _go_on_leaving(self) -> None:
        """Leave after the last rebalance, and come back if the application has subscribed again meanwhile."""
        topics = self._topics
        self._give_up()
        if topics is not None and self._told is None:
            self.subscribe(topics)

    def _tell(self, kind: RebalanceKind, partitions: Iterable[PartitionKey]) -> None:
        self._told = Rebalance(kind, tuple(sorted(partitions)))
        self._hold()
        self._inbox.put(self._told)

    def _send(self, request: str, act: Callable[[], T], then: Callable[[Answer[T] | None], None]) -> None:
        """Send ``request``; an answer that comes after the session has begun anew is not heeded."""
        number = self._number

        def heed(answer: Answer[T] | None) -> None:
            if number == self._number:
                then(answer)

        self._link.post(request, act, heed)

    def _fail(self, code: str, why: str) -> None:
        """Be of no use any more."""
        if self.fatal is None:
            self.fatal = kafka_error(code, f"Fatal consumer error: {why}", fatal=True)
            # Once, as an event with librdkafka's own code and without the flag; error_cb hears nothing of it.
            self._inbox.put(Trouble(kafka_error("_FATAL", f"Fatal error: {why}")))
