"""Going back: the seeks of this package, to which offset of each partition, and which records are from before that.

``seek`` does not void what the library has fetched already. A record behind the offset that was reached before the
rewind shows that, and the partition is sought again.
"""

from __future__ import annotations

from collections.abc import Mapping

import tenacity
from confluent_kafka import KafkaException, TopicPartition

from eos_client.confluent.consumer.fetched_records import Batch
from eos_client.confluent.consumer.library_consumer import LibraryConsumer
from eos_client.confluent.consumer.read_positions import ReadPositions
from eos_client.core.hand_over import HandOver
from eos_client.core.model import InputPartition, InputPositions, Partitions
from eos_client.errors import FatalClientError
from eos_client.ports import Clock

_SEEK_ATTEMPTS_MAX = 3
_SEEK_LIMIT_S = 5.0
_SEEK_AGAIN_S = 0.05

Goals = Mapping[InputPartition, tuple[int, int]]
"""By partition, the offset to go back to, and the one that no record may reach before that."""


class Seeks:
    """The seeks that this package makes by itself; the application's own are not repeated."""

    def __init__(self, library: LibraryConsumer, handed: HandOver, reads: ReadPositions, clock: Clock) -> None:
        self._library = library
        self.handed = handed
        self._reads = reads
        self._clock = clock

    def seek(self, partition: InputPartition, offset: int) -> None:
        """Continue ``partition`` at ``offset``, which may be a logical one.

        A rebalance that begins meanwhile pauses partitions inside the library, which makes a seek outdated: it is
        repeated. Raises FatalClientError when that does not help.
        """
        self.handed.continues_at(partition, offset)
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


class Rewinding:
    """The goals of a rewind that is due or under way, and the partitions of which stale records may still arrive."""

    def __init__(self, seeks: Seeks) -> None:
        self._seeks = seeks
        self._goals: dict[InputPartition, tuple[int, int]] | None = None
        self._rewound: dict[InputPartition, tuple[int, int, int]] = {}

    @property
    def is_due(self) -> bool:
        """Whether a rewind was planned and has not been done."""
        return self._goals is not None

    def plan(self, waiting: Goals, ours: InputPositions) -> Goals:
        """Plan to go back to the first record of ``ours`` and of those ``waiting``; a plan that is due stands."""
        goals = dict(waiting)
        for partition, position in ours.items():
            _, reached = goals.get(partition, (0, 0))
            goals[partition] = (position.first_offset, max(reached, position.next_offset))
        self._goals = planned = {**goals, **(self._goals or {})}
        return planned

    def take_plan(self) -> Goals | None:
        """Return the plan that is due, if any, which the caller carries out, or has carried out."""
        goals, self._goals = self._goals, None
        return goals

    def go_back(self, partition: InputPartition, offset: int, reached: int) -> None:
        """Continue ``partition`` at ``offset``; ``reached``: the library may have fetched it up to there."""
        self._seeks.seek(partition, offset)
        self._rewound.pop(partition, None)
        if 0 <= offset < reached:
            self._rewound[partition] = (offset, reached, 0)

    def forget(self, partitions: Partitions) -> None:
        """Note that ``partitions`` go on elsewhere than where a rewind would continue them."""
        for partition in partitions:
            self._rewound.pop(partition, None)
            if self._goals is not None:
                self._goals.pop(partition, None)

    def filter_batch(self, batch: Batch) -> Batch:
        """Drop the records that were fetched before a rewind, and seek their partition again."""
        if not self._rewound:
            return batch
        kept = []
        sought: set[InputPartition] = set()
        for run in batch.runs:
            point = self._rewound.get(run.partition)
            if run.partition in sought and not run.is_error:
                continue  # it comes behind the records that the seek brings
            if point is not None and not run.is_error:
                back_to, reached, attempts = point
                if run.first_offset >= reached and attempts < _SEEK_ATTEMPTS_MAX:
                    self._rewound[run.partition] = (back_to, reached, attempts + 1)
                    self._seeks.seek(run.partition, back_to)
                    sought.add(run.partition)
                    continue
                del self._rewound[run.partition]
            kept.append(run)
        return batch.of(kept)
