"""TopicPartitions as confluent_kafka returns them, each with its own error if it has one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from eos_client.testing.simulator.brokers.model import PartitionKey


def _by_name(compare: Callable[..., Any]) -> Any:
    def compared(self: TopicPartition, other: object) -> Any:
        if not isinstance(other, TopicPartition):
            return NotImplemented
        return compare((self.topic, self.partition), (other.topic, other.partition))

    return compared


class TopicPartitionWithError(TopicPartition):
    """A partition with ``error``, which Python cannot set on confluent_kafka's own class.

    confluent_kafka's class compares equal to its own kind only; this one also to that class, by topic and partition.
    """

    error: KafkaError | None = None
    __hash__ = TopicPartition.__hash__
    __eq__, __ne__ = _by_name(operator.eq), _by_name(operator.ne)
    __lt__, __le__ = _by_name(operator.lt), _by_name(operator.le)
    __gt__, __ge__ = _by_name(operator.gt), _by_name(operator.ge)


def topic_partition_of(
    partition: PartitionKey, offset: int, metadata: str = "", error: KafkaError | None = None
) -> TopicPartition:
    """Return ``partition`` at ``offset`` as confluent_kafka returns it."""
    kind = TopicPartition if error is None else TopicPartitionWithError
    topic_partition = kind(*partition, offset, metadata) if metadata else kind(*partition, offset)
    if isinstance(topic_partition, TopicPartitionWithError):
        topic_partition.error = error
    return topic_partition
