"""What a consumer keeps by partition, and how it follows the membership."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import KafkaException, TopicPartition

from eos_client.confluent.consumer.chosen_positions import ChosenPositions
from eos_client.confluent.consumer.fetched_records import FetchedRecords
from eos_client.confluent.consumer.group_offsets import GroupOffsets
from eos_client.confluent.consumer.library_consumer import LibraryConsumer
from eos_client.confluent.consumer.paused_partitions import PausedPartitions
from eos_client.confluent.consumer.plain_offsets import PlainOffsets
from eos_client.confluent.consumer.read_positions import ReadPositions
from eos_client.confluent.consumer.rewinding import Rewinding, Seeks
from eos_client.confluent.consumer.start_offsets import StartOffsets
from eos_client.core.hand_over import HandOver
from eos_client.core.model import InputPartition, Partitions
from eos_client.ports import Clock, keys_of

_UNTOLD = (RuntimeError, KafkaException)


class PartitionParts:
    """What a consumer keeps by partition, each part owning its own; they leave together with their partitions."""

    def __init__(
        self,
        library: LibraryConsumer,
        commit_starts: Callable[[Mapping[InputPartition, int]], bool],
        report: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self.handed = HandOver()
        self.offsets = GroupOffsets(library)
        self.plain = PlainOffsets(clock)
        self.records = FetchedRecords()
        self.paused = PausedPartitions(library)
        self.reads = ReadPositions()
        self.seeks = Seeks(library, self.handed, self.reads, clock)
        self.rewinding = Rewinding(self.seeks)
        self.chosen = ChosenPositions()
        self.starts = StartOffsets(
            library.reset_policy, self.offsets, commit_starts, self.seeks, self.paused, report, clock
        )

    def fix_starts(self) -> None:
        """Let later owners start where this assignment does, also when nothing is committed before it ends.

        Called inside on_assign: what fails here is tried again, and reported, by the next fetch.
        """
        with contextlib.suppress(*_UNTOLD):
            self.starts.fix()

    def departed(self, partitions: Partitions) -> None:
        """Forget ``partitions``, but for the work in them, which the gate needs to abort its transaction."""
        self.records.drop_of(partitions)
        self.paused.departed(partitions)
        self.starts.forget(partitions)
        self.reads.forget(partitions)
        self.handed.work.departed(partitions)
        self.handed.forget_next(partitions)
        self.plain.forget_stored(partitions)
        self.chosen.departed(partitions)
        self.rewinding.forget(partitions)

    def go_on_at(self, partitions: Sequence[TopicPartition]) -> None:
        """Take down where the application lets ``partitions`` go on."""
        self.reads.forget(keys_of(partitions))
        chosen = self.chosen.note(partitions)
        self.starts.forget(chosen)
        for partition, offset in chosen.items():
            self.handed.continues_at(partition, offset)

    def begin_anew(self, partitions: Partitions) -> None:
        """Read the topic that has taken the name of another from its beginning."""
        read = frozenset(p for p in partitions if self.reads.has_read(p))
        self.handed.work.forget(partitions)
        self.handed.forget_next(partitions)
        self.rewinding.forget(partitions)
        self.starts.begin_anew(partitions, read)
