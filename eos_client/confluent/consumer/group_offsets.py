"""The offsets that the group has committed, read and written plainly, and the ends of logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaException, TopicPartition

from eos_client.confluent.consumer.library_consumer import LibraryConsumer, to_kafka
from eos_client.confluent.failures import committed_offsets_unknown, consumer_errors
from eos_client.core.model import CommittedOffset, InputPartition, InputPositions
from eos_client.errors import CommitRefusedError, EosError, FatalClientError

_STABLE_TIMEOUT_S = 0.5


class GroupOffsets:
    """Asks the group's coordinator, and the partitions' leaders."""

    def __init__(self, library: LibraryConsumer) -> None:
        self._library = library

    def committed(self, partitions: list[TopicPartition], timeout_s: float) -> list[TopicPartition]:
        """Read committed offsets as confluent_kafka does; waits for pending transactional ones (KIP-447)."""
        with consumer_errors("committed()"):
            committed: list[TopicPartition] = self._library.raw.committed(partitions, timeout_s)
        return committed

    def entries(self, partitions: Iterable[InputPartition], timeout_s: float) -> dict[InputPartition, CommittedOffset]:
        """Read the stable committed offsets with their metadata; partitions without one are left out."""
        answer = self.committed(to_kafka(partitions), timeout_s)
        for p in answer:
            if p.error is not None:
                raise KafkaException(p.error)
        return {
            InputPartition(p.topic, p.partition): CommittedOffset(p.offset, p.metadata or "")
            for p in answer
            if p.offset >= 0
        }

    def stable(self, partitions: Iterable[InputPartition]) -> Mapping[InputPartition, int] | None:
        """Return the committed offsets; None while any of them is pending or cannot be read."""
        try:
            return self._offsets(partitions, _STABLE_TIMEOUT_S)
        except KafkaException as error:
            if isinstance(error, EosError) and not isinstance(error, CommitRefusedError):
                raise
            return None

    def for_sure(self, partitions: Iterable[InputPartition], timeout_s: float) -> dict[InputPartition, int]:
        """Read the stable committed offsets; raises ClusterUnavailableError where they cannot be had."""
        asked = frozenset(partitions)
        try:
            return self._offsets(asked, timeout_s)
        except FatalClientError:
            raise
        except KafkaException as error:
            raise committed_offsets_unknown(asked, timeout_s, error) from error

    def _offsets(self, partitions: Iterable[InputPartition], timeout_s: float) -> dict[InputPartition, int]:
        return {partition: entry.offset for partition, entry in self.entries(partitions, timeout_s).items()}

    def end_of(self, partition: InputPartition) -> int | None:
        """Return the offset behind the last record that may be read now; None when nobody answers."""
        try:
            watermarks = self._library.raw.get_watermark_offsets(TopicPartition(*partition), _STABLE_TIMEOUT_S)
        except KafkaException:
            return None
        return None if watermarks is None else int(watermarks[1])

    def commit_starts(self, starts: InputPositions) -> bool:
        """Commit where partitions start; returns whether later owners will find it."""
        offsets = [TopicPartition(*p, position.next_offset) for p, position in starts.items()]
        try:
            answer = self._library.raw.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return False
        return all(place.error is None for place in answer)
