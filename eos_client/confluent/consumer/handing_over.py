"""Hands fetched records over to the application, and books them as its uncommitted work.

A record that comes from elsewhere than where its partition was to go on is not handed over, nor one of a topic that was
replaced; the application's seeks and what it puts back change what comes next.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, OFFSET_STORED, KafkaException, TopicPartition

from eos_client.confluent.consumer.fetched_records import Batch, RecordRun, last_good, without
from eos_client.confluent.consumer.fetching import Fetching
from eos_client.confluent.consumer.library_consumer import LibraryConsumer
from eos_client.confluent.consumer.membership import Membership
from eos_client.confluent.consumer.partition_parts import PartitionParts
from eos_client.confluent.consumer.read_positions import behind_the_end, forbidden_reset, topic_replaced
from eos_client.core.model import InputPartition
from eos_client.ports import Clock

_BACK = (OFFSET_BEGINNING, OFFSET_STORED, OFFSET_INVALID)
"""Logical offsets that lie before whatever was handed over and is not committed."""


@dataclass(eq=False, repr=False)
class HandingOver:
    """What the application gets next, and what it has got.

    ``work_since``: when the first record of the open work was handed over, by the clock.
    """

    _library: LibraryConsumer
    _membership: Membership
    _parts: PartitionParts
    _fetching: Fetching
    _clock: Clock
    work_since: float = field(default=0.0, init=False)

    def next_batch(self, count: int, timeout: float) -> list[Any]:
        """Return up to ``count`` messages within ``timeout`` seconds, and count them as handed over."""
        count = operator.index(count)  # the client library takes a TypeError for an exception out of a callback
        self._fetching.require_not_given_up()
        self._parts.starts.require_starts()
        if self._membership.needs_sync:
            self._fetching.drain()
        batch = self._take(count) if self._parts.records else None
        return self._hand_over(batch or self._fetching.fetch_in_time(count, timeout))

    def _take(self, count: int) -> Batch:
        """Take what waits and is ready; what serving callbacks has left, single records, is no batch by itself."""
        records, paused = self._parts.records, self._library.paused_by_application
        if 0 < (ready := len(records.ready(paused))) < count:
            self._fetching.fetch_for_later(count - ready, 0)
        messages = records.take(count, self._library.paused_by_application) if count > 0 else []
        return Batch(messages, one_topic=self._membership.is_of_one_topic)

    def _hand_over(self, batch: Batch) -> list[Any]:
        """Count records as uncommitted work and return them, up to the first that may not be handed over."""
        for topic in self._fetching.replaced_topics:
            return self._stop_at(batch, 0, topic_replaced(topic))
        messages, handed, reads = batch.messages, self._parts.handed, self._parts.reads
        if messages and not handed.work.positions:
            self.work_since = self._clock()
        for run in batch.runs:
            if not run.is_error:
                if reads.misses(run):
                    return self._stop_at_misplaced(batch, run)
                reads.read(run)
                generation, epoch = (
                    self._membership.synced_generation,
                    last_good(messages, run.start, run.stop).leader_epoch(),
                )
                handed.handed_over(run.partition, run.first_offset, run.next_offset, generation, epoch)
            else:
                self._library.note_fatal(messages[run.start : run.stop])
            refusal = forbidden_reset(run.partition, messages[run.stop - 1])
            if refusal is not None:
                return self._stop_at(batch, run.stop - 1, refusal)
        return messages

    def _stop_at(self, batch: Batch, place: int, refusal: KafkaException) -> list[Any]:
        """Hand over what lies before ``place``; the rest is kept, and refused as soon as it comes first."""
        self._parts.records.put_first(batch.messages[place:])
        if place == 0:
            self._parts.handed.journal = None
            raise refusal
        return batch.messages[:place]

    def _stop_at_misplaced(self, batch: Batch, run: RecordRun) -> list[Any]:
        """Seek again where the log has the position that the library has left, else find out who may go on."""
        parts, partition = self._parts, run.partition
        expected, end = parts.reads.expected(partition), self._library.end_of(partition)
        if (end is None or end >= expected) and parts.reads.may_seek_again(partition):
            parts.seeks.seek(partition, expected)
            self._keep_others(batch, run)
        elif self._membership.is_by_pattern(partition.topic):
            self._keep_others(batch, run)
            parts.begin_anew(frozenset({partition}))
        else:
            return self._stop_at(batch, run.start, behind_the_end(partition, expected, run.first_offset))
        return batch.messages[: run.start]

    def _keep_others(self, batch: Batch, run: RecordRun) -> None:
        """Drop everything from ``run`` on that is of its partition, and keep the rest for later."""
        misplaced = frozenset({run.partition})
        self._parts.records.drop_of(misplaced)
        self._parts.records.put_first(without(misplaced, batch.messages[run.start :]))

    def put_back(self, batch: Sequence[Any]) -> None:
        """Take back the unprocessed end of the last batch; the next call returns it first."""
        is_outermost = self._parts.handed.begin_change()
        returned = Batch(list(batch))
        first_offsets = {run.partition: run.first_offset for run in reversed(returned.runs) if not run.is_error}
        for partition, first_offset in first_offsets.items():
            self._parts.handed.taken_back(partition, first_offset)
            self._parts.reads.goes_on_at(partition, first_offset)
        self._parts.records.put_first(returned.messages)
        self._parts.handed.end_change(is_outermost=is_outermost)

    def seek(self, partition: TopicPartition) -> None:
        """Continue at ``partition.offset``; records of it that wait to be handed over are dropped."""
        is_outermost = self._parts.handed.begin_change()
        self._library.raw.seek(partition)
        key = InputPartition(partition.topic, partition.partition)
        if partition.offset >= 0 or partition.offset in _BACK:
            self._parts.handed.sought(key, partition.offset)
        self._parts.go_on_at([partition])
        self._parts.records.drop_of(frozenset({key}))
        self._parts.rewinding.forget(frozenset({key}))
        self._parts.handed.end_change(is_outermost=is_outermost)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the next offset that is handed over, also where records wait that the library has counted already."""
        self._parts.handed.undo()
        positions: list[TopicPartition] = self._library.raw.position(partitions)
        waiting = {partition: first for partition, (first, _) in self._parts.records.spans().items()}
        for position in positions:
            key = InputPartition(position.topic, position.partition)
            is_open = self._parts.handed.journal is not None
            first = self._parts.handed.next_offsets.get(key) if is_open else waiting.get(key)
            if first is not None and first >= 0:
                position.offset = first
            elif is_open or key in self._parts.starts.waiting:  # the library may have counted what nobody was given
                position.offset = OFFSET_INVALID
        return positions
