"""Offsets without records at the end of a partition: transaction markers, and the records of aborted transactions.

No reader is given them, but the client library's position passes them. A group whose committed offset is the one behind
the last record would show a lag for ever. So an idle loop commits the position after them, as work with no records: the
gate decides on it, and an abort goes back to where it began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from eos_client.core.internal_logs import OFFSETS_LOG
from eos_client.core.model import InputPartition, Partitions
from eos_client.core.partition_states import ConsumerState
from eos_client.core.record_runs import Run

LOOK_INTERVAL_S = 1.0
"""How often, in seconds, a loop without work looks for such offsets, and so commits them, at most."""


class PassedOffset(NamedTuple):
    """The client library's position, and the leader epoch of what stands before it; None: not known."""

    offset: int
    leader_epoch: int | None


PassedOffsets = Mapping[InputPartition, PassedOffset]


class PositionsToRead(NamedTuple):
    """What shows which offsets were passed: the library's positions of ``partitions``, read after a seek of others.

    ``sought_again``: nothing has come of them since they were sought, so the client library may be elsewhere.
    """

    sought_again: Partitions
    partitions: Partitions


def positions_to_read(state: ConsumerState, assigned: Partitions) -> PositionsToRead:
    """Return the partitions to look at, of those ``assigned``: where records wait, they come before what was passed."""
    ready = assigned - {run.partition for run in state.waiting if not run.is_error}
    sought_again = ready & state.sought_without_records
    return PositionsToRead(sought_again, without_offsets_log(ready - sought_again))


def without_offsets_log(partitions: Partitions) -> Partitions:
    """Return ``partitions`` without those of ``__consumer_offsets``.

    Each commit writes its offsets and its marker there, so the end of such a partition would never be reached.
    """
    return frozenset(partition for partition in partitions if partition.topic != OFFSETS_LOG)


def passed_before_a_record(state: ConsumerState, passed: PassedOffsets) -> tuple[Run, ...]:
    """Return an empty run for each partition of which offsets were ``passed`` before any record came.

    It is treated as a first record is: the client library may have started elsewhere, and it asks the broker whether
    the log was truncated only where it is sought with a leader epoch.
    """
    starting = ((p, passed[p]) for p in passed.keys() & state.awaiting_first)
    return tuple(Run(p, (), offset, offset, ((offset, epoch),)) for p, (offset, epoch) in starting)


def passed_runs(state: ConsumerState, passed: PassedOffsets, first: Iterable[Run]) -> tuple[Run, ...]:
    """Return what was ``passed`` as runs without records; ``first`` are those of `passed_before_a_record`."""
    following = passed.keys() - {run.partition for run in first}
    found = (
        passed_run(partition, state.row(partition).next_to_hand_over, passed[partition]) for partition in following
    )
    return tuple(run for run in found if run is not None)


def passed_run(partition: InputPartition, next_offset: int | None, passed: PassedOffset) -> Run | None:
    """Return a run without records for ``partition``, which goes on at ``next_offset`` and has ``passed`` an offset.

    ``next_offset``: None: not known; a negative one is logical, the beginning of the log. Returns None where nothing
    was passed.
    """
    if next_offset is None or passed.offset <= next_offset:
        return None
    epochs = ((passed.offset, passed.leader_epoch),)
    return Run(partition, (), next_offset, passed.offset, epochs, ((next_offset, passed.offset),))
