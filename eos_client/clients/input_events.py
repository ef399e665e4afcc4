"""What a consumer learns of its input beside records: error events, and topics that do not exist."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.diagnosis import unreachable
from eos_client.confluent.failures.client_failures import lacks_credentials
from eos_client.confluent.failures.consumer_failures import event_code, input_error
from eos_client.confluent.failures.kafka_errors import is_fatal
from eos_client.confluent.preflight import is_reachable, require_topics
from eos_client.core.error_events import ErrorEvent, EventMeaning, meaning_of
from eos_client.core.model import Partitions
from eos_client.errors import ClusterUnavailableError
from eos_client.observe import ClientReported, EventHook
from eos_client.ports import Clock

_ANSWER_LIMIT_S = 1.0
_SPREAD_WAIT_S = 1.0  # until all brokers know that a topic was deleted
_RETRY_INTERVAL_S = 5.0


class InputEvents:
    """Separates the records of ``consumer`` from its error events, and acts on the events."""

    def __init__(self, consumer: ConfluentConsumer, hook: EventHook) -> None:
        self._consumer = consumer
        self._hook = hook

    def records(self, batch: list[Any]) -> list[Any]:
        """Return the records of ``batch``, at the cost of one call where it has no events; reports those to the hook.

        Raises ClusterUnfitError for an event that waiting does not resolve, FatalClientError for one that ends the
        client.
        """
        if not batch or not any(map(type(batch[0]).error, batch)):
            return batch
        for message in batch:
            if message.error() is not None:
                self._act_on(message.error(), message.topic())
        return [message for message in batch if message.error() is None]

    def _act_on(self, error: Any, topic: str | None) -> None:
        is_named = topic is None or self._consumer.membership.names(topic)
        meaning = meaning_of(ErrorEvent(event_code(error), fatal=is_fatal(error), is_named=is_named))
        if meaning is EventMeaning.REPORT:
            self._hook(ClientReported(client="consumer", error=f"{error.name()}: {error.str()}"))
        elif meaning is not EventMeaning.IGNORE:
            raise input_error(error, topic=topic, group_id=self._consumer.library.group_id)


class RefusedCredentials:
    """Whether the cluster still takes the credentials of a ``consumer`` that waits for records.

    A consumer whose credentials are refused looks idle. So once a broker has refused them, the cluster is asked,
    because another broker may accept them.
    """

    def __init__(self, consumer: ConfluentConsumer, limit_s: float, clock: Clock) -> None:
        self._consumer = consumer
        self._limit_s = limit_s
        self._clock = clock
        self._ask_at = clock()
        self._since: float | None = None

    def raise_if_refused(self) -> None:
        """Raise AuthenticationError if no broker has accepted the credentials for ``limit_s`` seconds."""
        reported = self._consumer.library.last_errors
        if not lacks_credentials(reported.last) or self._clock() < self._ask_at:
            return
        self._since = self._clock() if self._since is None else self._since
        if is_reachable(self._consumer, _ANSWER_LIMIT_S):
            reported.last = self._since = None
        elif self._clock() - self._since >= self._limit_s:
            raise unreachable(self._consumer.settings, self._limit_s, reported)
        self._ask_at = self._clock() + _RETRY_INTERVAL_S


class MissingTopics:
    """The subscribed topics whose existence is still to be confirmed, at first or since their partitions left.

    Only a KIP-848 group needs this: its coordinator does not report missing topics to members.
    """

    def __init__(
        self, consumer: ConfluentConsumer, topics: Sequence[str], clock: Clock, *, are_confirmed: bool = False
    ) -> None:
        self._consumer = consumer
        self._topics = frozenset(topics if consumer.membership.is_member_epoch else ())
        self._unconfirmed = frozenset() if are_confirmed else self._topics
        self._assigned: Partitions = frozenset()
        self._clock = clock
        self._ask_at = clock()

    def require(self) -> None:
        """Raise ClusterUnfitError for a named topic that does not exist; a cluster without an answer is asked again."""
        assigned = self._consumer.membership.assigned
        if self._topics and assigned is not self._assigned:
            departed = self._topics & {p.topic for p in self._assigned} - {p.topic for p in assigned}
            if departed:
                self._unconfirmed |= departed
                self._ask_at = self._clock() + _SPREAD_WAIT_S
            self._assigned = assigned
        if not self._unconfirmed or self._clock() < self._ask_at:
            return
        self._ask_at = self._clock() + _RETRY_INTERVAL_S
        with suppress(ClusterUnavailableError):
            require_topics(self._consumer, sorted(self._unconfirmed), _ANSWER_LIMIT_S, self._clock)
            self._unconfirmed = frozenset()
