"""Partitions as confluent_kafka has them."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import TopicPartition

from eos_client.core.model import InputPartition

__all__ = ["TopicPartition", "to_kafka"]


def to_kafka(partitions: Iterable[InputPartition]) -> list[TopicPartition]:
    """Return ``partitions`` as confluent_kafka wants them."""
    return [TopicPartition(p.topic, p.partition) for p in partitions]
