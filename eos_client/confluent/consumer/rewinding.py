"""Rewinds partitions: makes this package's seeks, and drops records that were fetched before them.

``seek`` does not discard records that the library has fetched already. A record at or beyond the offset that was
reached before the rewind shows that it is stale, and the partition is sought again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tenacity
from confluent_kafka import KafkaException

from eos_client.confluent.consumer.fetched_records import Batch, RecordRun, last_good
from eos_client.confluent.consumer.library_consumer import LibraryConsumer, with_epoch
from eos_client.core.hand_over import HandedOver
from eos_client.core.leader_epochs import LeaderEpochs, Misplacement
from eos_client.core.model import InputPartition, InputPosition, InputPositions, Partitions
from eos_client.errors import FatalClientError
from eos_client.ports import Clock

_SEEK_ATTEMPTS_MAX = 3
_SEEK_LIMIT_S = 5.0
_SEEK_AGAIN_S = 0.05

Spans = Mapping[InputPartition, tuple[int, int]]
"""By partition: the offset to rewind to, and the offset that had been reached before."""


class _RewindPoint(NamedTuple):
    """Where a partition goes on, what it had reached before, and how often it was sought there again."""

    offset: int
    reached: int
    attempts: int = 0


class ReadPositions:
    """The next offset expected of each partition; records from another offset are detected before they are handed over.

    librdkafka moves a position by itself when the broker does not have the offset. A move forward, to the start of the
    log, loses nothing that is still in the log. A move backward means that the log was truncated, or that the topic was
    deleted and created again: which of its records were processed cannot be known then. Or librdkafka has started over.
    ``epochs`` tell these apart. ``truncated``: what was found of the partitions whose log was truncated; nothing is
    handed over until the application has chosen where they go on.
    """

    def __init__(self) -> None:
        self.epochs = LeaderEpochs()
        self._next: dict[InputPartition, int] = {}
        self._attempts: dict[InputPartition, int] = {}
        self._read: set[InputPartition] = set()
        self.truncated: dict[InputPartition, Misplacement] = {}

    def expect_next(self, partition: InputPartition, offset: int) -> None:
        """Expect ``partition`` at ``offset``, to which it was sought; a logical one may be anywhere."""
        if offset < 0:
            self._next.pop(partition, None)
        else:
            self._next[partition] = offset

    def forget(self, partitions: Iterable[InputPartition]) -> None:
        """Forget ``partitions``, which have left or start anew."""
        for partition in partitions:
            self._next.pop(partition, None)
            self._read.discard(partition)
            self.truncated.pop(partition, None)

    def starts_too_early(self, run: RecordRun) -> bool:
        """Whether ``run`` begins before the offset that its partition was to go on at."""
        return run.first_offset < self._next.get(run.partition, 0)

    def has_read(self, partition: InputPartition) -> bool:
        """Whether anything of ``partition`` was handed over since it was assigned."""
        return partition in self._read

    def misplacement(self, run: RecordRun, epoch: int | None) -> Misplacement:
        """Return where ``run``, whose first record has the leader ``epoch``, begins too early."""
        expected = self._next[run.partition]
        return Misplacement(expected, self.epochs.at(run.partition, expected), run.first_offset, epoch)

    def count_seek(self, partition: InputPartition) -> bool:
        """Count a repeated seek; returns whether it is allowed: at most _SEEK_ATTEMPTS_MAX are."""
        attempts = self._attempts.get(partition, 0) + 1
        self._attempts[partition] = attempts
        return attempts <= _SEEK_ATTEMPTS_MAX

    def pass_over(self, partition: InputPartition, position: InputPosition) -> None:
        """Expect what follows ``position``, which has no records: it is handed over as records are."""
        self._next[partition] = position.next_offset
        self._read.add(partition)
        self.epochs.record(partition, position.next_offset, position.leader_epoch)

    def read(self, run: RecordRun, messages: Sequence[Any]) -> int | None:
        """Expect what follows ``run`` of ``messages``, which is handed over; returns its last leader epoch."""
        partition = run.partition
        self._next[partition] = run.next_offset
        self._read.add(partition)
        if self._attempts:
            self._attempts.pop(partition, None)
        last: int | None = last_good(messages, run.start, run.stop).leader_epoch()
        self.epochs.record(partition, run.first_offset, messages[run.start].leader_epoch())
        if self.epochs.at(partition, run.next_offset) != last:
            for message in messages[run.start : run.stop]:
                if message.error() is None:
                    self.epochs.record(partition, message.offset(), message.leader_epoch())
        return last


class Seeks:
    """The seeks that this package makes by itself; the application's own are not repeated."""

    def __init__(self, library: LibraryConsumer, handed: HandedOver, reads: ReadPositions, clock: Clock) -> None:
        self._library = library
        self.handed = handed
        self.epochs = reads.epochs
        self._reads = reads
        self._clock = clock

    def seek(self, partition: InputPartition, offset: int) -> None:
        """Continue ``partition`` at ``offset``, which may be a logical one.

        With the leader epoch, librdkafka asks the broker before it fetches whether the log has been truncated, and goes
        on where it was (KIP-320). Without one it does not ask, now or after the next election.

        A rebalance that begins meanwhile pauses partitions inside the library, which makes a seek outdated: it is
        repeated. Raises FatalClientError when that does not help. A consumer that librdkafka has given up refuses it,
        too, and hands over nothing any more: the next call raises the reason.
        """
        self.handed.set_next_offset(partition, offset)
        epoch = self.epochs.at(partition, offset) if offset >= 0 else None
        topic_partition = with_epoch(partition, offset, epoch)
        deadline = self._clock() + _SEEK_LIMIT_S
        retrying = tenacity.Retrying(
            sleep=self._clock.sleep,
            retry=tenacity.retry_if_exception_type(KafkaException),
            stop=lambda _: self._library.check_fatal() or self._clock() >= deadline,
            wait=tenacity.wait_fixed(_SEEK_AGAIN_S),
            reraise=True,
        )
        try:
            retrying(self._library.raw.seek, topic_partition)
            self._reads.expect_next(partition, offset)
        except KafkaException as error:
            if self._library.check_fatal():
                return
            raise FatalClientError(
                f"{partition} could not be rewound to {offset} ({error}): its next records would be lost to this "
                "process. End it; nothing uncommitted is lost, the group reads it again."
            ) from error


class Rewinding:
    """The spans of a rewind that is due or under way, and the partitions of which stale records may still arrive."""

    def __init__(self, seeks: Seeks) -> None:
        self._seeks = seeks
        self._planned: dict[InputPartition, tuple[int, int]] | None = None
        self._rewound: dict[InputPartition, _RewindPoint] = {}

    @property
    def is_due(self) -> bool:
        """Whether a rewind was planned and has not been done."""
        return self._planned is not None

    def plan(self, waiting: Spans, ours: InputPositions) -> Spans:
        """Plan to go back to the first record of ``ours`` and of those ``waiting``; a plan that is due stands."""
        spans = dict(waiting)
        for partition, position in ours.items():
            _, reached = spans.get(partition, (0, 0))
            spans[partition] = (position.first_offset, max(reached, position.next_offset))
        self._planned = planned = {**spans, **(self._planned or {})}
        return planned

    def take_plan(self) -> Spans | None:
        """Return and clear the planned rewind."""
        planned, self._planned = self._planned, None
        return planned

    def rewind(self, partition: InputPartition, offset: int, reached: int) -> None:
        """Continue ``partition`` at ``offset``; ``reached``: the library may have fetched it up to there."""
        self._seeks.seek(partition, offset)
        self._rewound.pop(partition, None)
        if 0 <= offset < reached:
            self._rewound[partition] = _RewindPoint(offset, reached)

    def repeat(self, partitions: Partitions) -> Partitions:
        """Seek those of ``partitions`` again of which nothing has come since their rewind; returns them.

        A marker that the library took before the rewind may have moved its position since, and only a record shows that
        it is stale. After a seek outside of every callback nothing stale can follow.
        """
        unsettled = self._rewound.keys() & partitions
        for partition in unsettled:
            self._seeks.seek(partition, self._rewound.pop(partition).offset)
        return frozenset(unsettled)

    def forget(self, partitions: Partitions) -> None:
        """Drop ``partitions`` from the rewind: they continue elsewhere."""
        for partition in partitions:
            self._rewound.pop(partition, None)
            if self._planned is not None:
                self._planned.pop(partition, None)

    def filter_batch(self, batch: Batch) -> Batch:
        """Drop the records that were fetched before a rewind, and seek their partition again."""
        if not self._rewound:
            return batch
        kept = []
        sought: set[InputPartition] = set()
        for run in batch.runs:
            point = self._rewound.get(run.partition)
            if run.partition in sought and not run.is_error:
                continue  # it comes again after the records that the seek brings
            if point is not None and not run.is_error:
                if run.first_offset >= point.reached and point.attempts < _SEEK_ATTEMPTS_MAX:
                    self._rewound[run.partition] = point._replace(attempts=point.attempts + 1)
                    self._seeks.seek(run.partition, point.offset)
                    sought.add(run.partition)
                    continue
                del self._rewound[run.partition]
            kept.append(run)
        return batch.select(kept)
