"""Finds out when a group has read the input of a loop to the end, by what the group has committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.preflight import partitions_of
from eos_client.core.input_ends import InputEnds
from eos_client.core.model import InputPartition, Partitions, is_pattern
from eos_client.core.passed_offsets import LOOK_INTERVAL_S
from eos_client.ports import Clock

READ_TO_THE_END = "the group has committed every partition up to the end that it had at the start"
_ANSWER_LIMIT_S = 5.0
_STANDSTILL_INTERVAL_S = 30.0


class UntilEnd:
    """Asks the cluster, at most every LOOK_INTERVAL_S, for ends that are not known yet.

    Once all records up to the ends of this member's own partitions were handed over, it asks what the group has
    committed. Of what a pattern matches only the partitions count that are this member's: it does not know the others.
    """

    def __init__(self, consumer: ConfluentConsumer, topics: Sequence[str], clock: Clock) -> None:
        self._consumer = consumer
        self._topics = [topic for topic in topics if not is_pattern(topic)]
        self._clock = clock
        self._named: Partitions | None = None
        self._ends = InputEnds()
        self._look_at = 0.0
        self._look_again_at = 0.0

    def is_reached(self) -> bool:
        """Return whether the loop is done; False, too, where no broker has answered. No transaction is open.

        Raises ClusterUnfitError and FatalClientError as ``LibraryConsumer.committed_offsets`` does.
        """
        if (now := self._clock()) < self._look_at:
            return False
        self._look_at = now + LOOK_INTERVAL_S
        return self._knows_the_ends() and self._is_read()

    def _knows_the_ends(self) -> bool:
        """Look for the ends that are not known. Before the first poll nothing is fetched, so brokers answer at once."""
        membership = self._consumer.membership.state
        if self._named is None:
            self._named = partitions_of(self._consumer, self._topics, _ANSWER_LIMIT_S)
        if self._named is None:
            return False
        return self._look_up(self._ends.lacking(self._named | membership.assigned)) and membership.is_assigned

    def _is_read(self) -> bool:
        handed = self._consumer.state.next_offsets
        if self._ends.behind(handed):
            return self._are_passed(handed)
        asked = self._ends.to_be_committed
        committed = self._consumer.library.committed_offsets(asked) if asked else {}
        if committed is None:
            return False
        offsets = {p: committed[p].offset if p in committed else 0 for p in asked}
        return self._are_passed(offsets) and self._are_in_the_logs(offsets)

    def _are_in_the_logs(self, offsets: Mapping[InputPartition, int]) -> bool:
        """Whether no offset lies beyond the end of its log, as after a truncation: its owner raises that."""
        for partition in sorted(self._ends.beyond(offsets)):
            span = self._consumer.library.span_of(partition, _ANSWER_LIMIT_S)
            if span is None or offsets[partition] > span[1]:
                return False
        return True

    def _are_passed(self, offsets: Mapping[InputPartition, int]) -> bool:
        if self._clock() >= self._look_again_at:  # retention may have deleted what is left
            self._look_again_at = self._clock() + _STANDSTILL_INTERVAL_S
            self._look_up(self._ends.standing_still(offsets))
        return not self._ends.behind(offsets)

    def _look_up(self, partitions: Iterable[InputPartition]) -> bool:
        for partition in sorted(partitions):
            if (span := self._consumer.library.span_of(partition, _ANSWER_LIMIT_S)) is None:
                return False
            self._ends.record(partition, *span)
        return True
