"""Fetched messages in runs: consecutive records of one partition, or events of it.

Runs are found without Python code for each record, because this is done for every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, groupby, pairwise
from typing import Any, NamedTuple

from eos_client.core.error_codes import PARTITION_END, RESET_FORBIDDEN
from eos_client.core.leader_epochs import EpochChanges, epoch_at
from eos_client.core.model import InputPartition, OffsetGaps, Partitions


class Run(NamedTuple):
    """Consecutive ``messages`` of one partition: records from ``first_offset`` to before ``next_offset``, or events.

    ``epochs`` are the offsets at which the leader epoch of the records changes, the first one included. ``gaps``: the
    spans of offsets that hold no record, such as transaction markers, aborted and compacted records. ``is_error``: only
    error events, which carry no work. ``leaves_with_partition``: of no use without the partition, as records and the
    end of the partition are. Other errors are reported once, and some of them under a partition that they are not
    about: librdkafka reports a deleted topic as an event of its partition 0. ``forbids_reset``: the events say that the
    partition cannot be read on, because ``auto.offset.reset=error`` allows no other offset.
    """

    partition: InputPartition
    messages: Sequence[Any]
    first_offset: int = -1
    next_offset: int = -1
    epochs: EpochChanges = ()
    gaps: OffsetGaps = ()
    is_error: bool = False
    leaves_with_partition: bool = True
    forbids_reset: bool = False

    @property
    def is_partition_end(self) -> bool:
        """Whether it tells that the end of the partition was reached."""
        return self.is_error and self.leaves_with_partition

    @property
    def leader_epoch(self) -> int | None:
        """The leader epoch of the last record; None: not known."""
        return self.epochs[-1][1] if self.epochs else None

    def split(self, count: int) -> tuple[Run, Run]:
        """Return the first ``count`` messages and the others as runs of their own; both have some."""
        first, rest = self._replace(messages=self.messages[:count]), self._replace(messages=self.messages[count:])
        if self.is_error:
            return first, rest
        end, begin = first.messages[-1].offset() + 1, rest.messages[0].offset()
        return (
            first._replace(
                next_offset=end,
                epochs=tuple(change for change in self.epochs if change[0] < end),
                gaps=tuple(gap for gap in self.gaps if gap[1] < end),
            ),
            rest._replace(
                first_offset=begin,
                epochs=((begin, epoch_at(self.epochs, begin)), *(c for c in self.epochs if c[0] > begin)),
                gaps=tuple(gap for gap in self.gaps if gap[0] > begin),
            ),
        )


def runs(messages: Sequence[Any], *, one_topic: bool = False) -> list[Run]:
    """Split ``messages`` where the partition changes, where its offsets go back, and between records and error events.

    ``one_topic``: all records are known to be of one topic.
    """
    if not messages:
        return []
    kind = type(messages[0])
    found: list[Run] = []
    for _, group in groupby(messages, kind.partition if one_topic else _partition_of):
        of_one = list(group)
        if any(map(kind.error, of_one)):
            found += _with_events(of_one)
        else:
            found += _ascending(InputPartition(*_partition_of(of_one[0])), of_one)
    return found


def _partition_of(message: Any) -> tuple[str, int]:
    return message.topic(), message.partition()


def _with_events(messages: Iterable[Any]) -> list[Run]:
    """Split messages of which some are events; an event may be of no topic, or the end of the client."""
    found = []
    for (partition, event), group in groupby(messages, lambda message: (_partition_of(message), _event_kind(message))):
        if event is None:
            found += _ascending(InputPartition(*partition), list(group))
        else:
            run = Run(InputPartition(*partition), list(group), is_error=True)
            is_end, forbids_reset = event == PARTITION_END, event == RESET_FORBIDDEN
            found.append(run._replace(leaves_with_partition=is_end, forbids_reset=forbids_reset))
    return found


def _event_kind(message: Any) -> str | None:
    error = message.error()
    return None if error is None else str(error.name())


def _ascending(partition: InputPartition, records: Sequence[Any]) -> list[Run]:
    """Return the runs of ``records``: what was fetched before a seek may precede what the seek has brought."""
    first, following = records[0].offset(), records[-1].offset() + 1
    if len(records) == following - first:
        return [_run(partition, records, ())]
    offsets = [record.offset() for record in records]
    ends = [i for i in range(1, len(offsets)) if offsets[i] <= offsets[i - 1]]
    spans = pairwise([0, *ends, len(offsets)])
    return [_run(partition, records[begin:end], _gaps(offsets[begin:end])) for begin, end in spans]


def _run(partition: InputPartition, records: Sequence[Any], gaps: OffsetGaps) -> Run:
    epochs = _epoch_changes(records, type(records[0]).leader_epoch)
    return Run(partition, records, records[0].offset(), records[-1].offset() + 1, epochs, gaps)


def _epoch_changes(records: Sequence[Any], epoch_of: Callable[[Any], int | None]) -> EpochChanges:
    first = epoch_of(records[0])
    if first == epoch_of(records[-1]):  # epochs only rise along a log
        return ((records[0].offset(), first),)
    return tuple((next(group).offset(), epoch) for epoch, group in groupby(records, epoch_of))


def _gaps(offsets: Sequence[int]) -> OffsetGaps:
    return tuple((before + 1, after) for before, after in pairwise(offsets) if before + 1 < after)


def take(waiting: Sequence[Run], count: int, paused: Partitions) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """Return the first ``count`` messages of ``waiting`` that are not of ``paused`` partitions, and what remains."""
    taken: list[Run] = []
    remaining: list[Run] = []
    for run in waiting:
        size = len(run.messages)
        if count <= 0 or run.partition in paused:
            remaining.append(run)
        elif size <= count:
            taken.append(run)
            count -= size
        else:
            first, rest = run.split(count)
            taken.append(first)
            remaining.append(rest)
            count = 0
    return tuple(taken), tuple(remaining)


def without_partitions(waiting: Iterable[Run], partitions: Collection[InputPartition]) -> tuple[Run, ...]:
    """Return the runs of ``waiting`` that are of use without ``partitions``."""
    return tuple(run for run in waiting if run.partition not in partitions or not run.leaves_with_partition)


def messages_of(found: Iterable[Run]) -> list[Any]:
    """Return the messages of ``found`` in their order."""
    return list(chain.from_iterable(run.messages for run in found))


def message_count(found: Iterable[Run]) -> int:
    """Return how many messages ``found`` have."""
    return sum(len(run.messages) for run in found)
