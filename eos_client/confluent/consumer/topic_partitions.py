"""Partitions as confluent_kafka has them."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import TopicPartition

from eos_client.core.model import InputPartition, InputPositions

__all__ = ["TopicPartition", "offsets_to_kafka", "to_kafka"]


def to_kafka(partitions: Iterable[InputPartition]) -> list[TopicPartition]:
    """Return ``partitions`` as confluent_kafka wants them."""
    return [TopicPartition(p.topic, p.partition) for p in partitions]


def offsets_to_kafka(positions: InputPositions, metadata: str) -> list[TopicPartition]:
    """Return the next offsets of ``positions``, each with ``metadata``, as confluent_kafka wants them."""
    return [
        TopicPartition(p.topic, p.partition, position.next_offset, metadata, position.leader_epoch)
        if position.leader_epoch is not None
        else TopicPartition(p.topic, p.partition, position.next_offset, metadata)
        for p, position in positions.items()
    ]
