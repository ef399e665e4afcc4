"""Finds out when a loop has read its input to the end, by what the group has committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.core.input_ends import NO_PARTITION_LIMIT_S, InputEnds
from eos_client.core.model import InputPartition, Partitions
from eos_client.core.passed_offsets import LOOK_INTERVAL_S
from eos_client.ports import Clock

READ_TO_THE_END = "every partition was read to the end that it had when it was assigned"
NO_PARTITION = f"the group has given this member no partition for {NO_PARTITION_LIMIT_S:g} s"


class UntilEnd:
    """Asks the cluster, at most every LOOK_INTERVAL_S, for ends that are not known yet.

    Once all of them were handed over, it asks for the group's committed offsets.
    """

    def __init__(self, consumer: ConfluentConsumer, clock: Clock) -> None:
        self._consumer = consumer
        self._clock = clock
        self._ends = InputEnds()
        self._handed_up_to: Mapping[InputPartition, int] = {}
        self._look_at = 0.0

    def why_to_stop(self) -> str | None:
        """Return why the loop is done; None while it is not, or where no broker has answered. No transaction is open.

        Raises ClusterUnfitError and FatalClientError as ``LibraryConsumer.committed_offsets`` does.
        """
        if (now := self._clock()) < self._look_at:
            return None
        self._look_at = now + LOOK_INTERVAL_S
        membership = self._consumer.membership
        is_without = membership.state.is_assigned and not membership.state.assigned
        if self._ends.are_awaited_in_vain(membership.state.synced_generation if is_without else None, now):
            return NO_PARTITION
        return READ_TO_THE_END if membership.state.assigned and self._is_read() else None

    def _is_read(self) -> bool:
        assigned, before = self._consumer.membership.state.assigned, self._handed_up_to
        if not self._look_up(self._ends.lacking(assigned)):
            return False
        self._handed_up_to = self._consumer.state.next_offsets
        left = self._ends.behind(self._handed_up_to) or self._not_committed(assigned)
        if left and self._handed_up_to == before:  # retention may have deleted what is left
            self._look_up(left)
        return not left

    def _not_committed(self, assigned: Partitions) -> Partitions:
        committed = self._consumer.library.committed_offsets(assigned)
        if committed is None:
            return assigned
        return self._ends.behind({p: committed[p].offset if p in committed else 0 for p in assigned})

    def _look_up(self, partitions: Iterable[InputPartition]) -> bool:
        for partition in sorted(partitions):
            if (span := self._consumer.library.span_of(partition)) is None:
                return False
            self._ends.record(partition, *span)
        return True
