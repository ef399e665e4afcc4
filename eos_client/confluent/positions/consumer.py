"""A client library's consumer whose committed offsets are the rows of a store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from eos_client.confluent.group_metadata import GenerationReader
from eos_client.confluent.positions.claims import Claims
from eos_client.core.model import GroupGeneration, InputPartition
from eos_client.core.offset_claims import NO_OFFSET, ClaimRefusedError, Position
from eos_client.errors import ClusterUnfitError
from eos_client.ports import Clock, input_partition, input_partitions
from eos_client.position_store import StoreError, StoreUnfitError

_NO_EPOCH = -1
_REFUSED_LIMIT_S = 90.0
"""How long claims may be refused before the member is not only late: longer than any usual session time-out."""
_ASSIGNED_TIMEOUT_S = 0.5
RebalanceCallback = Callable[[Any, list[Any]], Any]


class PositionedConsumer:
    """Wraps the client library's ``consumer``: the same methods, but `committed` reads, and claims, rows of a store.

    Kafka's own offsets of the group follow behind, for tools that show a group's lag. They are never read here, but for
    partitions that have no row yet: these begin where the group was.
    """

    def __init__(self, consumer: Any, claims: Claims, clock: Clock) -> None:
        self._consumer = consumer
        self._claims = claims
        self._clock = clock
        self._generations = GenerationReader()
        self._refused_since: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    # -- the group -----------------------------------------------------------------------------------------------------

    def subscribe(
        self, topics: list[str], on_assign: RebalanceCallback, on_revoke: RebalanceCallback, on_lost: RebalanceCallback
    ) -> None:
        """See confluent_kafka. The rows of assigned partitions are claimed; what fails is done when they are read."""
        claims = self._claims

        def assigned(consumer: Any, partitions: list[Any]) -> None:
            claims.assigned(input_partitions(partitions))
            on_assign(consumer, partitions)
            self._claim_assigned(partitions)

        def revoked(consumer: Any, partitions: list[Any]) -> None:
            try:
                on_revoke(consumer, partitions)
                self._follow(asynchronously=True)
            finally:
                claims.departed(input_partitions(partitions))

        def lost(consumer: Any, partitions: list[Any]) -> None:
            try:
                on_lost(consumer, partitions)
            finally:
                claims.departed(input_partitions(partitions))

        self._consumer.subscribe(topics, on_assign=assigned, on_revoke=revoked, on_lost=lost)

    def _claim_assigned(self, partitions: list[Any]) -> None:
        """Claim the rows, and let Kafka's offsets be theirs: the library starts there, and would wait at a later one.

        Kafka's are ahead where the database was restored, or a row was set back.
        """
        with suppress(KafkaException, ClusterUnfitError):
            rows = [each for each in self.committed(partitions, _ASSIGNED_TIMEOUT_S) if each.offset >= 0]
            if rows:
                self._consumer.commit(offsets=rows, asynchronous=False)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def committed(self, partitions: list[Any], timeout: float = -1) -> list[TopicPartition]:
        """Return the offsets in the store, with the token of the attempt that has committed each as its metadata.

        Raises KafkaException while the store does not answer, or another member has claimed a row under a newer
        generation.
        """
        asked = [input_partition(partition) for partition in partitions]
        try:
            rows = self._claims.read(asked, self._generation(), lambda missing: self._group_offsets(missing, timeout))
        except ClaimRefusedError as error:
            raise self._claim_refused(error) from error
        except StoreUnfitError as error:
            raise ClusterUnfitError(str(error)) from error
        except StoreError as error:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, str(error), retriable=True)) from error  # noqa: SLF001
        self._refused_since = None
        return [_committed(partition, rows.get(partition)) for partition in asked]

    def _generation(self) -> GroupGeneration:
        return self._generations.read(self._consumer.consumer_group_metadata(), self._consumer.memberid)

    def _group_offsets(self, missing: Collection[InputPartition], timeout: float) -> Mapping[InputPartition, Position]:
        answer = self._consumer.committed([TopicPartition(*partition) for partition in missing], timeout)
        for each in answer:
            if each.error is not None:
                raise KafkaException(each.error)
        return {
            input_partition(each): Position(each.offset, leader_epoch=each.leader_epoch)
            for each in answer
            if each.offset >= 0
        }

    def _claim_refused(self, error: ClaimRefusedError) -> Exception:
        """Return a retriable error: a late member hears of its loss soon. One that stays in its group never will."""
        now = self._clock()
        if self._refused_since is None:
            self._refused_since = now
        if now - self._refused_since < _REFUSED_LIMIT_S:
            return KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION, f"{error}", retriable=True))
        return ClusterUnfitError(
            f"a row of the offsets table is {error}. If the group was deleted, or is of another cluster than before, "
            "its generations begin anew: make sure that no other process uses the table for this group, and release "
            "its rows by `eos-client offsets release`",
        )

    # -- Kafka's own offsets follow behind -----------------------------------------------------------------------------

    def poll(self, timeout: float = -1) -> Any:
        """See confluent_kafka."""
        self._follow(asynchronously=True)
        return self._consumer.poll(timeout)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        """See confluent_kafka."""
        self._follow(asynchronously=True)
        messages: list[Any] = self._consumer.consume(num_messages, timeout)
        return messages

    def commit(
        self,
        message: Any = None,  # noqa: ARG002
        offsets: list[Any] | None = None,
        asynchronous: bool = True,
    ) -> list[Any]:
        """Commit nothing: the positions are the store's. See confluent_kafka for what is returned."""
        if offsets == [] and not asynchronous:  # asks whether the consumer has failed for good
            answer: list[Any] = self._consumer.commit(offsets=[], asynchronous=False)
            return answer
        raise KafkaException(KafkaError(KafkaError._STATE, "the offsets are committed with the rows"))

    def unsubscribe(self) -> None:
        """See confluent_kafka."""
        self._follow(asynchronously=False)
        self._consumer.unsubscribe()

    def _follow(self, *, asynchronously: bool) -> None:
        if committed := self._claims.take_committed():
            offsets = [_committed(partition, row) for partition, row in committed.items()]
            with suppress(KafkaException):
                self._consumer.commit(offsets=offsets, asynchronous=asynchronously)


def _committed(partition: InputPartition, row: Position | None) -> TopicPartition:
    offset = NO_OFFSET if row is None else row.next_offset
    if row is None or offset == NO_OFFSET:
        return TopicPartition(*partition, -1001)
    epoch = _NO_EPOCH if row.leader_epoch is None else row.leader_epoch
    return TopicPartition(*partition, offset, row.attempt, leader_epoch=epoch)
