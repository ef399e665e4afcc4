"""Offsets without records at the end of a partition: transaction markers, and the records of aborted transactions.

No reader is given them, but the client library's position passes them. A group whose committed offset is the one behind
the last record would show a lag for ever. So an idle loop commits the position after them, as work with no records: the
gate decides on it, and an abort goes back to where it began.
"""

from __future__ import annotations

from typing import NamedTuple

from eos_client.core.internal_logs import OFFSETS_LOG
from eos_client.core.model import InputPartition, Partitions
from eos_client.core.record_runs import Run

LOOK_INTERVAL_S = 1.0
"""How often, in seconds, a loop without work looks for such offsets, and so commits them, at most."""


class PassedOffset(NamedTuple):
    """The client library's position, and the leader epoch of what stands before it; None: not known."""

    offset: int
    leader_epoch: int | None


def without_offsets_log(partitions: Partitions) -> Partitions:
    """Return ``partitions`` without those of ``__consumer_offsets``.

    Each commit writes its offsets and its marker there, so the end of such a partition would never be reached.
    """
    return frozenset(partition for partition in partitions if partition.topic != OFFSETS_LOG)


def passed_run(partition: InputPartition, next_offset: int | None, passed: PassedOffset) -> Run | None:
    """Return a run without records for ``partition``, which goes on at ``next_offset`` and has ``passed`` an offset.

    ``next_offset``: None: not known; a negative one is logical, the beginning of the log. Returns None where nothing
    was passed.
    """
    if next_offset is None or passed.offset <= next_offset:
        return None
    epochs = ((passed.offset, passed.leader_epoch),)
    return Run(partition, (), next_offset, passed.offset, epochs, ((next_offset, passed.offset),))
