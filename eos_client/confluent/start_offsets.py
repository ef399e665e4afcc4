"""Where a newly assigned partition starts, checked against the group's committed offset.

librdkafka (2.16, ``rd_kafka_assignment_apply_offsets``) forgets that an offset is still pending when the assignment
changes while OffsetFetch is answered UNSTABLE_OFFSET_COMMIT: it then starts at ``auto.offset.reset``, and everything is
processed a second time, or, with ``latest``, never. So the first record of a partition is let through only when the
stable committed offset is known and says so (KIP-447: a new owner never starts from an offset about to move).

Until then the drain does not pause it: paused while it looks up ``auto.offset.reset``, the library looks again half a
second later (``rd_kafka_toppar_handle_Offset``, "outdated"), and goes back to there if it was paused once more since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from eos_client.confluent.record_runs import runs
from eos_client.core.model import InputPartition

_ASK_AGAIN_S = 0.5

Known = Mapping[InputPartition, int]


class Steering(Protocol):
    """What the check asks of the consumer."""

    def stable_offsets(self, partitions: Iterable[InputPartition]) -> Known | None:
        """Return the committed offsets; partitions without one are left out; None while any of them is pending."""
        ...

    def steer(self, partition: InputPartition, offset: int) -> None:
        """Continue ``partition`` at ``offset``."""
        ...

    def hold_back(self, partitions: frozenset[InputPartition]) -> None:
        """Fetch nothing of ``partitions``."""
        ...

    def let_go(self, partitions: frozenset[InputPartition]) -> None:
        """Fetch ``partitions`` again."""
        ...


class StartOffsets:
    """The partitions whose first record has not come yet, and those of them that wait for a pending offset."""

    def __init__(self, steering: Steering, clock: Callable[[], float]) -> None:
        self._steering = steering
        self._clock = clock
        self._unchecked: set[InputPartition] = set()
        self._expected: dict[InputPartition, int | None] = {}
        self._waiting: dict[InputPartition, int] = {}
        self._ask_at = 0.0

    @property
    def waiting(self) -> frozenset[InputPartition]:
        """Partitions whose first record was not let through yet: nobody else may pause or resume them."""
        return frozenset(self._unchecked)

    @property
    def held(self) -> frozenset[InputPartition]:
        """Partitions of which nothing may be fetched until it is known where they go on."""
        return frozenset(self._waiting)

    def assigned(self, partitions: Iterable[InputPartition]) -> None:
        """``partitions`` will start at the group's offset."""
        started = frozenset(partitions)
        self._unchecked.update(started)
        self._steering.let_go(started)  # a drain's pause outlives the revocation that came in the midst of it

    def came_back(self, partitions: frozenset[InputPartition], start: int) -> None:
        """``partitions`` were read too early: fetch nothing of them until it is known where they go on.

        ``start`` is where they go on when nothing is committed.
        """
        self._steering.hold_back(partitions)
        self._unchecked.update(partitions)
        self._waiting.update(dict.fromkeys(partitions, start))
        self._ask_at = self._clock() + _ASK_AGAIN_S  # it was asked a moment ago

    def settled(self, partitions: Iterable[InputPartition]) -> None:
        """``partitions`` have left, or the application has chosen where they start."""
        held = self._waiting.keys() & frozenset(partitions)
        for partition in partitions:
            self._unchecked.discard(partition)
            self._expected.pop(partition, None)
            self._waiting.pop(partition, None)
        if held:
            self._steering.let_go(frozenset(held))

    def admit(self, batch: list[Any]) -> list[Any]:
        """Return the records that may be handed over; steers what started elsewhere."""
        if not self._unchecked:
            return batch
        arrived: dict[InputPartition, int] = {}
        for run in runs(batch):
            if run.partition in self._unchecked and not run.is_error:
                arrived.setdefault(run.partition, run.first_offset)
        self._learn(arrived)
        held = {p: first for p, first in arrived.items() if p not in self._expected and p not in self._waiting}
        self._steering.hold_back(frozenset(held))
        self._waiting.update(held)
        refused = self._steer(arrived) | (arrived.keys() & self._waiting.keys())
        if not refused:
            return batch
        return [m for m in batch if InputPartition(m.topic(), m.partition()) not in refused]

    def _learn(self, arrived: Mapping[InputPartition, int]) -> None:
        """Ask for everything unknown at once; while something in it is pending, for what is needed one by one."""
        needed = [p for p in arrived if p not in self._expected and p not in self._waiting]
        if self._waiting and self._clock() >= self._ask_at:
            needed += self._waiting
        if not needed:
            return
        if not self._take(self._unchecked - self._expected.keys()) and len(self._unchecked) > 1:
            for partition in needed:
                self._take({partition})
        self._ask_at = self._clock() + _ASK_AGAIN_S

    def _take(self, partitions: set[InputPartition]) -> bool:
        known = self._steering.stable_offsets(partitions)
        if known is None:
            return False
        self._expected.update({p: known.get(p) for p in partitions})
        return True

    def _steer(self, arrived: Mapping[InputPartition, int]) -> set[InputPartition]:
        steered: set[InputPartition] = set()
        for partition in [p for p in dict.fromkeys((*self._waiting, *arrived)) if p in self._expected]:
            first = self._waiting.get(partition, arrived.get(partition, 0))
            start = self._expected.pop(partition)
            self._unchecked.discard(partition)
            was_waiting = self._waiting.pop(partition, None) is not None
            if was_waiting or start not in (None, first):
                self._steering.steer(partition, first if start is None else start)
                steered.add(partition)
            if was_waiting:
                self._steering.let_go(frozenset({partition}))
        return steered
