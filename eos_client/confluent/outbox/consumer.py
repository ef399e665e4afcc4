"""A client library's consumer whose records are the rows of an outbox."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import OFFSET_END, OFFSET_INVALID, KafkaError, KafkaException, Message, TopicPartition

from eos_client.confluent.outbox.bucket_flows import BucketFlows
from eos_client.confluent.outbox.published_rows import PublishedRows
from eos_client.core.model import InputPartition
from eos_client.core.outbox_numbers import BucketState, why_not_relayed
from eos_client.errors import ClusterUnfitError
from eos_client.outbox_store import OutboxStore
from eos_client.ports import Clock, input_partition, input_partitions
from eos_client.position_store import StoreError, StoreUnfitError

_ANSWER_LIMIT_S = 0.5
_RETRY_INTERVAL_S = 0.5
_REPORT_AFTER_S = 1.0
_REPORT_INTERVAL_S = 30.0
RebalanceCallback = Callable[[Any, list[Any]], Any]


class GroupSilentError(Exception):
    """The group does not say where partitions start: a transaction with their offsets is open, or no broker answers."""


class OutboxConsumer:
    """Wraps the client library's ``consumer``, a member of a group that is assigned partitions of a ledger topic.

    The same methods, but the records of a partition are the rows of its bucket, and their offsets are the rows'
    numbers. Nothing is ever written to the topic or fetched from it. The committed offsets are the group's, so a
    position moves in a Kafka transaction that the group fences (KIP-447). A store that does not answer is asked again
    without limit, as a cluster is; ``outage`` says why while it does not, and an error event reports that.
    ``is_incremental``: the protocol of the group changes assignments incrementally.
    """

    def __init__(
        self, consumer: Any, store: OutboxStore, clock: Clock, *, is_incremental: bool, poll_interval_s: float
    ) -> None:
        self._consumer = consumer
        self._store = store
        self._clock = clock
        self._is_incremental = is_incremental
        self._poll_interval_s = poll_interval_s
        self._flows = BucketFlows(store)
        self._published = PublishedRows(consumer, store, clock)
        self._is_leaving = False
        self._look_at = 0.0
        self._report_at = math.inf
        self.outage = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    # -- the group -----------------------------------------------------------------------------------------------------

    def subscribe(
        self, topics: list[str], on_assign: RebalanceCallback, on_revoke: RebalanceCallback, on_lost: RebalanceCallback
    ) -> None:
        """See confluent_kafka."""

        def assigned(consumer: Any, partitions: list[Any]) -> None:
            self._begin(partitions, incrementally=self._is_incremental)
            on_assign(consumer, partitions)

        def departing(callback: RebalanceCallback) -> RebalanceCallback:
            def departed(consumer: Any, partitions: list[Any]) -> None:
                try:
                    callback(consumer, partitions)
                finally:
                    self._flows.drop(input_partitions(partitions))

            return departed

        self._is_leaving = False
        self._consumer.subscribe(topics, on_assign=assigned, on_revoke=departing(on_revoke), on_lost=departing(on_lost))

    def unsubscribe(self) -> None:
        """See confluent_kafka. What is published by then is cleared away first."""
        if not self._is_leaving:
            self._is_leaving = True
            self._published.clear_rest(self._flows.perhaps_published)
        self._consumer.unsubscribe()

    def assign(self, partitions: list[Any]) -> None:
        """See confluent_kafka."""
        self._flows.drop(list(self._flows.assigned))
        self._begin(partitions, incrementally=False)

    def incremental_assign(self, partitions: list[Any]) -> None:
        """See confluent_kafka."""
        self._begin(partitions, incrementally=True)

    def unassign(self) -> None:
        """See confluent_kafka."""
        self._consumer.unassign()
        self._flows.drop(list(self._flows.assigned))

    def incremental_unassign(self, partitions: list[Any]) -> None:
        """See confluent_kafka."""
        self._consumer.incremental_unassign(partitions)
        self._flows.drop(input_partitions(partitions))

    def _begin(self, partitions: list[Any], *, incrementally: bool) -> None:
        """Let the library hold ``partitions`` without fetching them, and begin their flows."""
        held = [TopicPartition(p.topic, p.partition, OFFSET_END) for p in partitions]
        (self._consumer.incremental_assign if incrementally else self._consumer.assign)(held)
        self._consumer.pause(held)
        self._flows.add({input_partition(p): p.offset for p in partitions})
        self._look_at = 0.0

    # -- rows ----------------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> Message | None:
        """See confluent_kafka."""
        messages = self.consume(1, timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """See confluent_kafka. Rebalance callbacks are served before rows are taken."""
        deadline = math.inf if timeout < 0 else self._clock() + timeout
        wait_s = 0.0
        while True:
            event = self._consumer.poll(wait_s)
            if event is not None and event.error() is not None:
                return [event]
            if messages := self._take(num_messages):
                return messages
            if self._clock() >= self._report_at:
                self._report_at = self._clock() + _REPORT_INTERVAL_S
                return [Message(error=KafkaError(KafkaError._TRANSPORT, self.outage))]  # noqa: SLF001
            now = self._clock()
            if now >= deadline:
                return []
            wait_s = max(0.0, min(deadline, self._look_at if self._flows.assigned else deadline) - now)
            wait_s = min(wait_s, 1.0) if math.isinf(wait_s) else wait_s

    def _take(self, count: int) -> list[Message]:
        if self._is_leaving:
            return []
        self._published.clear_due(lambda: self._flows.perhaps_published)
        messages = self._flows.take(count)
        if not messages and self._flows.assigned and self._clock() >= self._look_at:
            self._look()
            messages = self._flows.take(count)
        return messages

    def _look(self) -> None:
        """Read rows; where none is left, number new ones and read again."""
        try:
            with suppress(GroupSilentError):  # of some partitions; StartOffsets reports it, and the others go on
                self._flows.look_up_starts(self._group_offsets)
            found = self._flows.read()
            if not found and self._flows.is_any_hungry and (rows := self._store.number_and_read()):
                found = True
                self._flows.add_numbered(rows)
        except StoreUnfitError as error:
            raise ClusterUnfitError(str(error)) from error
        except StoreError as error:
            self._record_failure(error)
            return
        self._report_at, self.outage = math.inf, ""
        self._look_at = self._clock() + (0.0 if found else self._poll_interval_s)

    def _record_failure(self, error: StoreError) -> None:
        now = self._clock()
        self._look_at = now + _RETRY_INTERVAL_S
        if not self.outage:
            self._report_at = now + _REPORT_AFTER_S
        self.outage = f"the outbox cannot be read: {error}"

    # -- positions -----------------------------------------------------------------------------------------------------

    def seek(self, partition: Any) -> None:
        """See confluent_kafka."""
        flow = self._flows.get(input_partition(partition))
        if flow is None:
            raise KafkaException(KafkaError(KafkaError._STATE, f"{partition.topic}[{partition.partition}] has no flow"))
        flow.seek(partition.offset)
        self._look_at = 0.0

    def pause(self, partitions: list[Any]) -> None:
        """See confluent_kafka."""
        self._flows.pause(input_partitions(partitions), is_paused=True)

    def resume(self, partitions: list[Any]) -> None:
        """See confluent_kafka."""
        self._flows.pause(input_partitions(partitions), is_paused=False)
        self._look_at = 0.0

    def position(self, partitions: list[Any]) -> list[TopicPartition]:
        """See confluent_kafka."""
        shown = [(p, self._flows.get(input_partition(p))) for p in partitions]
        positions = [(p, None if flow is None else flow.shown_position) for p, flow in shown]
        return [TopicPartition(p.topic, p.partition, OFFSET_INVALID if o is None else o) for p, o in positions]

    def get_watermark_offsets(self, partition: Any, timeout: float = -1, cached: bool = False) -> tuple[int, int]:
        """See confluent_kafka. Rows that are visible now are numbered first, so that they lie before the end."""
        deadline = math.inf if timeout < 0 else self._clock() + timeout
        try:
            while not cached and self._store.number():
                if self._clock() >= deadline:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "rows are still being numbered"))
            state = self._store.states([partition.partition])[partition.partition]
        except StoreError as error:
            raise _unanswered(error) from error
        return state.published, state.next_seq

    def committed(self, partitions: list[Any], timeout: float = -1) -> list[TopicPartition]:
        """Return the group's offsets.

        Raises KafkaException while the group or the store does not answer, ClusterUnfitError where an offset does not
        go with the rows: some would be lost, or published twice.
        """
        buckets = [partition.partition for partition in partitions]
        try:
            before = self._store.states(buckets)
            answer: list[TopicPartition] = self._consumer.committed(partitions, timeout)
            after = self._store.states(buckets)
        except StoreUnfitError as error:
            raise ClusterUnfitError(str(error)) from error
        except StoreError as error:
            raise _unanswered(error) from error
        for each in answer:
            state = BucketState(after[each.partition].next_seq, before[each.partition].published)
            why = why_not_relayed(each.offset if each.offset >= 0 else None, state) if each.error is None else ""
            if why:
                raise ClusterUnfitError(
                    f"{each.topic}[{each.partition}]: {why}. Nothing of it is published, because rows could be lost or "
                    "published twice. Start the relay under the group that it had. If that is right, find out which "
                    "rows are published, and let the group's offset for this partition, and the outbox's rows and its "
                    "table of buckets, say so"
                )
        return answer

    def _group_offsets(self, partitions: list[InputPartition]) -> Mapping[InputPartition, int]:
        try:
            answer = self.committed([TopicPartition(*p) for p in partitions], _ANSWER_LIMIT_S)
        except KafkaException as error:
            if isinstance(error.__cause__, StoreError):
                raise error.__cause__ from error
            raise GroupSilentError from error
        if any(each.error is not None for each in answer):
            raise GroupSilentError
        return {input_partition(each): each.offset for each in answer if each.offset >= 0}


def _unanswered(error: StoreError) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TRANSPORT, str(error), retriable=True))  # noqa: SLF001
