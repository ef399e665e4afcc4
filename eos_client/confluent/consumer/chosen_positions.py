"""Where the application itself has let partitions go on, by ``seek`` or ``assign``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, TopicPartition

from eos_client.core.hand_over import HandOver
from eos_client.core.model import InputPartition, Partitions

_GROUP_DECIDES = (OFFSET_INVALID, OFFSET_STORED)

Chosen = Mapping[InputPartition, int]


class ChosenPositions:
    """What the application has chosen within the call that is under way, and whether it ever has.

    ``kept`` is where it wants to go on once a group that was left is joined again.
    """

    def __init__(self) -> None:
        self._in_call: dict[InputPartition, int] = {}
        self._ever: set[InputPartition] = set()
        self.kept: dict[InputPartition, int] = {}

    def begin_call(self) -> None:
        """Note that a call into the client library begins."""
        self._in_call = {}

    def note(self, partitions: Sequence[TopicPartition]) -> Chosen:
        """Take down where ``partitions`` go on, and return it; without an offset the choice is left to the group."""
        chosen = {InputPartition(p.topic, p.partition): p.offset for p in partitions if p.offset not in _GROUP_DECIDES}
        self._in_call.update(chosen)
        self._ever.update(chosen)
        return chosen

    def in_call(self, partitions: Partitions) -> Chosen:
        """Return where those of ``partitions`` go on that were chosen in this call."""
        return {partition: self._in_call[partition] for partition in partitions & self._in_call.keys()}

    def departed(self, partitions: Partitions) -> None:
        """``partitions`` have left."""
        for partition in partitions:
            self._in_call.pop(partition, None)

    def keep(self, partitions: Partitions, handed: HandOver) -> None:
        """``partitions`` leave only to come back: a seek of the application's must not be lost."""
        for partition in partitions & self._ever:
            position = handed.work.ours.get(partition)
            offset = handed.next_offsets.get(partition) if position is None else position.first_offset
            if offset is not None:
                self.kept[partition] = offset

    def forget_kept(self) -> None:
        """Note that the group was joined again."""
        self.kept = {}
