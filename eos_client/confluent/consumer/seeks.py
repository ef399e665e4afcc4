"""Moves a partition's position, and books where its next records come from."""

from __future__ import annotations

import tenacity
from confluent_kafka import KafkaException, TopicPartition

from eos_client.confluent.consumer.library_consumer import LibraryConsumer
from eos_client.confluent.consumer.read_positions import ReadPositions
from eos_client.core.hand_over import HandOver
from eos_client.core.model import InputPartition
from eos_client.errors import FatalClientError
from eos_client.ports import Clock

_SEEK_LIMIT_S = 5.0
_SEEK_AGAIN_S = 0.05


class Seeks:
    """The seeks that this package makes by itself; the application's own are not repeated."""

    def __init__(self, library: LibraryConsumer, handed: HandOver, reads: ReadPositions, clock: Clock) -> None:
        self._library = library
        self._handed = handed
        self._reads = reads
        self._clock = clock

    def seek(self, partition: InputPartition, offset: int) -> None:
        """Continue ``partition`` at ``offset``, which may be a logical one.

        A rebalance that begins meanwhile pauses partitions inside the library, which makes a seek outdated: it is
        repeated. Raises FatalClientError when that does not help.
        """
        self._handed.continues_at(partition, offset)
        place = TopicPartition(partition.topic, partition.partition, offset)
        deadline = self._clock() + _SEEK_LIMIT_S
        retrying = tenacity.Retrying(
            sleep=self._clock.sleep,
            retry=tenacity.retry_if_exception_type(KafkaException),
            stop=lambda _: self._clock() >= deadline,
            wait=tenacity.wait_fixed(_SEEK_AGAIN_S),
            reraise=True,
        )
        try:
            retrying(self._library.raw.seek, place)
            self._reads.goes_on_at(partition, offset)
        except KafkaException as error:
            raise FatalClientError(
                f"{partition} could not be rewound to {offset} ({error}): its next records would be lost to this "
                "process. End it; nothing uncommitted is lost, the group reads it again."
            ) from error

    def starts_at(self, partition: InputPartition, offset: int) -> None:
        """``partition`` is about to be handed over from ``offset`` on, without a seek.

        Should the call that hands it over be broken off, the next one goes back to there.
        """
        self._handed.continues_at(partition, offset)
