"""Holds the state of a consumer's partitions, and tells the library what follows from it.

``eos_client.core.partition_states`` decides; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, TypeVar

import tenacity
from confluent_kafka import KafkaException

from eos_client.confluent.consumer.library_consumer import LibraryConsumer, to_kafka, with_epoch
from eos_client.core.model import InputPartition, Partitions
from eos_client.core.partition_events import (
    CallEnded,
    LibraryPauses,
    LibraryResumed,
    PartitionEvent,
    Sought,
)
from eos_client.core.partition_states import ConsumerState, next_state
from eos_client.errors import EosError, FatalClientError
from eos_client.ports import Clock, input_partition

E = TypeVar("E", bound=Exception)

_SEEK_LIMIT_S = 5.0
_SEEK_AGAIN_S = 0.05


class PartitionTable:
    """``state`` is replaced by one assignment; `perform_due` tells the library what follows from it.

    `tell` replaces it, and as the last step of a call that hands records over, `EosConsumer` does.
    """

    def __init__(self, library: LibraryConsumer, clock: Clock) -> None:
        self._library = library
        self._clock = clock
        self.state = ConsumerState(reset_policy=library.reset_policy)

    def tell(self, *events: PartitionEvent) -> None:
        """Apply ``events``, one after the other, by one assignment."""
        self.state = reduce(next_state, events, self.state)

    def ended_by(self, refusal: E) -> E:
        """End the call, which hands over nothing because of ``refusal``; returns that, to be raised."""
        self.tell(CallEnded())
        return refusal

    def perform_due(self) -> None:
        """Pause, seek and resume what is due; not inside a callback, whose rebalance would outdate the seek.

        Raises FatalClientError when a partition cannot be sought.
        """
        if not self.state.due:
            return
        if pauses := self.state.due_pauses:
            self.pause(pauses)
        for partition, (offset, epoch) in self.state.due_seeks.items():
            self._seek(partition, offset, epoch)
        self.resume_due()

    def pause(self, partitions: Partitions) -> None:
        """Let the library fetch nothing of ``partitions``."""
        self.tell(LibraryPauses(partitions))  # first: a pause that was interrupted may have been done
        self._library.raw.pause(to_kafka(partitions))

    def resume_due(self) -> None:
        """Let the library fetch again what is paused without need; also inside a callback."""
        if self.state.due and (resumes := self.state.due_resumes):
            self._library.raw.resume(to_kafka(resumes))
            self.tell(LibraryResumed(resumes))

    def _seek(self, partition: InputPartition, offset: int, epoch: int | None) -> None:
        """Continue ``partition`` at ``offset``, which may be a logical one.

        A rebalance that begins meanwhile pauses partitions inside the library, which makes a seek outdated: it is
        repeated. A consumer that librdkafka has given up refuses it, too, and hands over nothing any more: the next
        call raises the reason.
        """
        deadline = self._clock() + _SEEK_LIMIT_S
        retrying = tenacity.Retrying(
            sleep=self._clock.sleep,
            retry=tenacity.retry_if_exception_type(KafkaException) & tenacity.retry_if_not_exception_type(EosError),
            stop=lambda _: self._library.check_fatal() or self._clock() >= deadline,
            wait=tenacity.wait_fixed(_SEEK_AGAIN_S),
            reraise=True,
        )
        try:
            retrying(self._library.raw.seek, with_epoch(partition, offset, epoch))
        except EosError:  # of a signal handler
            raise
        except KafkaException as error:
            if not self._library.check_fatal():
                raise FatalClientError(
                    f"{partition} could not be rewound to {offset} ({error}): its next records would be lost to this "
                    "process. End it; nothing uncommitted is lost, the group reads it again."
                ) from error
            return
        self.tell(Sought(partition, offset))


def positions_of(kafka_positions: Iterable[Any]) -> Mapping[InputPartition, int]:
    """Return the offsets of an answer of the library by partition."""
    return {input_partition(p): p.offset for p in kafka_positions}
