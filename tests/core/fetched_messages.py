"""Messages as confluent_kafka gives them, as far as runs look at them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import KafkaError

from eos_client.core.model import InputPartition
from eos_client.core.record_runs import Run, messages_of

EOF = KafkaError(KafkaError._PARTITION_EOF)
ZERO, ONE = InputPartition("orders", 0), InputPartition("orders", 1)


@dataclass(frozen=True)
class Message:
    """What a run looks at in confluent_kafka's Message."""

    number: int | None
    at: int
    failed: KafkaError | None = None
    name: str | None = "orders"
    epoch: int | None = None

    def topic(self) -> str | None:
        return self.name

    def partition(self) -> int | None:
        return self.number

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return self.failed

    def leader_epoch(self) -> int | None:
        return self.epoch


def places(found: Iterable[Run]) -> list[tuple[int | None, int]]:
    """The partition number and the offset of each message of the runs."""
    return [(message.number, message.at) for message in messages_of(found)]
