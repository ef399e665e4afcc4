"""What can happen to the input partitions of a consumer: the events of ``core/partition_states.py``.

``partitions`` are those that an event is about, ``offset`` is one of its partition.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from eos_client.core.leader_epochs import Misplacement
from eos_client.core.model import CommittedOffset, GroupGeneration, InputPartition, Partitions
from eos_client.core.record_runs import Run


class CallBegan(msgspec.Struct, frozen=True, gc=False):
    """A call that may take records from the library begins."""


class CallEnded(msgspec.Struct, frozen=True, gc=False):
    """The call has ended without records for the application, as it should or with an error of its own."""


class LibraryCallBegan(msgspec.Struct, frozen=True, gc=False):
    """The library is called, and may run callbacks."""


class Assigned(msgspec.Struct, frozen=True, gc=False):
    """``partitions`` were assigned; with ``latest``, their start has to be committed."""

    partitions: Partitions


class AssignedByHand(msgspec.Struct, frozen=True, gc=False):
    """The application assigns ``partitions``, instead of all others where it ``replaces`` them.

    ``without_group``: nobody else looks up where they start.
    """

    partitions: Partitions
    replaces: bool
    without_group: bool


class UnassignedByHand(msgspec.Struct, frozen=True, gc=False):
    """The application takes ``partitions`` from the assignment; their work can still be committed."""

    partitions: Partitions


class Retained(msgspec.Struct, frozen=True, gc=False):
    """``partitions`` were lost unnoticed and are assigned again: they go on at the group's committed offsets."""

    partitions: Partitions


class Departed(msgspec.Struct, frozen=True, gc=False):
    """``partitions`` have left; their work stays, so that the gate refuses to commit it."""

    partitions: Partitions


class EndsFound(msgspec.Struct, frozen=True, gc=False):
    """By partition, the end of the log and how many offsets it holds: where it starts without a committed offset."""

    ends: Mapping[InputPartition, tuple[int, int]]


class StartsFound(msgspec.Struct, frozen=True, gc=False):
    """The group's stable committed offsets; None: it has none, and ``auto.offset.reset`` says what that means."""

    starts: Mapping[InputPartition, CommittedOffset | None]


class LogEndFound(msgspec.Struct, frozen=True, gc=False):
    """The log of ``partition``, whose first record is awaited, ends at ``end``."""

    partition: InputPartition
    end: int


class Fetched(msgspec.Struct, frozen=True, gc=False):
    """The library has brought ``runs``."""

    runs: tuple[Run, ...]


class Passed(msgspec.Struct, frozen=True, gc=False):
    """Offsets without records precede the first record; each run is empty and begins where the library is."""

    runs: tuple[Run, ...]


class ErrorsTaken(msgspec.Struct, frozen=True, gc=False):
    """The error events among ``runs``, the first to wait, were acted on; ``waiting`` is what waits after them."""

    runs: tuple[Run, ...]
    waiting: tuple[Run, ...]


class HandedOver(msgspec.Struct, frozen=True, gc=False):
    """``runs`` are handed over, and ``waiting`` is what is left; ``generation``: the one that is synced."""

    runs: tuple[Run, ...]
    waiting: tuple[Run, ...]
    generation: GroupGeneration


class PutBack(msgspec.Struct, frozen=True, gc=False):
    """``runs``, the unprocessed end of what was handed over last, come first in the next call."""

    runs: tuple[Run, ...]


class Processed(msgspec.Struct, frozen=True, gc=False):
    """Everything handed over so far was processed, and its outputs were written."""


class Committed(msgspec.Struct, frozen=True, gc=False):
    """The group has committed these offsets."""

    offsets: Mapping[InputPartition, int]


class WorkLost(msgspec.Struct, frozen=True, gc=False):
    """``partitions`` have left with records that were handed over, which nothing of this consumer will commit."""

    partitions: Partitions


class LossReported(msgspec.Struct, frozen=True, gc=False):
    """The application is told, by a block that fails, that records which it may hold are lost or come again."""


class Aborted(msgspec.Struct, frozen=True, gc=False):
    """All work was aborted: every partition that is still ours goes back to its first uncommitted record."""


class CommittedByOthers(msgspec.Struct, frozen=True, gc=False):
    """Other clients have committed the offsets of all work: what is still ours goes on at the group's offsets."""


class WaitingGivenBack(msgspec.Struct, frozen=True, gc=False):
    """The library is to fetch again what waits: this member may keep its partitions though it leaves a subscription."""


class Chosen(msgspec.Struct, frozen=True, gc=False):
    """The application lets ``partition`` go on at ``offset``, maybe a logical one, under the leader ``epoch``.

    ``offset``: None where it leaves that to the group.
    """

    partition: InputPartition
    offset: int | None
    epoch: int | None = None


class WorkTakenBack(msgspec.Struct, frozen=True, gc=False):
    """Unprocessed records from ``offset`` on count as not consumed: the application has sought to there."""

    partition: InputPartition
    offset: int


class Sought(msgspec.Struct, frozen=True, gc=False):
    """The library goes on at ``offset``."""

    partition: InputPartition
    offset: int


class RewindsRepeated(msgspec.Struct, frozen=True, gc=False):
    """``partitions`` of which nothing has come since their rewind are to be sought again."""

    partitions: Partitions


class Misplaced(msgspec.Struct, frozen=True, gc=False):
    """Records before the next offset of ``partition`` have come: it is to be sought again."""

    partition: InputPartition


class Truncated(msgspec.Struct, frozen=True, gc=False):
    """The log of ``partition`` was truncated (KIP-320)."""

    partition: InputPartition
    misplacement: Misplacement


class TopicReplaced(msgspec.Struct, frozen=True, gc=False):
    """``topic`` was deleted and created again; ``partitions`` are those of it that are assigned."""

    topic: str
    partitions: Partitions


class Paused(msgspec.Struct, frozen=True, gc=False):
    """The application has paused ``partitions``."""

    partitions: Partitions


class Resumed(msgspec.Struct, frozen=True, gc=False):
    """The application has resumed ``partitions``."""

    partitions: Partitions


class LibraryPauses(msgspec.Struct, frozen=True, gc=False):
    """The library is about to pause ``partitions``."""

    partitions: Partitions


class LibraryResumed(msgspec.Struct, frozen=True, gc=False):
    """The library fetches ``partitions`` again."""

    partitions: Partitions


class PauseOfAllBegan(msgspec.Struct, frozen=True, gc=False):
    """Every partition is about to be paused: the consumer only serves callbacks for a while."""


class PauseOfAllEnded(msgspec.Struct, frozen=True, gc=False):
    """The consumer fetches records again; what was paused for that while is to be resumed."""


class Closed(msgspec.Struct, frozen=True, gc=False):
    """The consumer is closed: nothing is handed over any more."""


class Interrupted(msgspec.Struct, frozen=True, gc=False):
    """A call was interrupted: records may be missing. ``positions``: where the library is in what is assigned."""

    positions: Mapping[InputPartition, int]


PartitionEvent = (
    CallBegan
    | CallEnded
    | LibraryCallBegan
    | Assigned
    | AssignedByHand
    | UnassignedByHand
    | Retained
    | Departed
    | EndsFound
    | StartsFound
    | LogEndFound
    | Fetched
    | Passed
    | ErrorsTaken
    | HandedOver
    | PutBack
    | Processed
    | Committed
    | WorkLost
    | LossReported
    | Aborted
    | CommittedByOthers
    | WaitingGivenBack
    | Chosen
    | WorkTakenBack
    | Sought
    | RewindsRepeated
    | Misplaced
    | Truncated
    | TopicReplaced
    | Paused
    | Resumed
    | LibraryPauses
    | LibraryResumed
    | PauseOfAllBegan
    | PauseOfAllEnded
    | Closed
    | Interrupted
)
