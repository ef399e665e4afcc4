"""The state that a consumer keeps by partition, and how it follows the membership."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Mapping, Sequence

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaException, TopicPartition

from eos_client.confluent.consumer.fetched_records import FetchedRecords
from eos_client.confluent.consumer.library_consumer import LibraryConsumer
from eos_client.confluent.consumer.plain_offsets import PlainOffsets
from eos_client.confluent.consumer.rewinding import ReadPositions, Rewinding, Seeks
from eos_client.confluent.consumer.start_offsets import StartOffsets
from eos_client.core.hand_over import HandedOver
from eos_client.core.model import InputPartition, Partitions
from eos_client.ports import Clock, input_partitions

_ANSWERS_MIN, _SPREAD_S = 3, 0.5
_GROUP_DECIDES = (OFFSET_INVALID, OFFSET_STORED)


class ChosenPositions:
    """The offsets that the application has chosen by ``seek`` or ``assign``: in this call, and ever.

    ``saved`` is where it wants to go on once a group that was left is joined again.
    """

    def __init__(self) -> None:
        self._in_call: dict[InputPartition, int] = {}
        self._ever: set[InputPartition] = set()
        self.saved: dict[InputPartition, int] = {}

    def begin_call(self) -> None:
        """Begin a call into the client library: nothing was chosen within it."""
        self._in_call = {}

    def record(self, partitions: Sequence[TopicPartition]) -> Mapping[InputPartition, int]:
        """Record where ``partitions`` go on, and return it; one without an offset is left to the group."""
        chosen = {InputPartition(p.topic, p.partition): p.offset for p in partitions if p.offset not in _GROUP_DECIDES}
        self._in_call.update(chosen)
        self._ever.update(chosen)
        return chosen

    def in_call(self, partitions: Partitions) -> Mapping[InputPartition, int]:
        """Return where those of ``partitions`` go on that were chosen in this call."""
        return {partition: self._in_call[partition] for partition in partitions & self._in_call.keys()}

    def departed(self, partitions: Partitions) -> None:
        """Forget what was chosen in this call for ``partitions``, which have left."""
        for partition in partitions:
            self._in_call.pop(partition, None)

    def save_for_rejoin(self, partitions: Partitions, handed: HandedOver) -> None:
        """Save the application's seeks in ``partitions``, which leave only to come back."""
        for partition in partitions & self._ever:
            position = handed.work.owned.get(partition)
            offset = handed.next_offsets.get(partition) if position is None else position.first_offset
            if offset is not None:
                self.saved[partition] = offset


class PartitionParts:
    """The parts of a consumer that keep state by partition; `departed` makes all of them forget partitions.

    ``undecided``: the partitions of recreated topics that may be gone, with how many answers in a row have lacked each,
    and when the next question is due. Nothing of them is handed over.
    """

    def __init__(
        self,
        library: LibraryConsumer,
        commit_starts: Callable[[Mapping[InputPartition, int]], bool],
        report: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._library = library
        self._clock = clock
        self.handed = HandedOver()
        self.plain = PlainOffsets(clock)
        self.records = FetchedRecords()
        self.reads = ReadPositions()
        self.seeks = Seeks(library, self.handed, self.reads, clock)
        self.rewinding = Rewinding(self.seeks)
        self.chosen = ChosenPositions()
        self.undecided: dict[InputPartition, tuple[int, float]] = {}
        self.starts = StartOffsets(library, commit_starts, self.seeks, report, clock)

    def commit_start_offsets(self) -> None:
        """Commit start offsets that the group lacks, so that later owners start where this assignment does.

        Called inside on_assign: what fails here is tried again, and reported, by the next fetch.
        """
        with contextlib.suppress(RuntimeError, KafkaException):
            self.starts.commit_missing()

    def departed(self, partitions: Partitions) -> None:
        """Forget ``partitions``, but for the work in them, which the gate needs to abort its transaction."""
        self.records.drop_of(partitions)
        self._library.departed(partitions)
        self.starts.forget(partitions)
        self.reads.forget(partitions)
        self.reads.epochs.forget(partitions)
        self.handed.work.mark_departed(partitions)
        self.handed.forget_next(partitions)
        self.plain.forget_stored(partitions)
        self.chosen.departed(partitions)
        self.rewinding.forget(partitions)
        self._forget_undecided(partitions)

    def _forget_undecided(self, partitions: Container[InputPartition]) -> None:
        self.undecided = {p: answers for p, answers in self.undecided.items() if p not in partitions}

    def decide_recreated(self) -> Partitions:
        """Restart those of ``undecided`` that exist, forget those that are gone, and return all that it had.

        One question at most. A broker may not have heard yet what a topic has now, so a partition is gone if
        _ANSWERS_MIN answers in a row, each _SPREAD_S after the one before, lack it.
        """
        undecided = frozenset(self.undecided)
        self.handed.work.forget(undecided)
        self.records.drop_of(undecided)
        due, topic = min((due, partition.topic) for partition, (_, due) in self.undecided.items())
        if (now := self._clock()) >= due:
            asked = frozenset(partition for partition in undecided if partition.topic == topic)
            existing = self._library.existing_partitions(topic, asked)
            counts = {partition: self.undecided[partition][0] + 1 for partition in asked - existing}
            self.undecided.update({partition: (count, now + _SPREAD_S) for partition, count in counts.items()})
            self.departed(frozenset(p for p, count in counts.items() if count >= _ANSWERS_MIN))
            self.restart_recreated(existing)
        return undecided

    def continue_at(self, partitions: Sequence[TopicPartition]) -> None:
        """Record the offsets at which the application lets ``partitions`` continue."""
        self.reads.forget(input_partitions(partitions))
        chosen = self.chosen.record(partitions)
        self._record_chosen_epochs(partitions)
        self.starts.forget(chosen)
        self._forget_undecided(chosen)
        for partition, offset in chosen.items():
            self.handed.set_next_offset(partition, offset)

    def _record_chosen_epochs(self, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            if each.offset >= 0:
                self.reads.epochs.record(InputPartition(each.topic, each.partition), each.offset, each.leader_epoch)
            else:
                self.reads.epochs.forget([InputPartition(each.topic, each.partition)])

    def restart_recreated(self, partitions: Partitions) -> None:
        """Read the topic that has taken the name of another from its beginning."""
        read = frozenset(p for p in partitions if self.reads.has_read(p))
        self.handed.work.forget(partitions)
        self.handed.forget_next(partitions)
        self.rewinding.forget(partitions)
        self.reads.epochs.forget(partitions)
        self.starts.restart_recreated(partitions, read)
        self._forget_undecided(partitions)
