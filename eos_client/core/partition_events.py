"""What can happen to the input partitions of a consumer: the events of ``core/partition_states.py``.

``partitions`` are those that an event is about, ``offset`` is one of its partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from eos_client.core.leader_epochs import Misplacement
from eos_client.core.model import CommittedOffset, GroupGeneration, InputPartition, Partitions
from eos_client.core.record_runs import Run


class CallBegan(NamedTuple):
    """A call that may take records from the library begins."""


class CallEnded(NamedTuple):
    """The call has ended without records for the application, as it should or with an error of its own."""


class LibraryCallBegan(NamedTuple):
    """The library is called, and may run callbacks."""


class Assigned(NamedTuple):
    """``partitions`` were assigned; with ``latest``, their start has to be committed."""

    partitions: Partitions


class AssignedByHand(NamedTuple):
    """The application assigns ``partitions``, instead of all others where it ``replaces`` them.

    ``without_group``: nobody else looks up where they start.
    """

    partitions: Partitions
    replaces: bool
    without_group: bool


class UnassignedByHand(NamedTuple):
    """The application takes ``partitions`` from the assignment; their work can still be committed."""

    partitions: Partitions


class Retained(NamedTuple):
    """``partitions`` were lost unnoticed and are assigned again: they go on at the group's committed offsets."""

    partitions: Partitions


class Departed(NamedTuple):
    """``partitions`` have left; their work stays, so that the gate refuses to commit it."""

    partitions: Partitions


class EndsFound(NamedTuple):
    """By partition, the end of the log and how many offsets it holds: where it starts without a committed offset."""

    ends: Mapping[InputPartition, tuple[int, int]]


class StartsFound(NamedTuple):
    """The group's stable committed offsets; None: it has none, and ``auto.offset.reset`` says what that means."""

    starts: Mapping[InputPartition, CommittedOffset | None]


class StartEpochDropped(NamedTuple):
    """The leader epoch of the start of ``partition``, which lies beyond the end of its log, is not to be validated."""

    partition: InputPartition


class Fetched(NamedTuple):
    """The library has brought ``runs``."""

    runs: tuple[Run, ...]


class Passed(NamedTuple):
    """Offsets without records precede the first record; each run is empty and begins where the library is."""

    runs: tuple[Run, ...]


class EventsTaken(NamedTuple):
    """The error events among ``runs``, the first to wait, were acted on; ``waiting`` is what waits after them."""

    runs: tuple[Run, ...]
    waiting: tuple[Run, ...]


class HandedOver(NamedTuple):
    """``runs`` are handed over, and ``waiting`` is what is left; ``generation``: the one that is synced."""

    runs: tuple[Run, ...]
    waiting: tuple[Run, ...]
    generation: GroupGeneration


class PutBack(NamedTuple):
    """``runs``, the unprocessed end of what was handed over last, come first in the next call."""

    runs: tuple[Run, ...]


class Processed(NamedTuple):
    """Everything handed over so far was processed, and its outputs were written."""


class Committed(NamedTuple):
    """The group has committed these offsets."""

    offsets: Mapping[InputPartition, int]


class WorkForgotten(NamedTuple):
    """What was handed over of ``partitions`` is not to be committed."""

    partitions: Partitions


class Aborted(NamedTuple):
    """All work was aborted: every partition that is still ours goes back to its first uncommitted record."""


class WaitingGivenBack(NamedTuple):
    """The library is to fetch again what waits: this member may keep its partitions though it leaves a subscription."""


class Chosen(NamedTuple):
    """The application lets ``partition`` go on at ``offset``, maybe a logical one, under the leader ``epoch``.

    ``offset``: None where it leaves that to the group.
    """

    partition: InputPartition
    offset: int | None
    epoch: int | None = None


class WorkTakenBack(NamedTuple):
    """Unprocessed records from ``offset`` on count as not consumed: the application has sought to there."""

    partition: InputPartition
    offset: int


class Sought(NamedTuple):
    """The library goes on at ``offset``."""

    partition: InputPartition
    offset: int


class RewindsRepeated(NamedTuple):
    """``partitions`` of which nothing has come since their rewind are to be sought again."""

    partitions: Partitions


class Misplaced(NamedTuple):
    """Records before the next offset of ``partition`` have come: it is to be sought again."""

    partition: InputPartition


class Truncated(NamedTuple):
    """The log of ``partition`` was truncated (KIP-320)."""

    partition: InputPartition
    misplacement: Misplacement


class TopicReplaced(NamedTuple):
    """``topic`` was deleted and created again; ``partitions`` are those of it that are assigned."""

    topic: str
    partitions: Partitions


class Paused(NamedTuple):
    """The application has paused ``partitions``."""

    partitions: Partitions


class Resumed(NamedTuple):
    """The application has resumed ``partitions``."""

    partitions: Partitions


class LibraryPauses(NamedTuple):
    """The library is about to pause ``partitions``."""

    partitions: Partitions


class LibraryResumed(NamedTuple):
    """The library fetches ``partitions`` again."""

    partitions: Partitions


class PauseOfAllBegan(NamedTuple):
    """Every partition is about to be paused: the consumer only serves callbacks for a while."""


class PauseOfAllEnded(NamedTuple):
    """The consumer fetches records again; what was paused for that while is to be resumed."""


class Closed(NamedTuple):
    """The consumer is closed: nothing is handed over any more."""


class Interrupted(NamedTuple):
    """A call was broken off: records may be missing. ``positions``: where the library is in each assigned partition."""

    positions: Mapping[InputPartition, int]
