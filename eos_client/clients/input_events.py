"""Handles error events and missing topics of a consumer's input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.consumer.plain_offsets import PlainUse
from eos_client.confluent.diagnosis import unreachable
from eos_client.confluent.failures.client_failures import lacks_credentials
from eos_client.confluent.failures.consumer_failures import event_code, input_error
from eos_client.confluent.failures.kafka_errors import is_fatal
from eos_client.confluent.preflight import has_topic, known_topics, require_topics
from eos_client.core.error_events import ErrorEvent, EventMeaning, meaning_of
from eos_client.core.model import InputPartition, is_pattern
from eos_client.core.whole_patterns import is_known_to_python, no_match, unmatched
from eos_client.errors import ClusterUnavailableError
from eos_client.observe import ClientReported, EventHook, LagMeasured
from eos_client.ports import Clock

_ANSWER_LIMIT_S = 1.0
_LOOK_INTERVAL_S = 3.0
_SPREAD_WAIT_S = 2.0  # until all brokers know that a topic was created or deleted
_PACE_S = 0.1  # between two topics
_PATTERN_INTERVAL_S = 300.0
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
        is_named = topic is None or self._consumer.membership.state.names(topic)
        meaning = meaning_of(ErrorEvent(event_code(error), fatal=is_fatal(error), is_named=is_named))
        if meaning is EventMeaning.REPORT:
            self._hook(ClientReported(client="consumer", error=f"{error.name()}: {error.str()}"))
        elif meaning is not EventMeaning.IGNORE:
            patterns = self._consumer.membership.state.patterns
            raise input_error(error, topic=topic, group_id=self._consumer.library.group_id, patterns=patterns)


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
        if known_topics(self._consumer, _ANSWER_LIMIT_S) is not None:
            reported.last = self._since = None
        elif self._clock() - self._since >= self._limit_s:
            simulated = not self._consumer.library.is_real
            raise unreachable(self._consumer.settings, self._limit_s, reported, simulated=simulated)
        self._ask_at = self._clock() + _RETRY_INTERVAL_S


class MissingTopics:
    """The topics subscribed by name that the cluster does not have, or not any more.

    librdkafka reports none to a KIP-848 member, and a deleted one to a classic member only at the next
    ``topic.metadata.refresh.interval.ms`` (300 s). So a topic of which nothing was handed over since the last look is
    looked up every ``_LOOK_INTERVAL_S``, by a request for this topic alone; a topic that is being read costs nothing.
    The metadata of one broker may be old: ``missing`` are those that one answer lacks, and a second answer decides.
    """

    def __init__(
        self, consumer: ConfluentConsumer, topics: Sequence[str], clock: Clock, *, are_confirmed: bool = False
    ) -> None:
        self.missing: frozenset[str] = frozenset()
        self._consumer = consumer
        self._clock = clock
        is_reported = are_confirmed or not consumer.membership.state.is_member_epoch
        self._ask_at = clock() + (_LOOK_INTERVAL_S if is_reported else 0.0)
        self._look_at = {topic: self._ask_at for topic in topics if not is_pattern(topic)}
        self._read_up_to: dict[str, dict[InputPartition, int]] = {}

    def require(self) -> None:
        """Raise ClusterUnfitError for a named topic that does not exist; a cluster without an answer is asked again."""
        if self._clock() < self._ask_at or not self._look_at:
            return
        topic = min(self._look_at, key=self._look_at.__getitem__)
        wait_s, pace_s = self._look_up(topic), _PACE_S
        if wait_s is None:
            wait_s = pace_s = _RETRY_INTERVAL_S
        self._look_at[topic] = self._clock() + wait_s
        self._ask_at = max(min(self._look_at.values()), self._clock() + pace_s)

    def _look_up(self, topic: str) -> float | None:
        """Ask whether ``topic`` exists if nothing of it was read since the last look; return when to look again.

        None: no broker has answered.
        """
        read_up_to = {p: offset for p, offset in self._consumer.state.next_offsets.items() if p.topic == topic}
        if topic in self.missing:
            return self._require_at_last(topic)
        if not read_up_to.items() <= self._read_up_to.get(topic, {}).items():
            self._read_up_to[topic] = read_up_to
            return _LOOK_INTERVAL_S
        is_there = has_topic(self._consumer, topic, _ANSWER_LIMIT_S)
        if is_there is False:
            self.missing |= {topic}
            return _SPREAD_WAIT_S
        return None if is_there is None else _LOOK_INTERVAL_S

    def _require_at_last(self, topic: str) -> float | None:
        try:
            require_topics(self._consumer, [topic], _ANSWER_LIMIT_S, self._clock)
        except ClusterUnavailableError:
            return None
        self.missing -= {topic}
        return _LOOK_INTERVAL_S


class UnmatchedPatterns:
    """The patterns of a KIP-848 member that match no topic: reported to the hook, because librdkafka reports none.

    They are looked up as often as a classic member looks for new topics, and not while partitions of a match are ours.
    """

    def __init__(self, consumer: ConfluentConsumer, topics: Sequence[str], hook: EventHook, clock: Clock) -> None:
        patterns = filter(is_pattern, topics if consumer.membership.state.is_member_epoch else ())
        self._patterns = frozenset(filter(is_known_to_python, patterns))
        self._reported: frozenset[str] = frozenset()
        self._consumer = consumer
        self._hook = hook
        self._clock = clock
        self._look_at = clock() + _LOOK_INTERVAL_S if self._patterns else math.inf

    def report(self) -> None:
        """Report those that match nothing and did before, or that were not looked up yet."""
        if self._clock() < self._look_at:
            return
        self._look_at = self._clock() + _PATTERN_INTERVAL_S
        missing = unmatched(self._patterns, {p.topic for p in self._consumer.membership.state.assigned})
        if missing:
            topics = known_topics(self._consumer, _ANSWER_LIMIT_S)
            if topics is None:
                self._look_at = self._clock() + _RETRY_INTERVAL_S
                return
            missing = unmatched(missing, topics)
            for pattern in sorted(missing - self._reported):
                self._hook(ClientReported(client="consumer", error=no_match(pattern, topics)))
        self._reported = missing


class LagReport:
    """Reports the lag of the group's offsets from librdkafka's statistics."""

    def __init__(self, consumer: ConfluentConsumer, hook: EventHook) -> None:
        self._consumer = consumer
        self._hook = hook
        self._reported: dict[InputPartition, int] = {}

    def report(self) -> None:
        """Report the lag if librdkafka has delivered statistics since the last call, and it has changed.

        Partitions of which nothing was handed over since they were assigned are left out. Nothing is reported where
        the application commits by itself: this consumer does not see those commits.
        """
        ends = self._consumer.library.take_stable_ends()
        if ends is None or PlainUse.METADATA in self._consumer.plain.uses:
            return
        state = self._consumer.state
        first_offsets = {partition: position.first_offset for partition, position in state.owned_positions.items()}
        committed = {**state.next_offsets, **first_offsets}
        known = self._consumer.membership.state.assigned & committed.keys() & ends.keys()
        lag = {p: max(0, ends[p] - committed[p]) for p in known if committed[p] >= 0}
        if lag and lag != self._reported:
            self._reported = lag
            self._hook(LagMeasured(records=lag))
