"""A journal of the records handed to the application, so that a call that is interrupted can be undone.

An asynchronous exception (a signal handler that raises, KeyboardInterrupt, MemoryError) may end a call between any two
of its steps, even after librdkafka has counted records as delivered that the application will never see. So a call that
may take records from librdkafka opens a *journal* first; closing it is the last step of the call, a single assignment.
Every change is written to the journal before it is made. A journal that is still open when the next call begins belongs
to an interrupted call: its changes are undone, and every partition is fetched again from its next offset.
"""

from __future__ import annotations

from collections.abc import Iterable

from eos_client.core.model import InputPartition, InputPosition
from eos_client.core.uncommitted_work import PartitionWork, UncommittedWork

_Before = tuple[InputPartition, PartitionWork, int | None]


class HandedOver:
    """The uncommitted work, the next offset to hand over of each partition, and the journal of a call.

    ``next_offsets`` lacks partitions of which nothing was handed over and whose start offset is not known.
    """

    def __init__(self) -> None:
        self._work = UncommittedWork()
        self.next_offsets: dict[InputPartition, int] = {}
        self.journal: list[_Before] | None = None

    @property
    def work(self) -> UncommittedWork:
        """What was handed over and is not committed, without the changes of an interrupted call."""
        if self.journal:
            self.undo()
        return self._work

    def begin_call(self) -> bool:
        """Open the journal; returns False where it was open: another call is under way, or was interrupted."""
        if self.journal is None:
            self.journal = []
            return True
        return False

    def begin_change(self) -> bool:
        """Begin an application's own change of what is handed over next; returns what `end_change` is given.

        If the previous call was interrupted, its changes are undone first, so that a later undo does not revert this
        change.
        """
        is_outermost = self.begin_call()
        self.undo()
        return is_outermost

    def end_change(self, *, is_outermost: bool) -> None:
        """Keep the application's change even if the open call is undone; the outermost change closes the journal."""
        self.journal = None if is_outermost else []

    def undo(self) -> None:
        """Undo the changes in the journal, which stays open."""
        journal = self.journal or []
        for partition, work, next_offset in reversed(journal):
            self._work.reset(partition, work)
            if next_offset is None:
                self.next_offsets.pop(partition, None)
            else:
                self.next_offsets[partition] = next_offset
        journal.clear()

    def hand_over(self, partition: InputPartition, position: InputPosition) -> None:
        """Record that the application was given the records of ``position``."""
        self._journal_state(partition)
        self._work.hand_over(partition, position)
        self.next_offsets[partition] = position.next_offset

    def take_back(self, partition: InputPartition, offset: int) -> None:
        """Record that the records from ``offset`` on were not handed over after all."""
        self._journal_state(partition)
        self._work.take_back(partition, offset)
        self.next_offsets[partition] = offset

    def record_seek(self, partition: InputPartition, offset: int) -> None:
        """Record that the application continues at ``offset``: records in hand from there on count as not consumed."""
        self._journal_state(partition)
        self._work.record_seek(partition, offset)

    def set_next_offset(self, partition: InputPartition, offset: int) -> None:
        """Set the next offset of ``partition``, which may be a logical one (the beginning, the end)."""
        self.next_offsets[partition] = offset

    def forget_next(self, partitions: Iterable[InputPartition]) -> None:
        """Let ``partitions`` continue at the group's committed offsets."""
        for partition in partitions:
            self.next_offsets.pop(partition, None)

    def _journal_state(self, partition: InputPartition) -> None:
        if self.journal is not None:
            self.journal.append((partition, self._work.state_of(partition), self.next_offsets.get(partition)))
