"""Where a newly assigned partition starts, checked against the group's committed offset (KIP-447).

librdkafka may start at ``auto.offset.reset`` although an offset is pending, and applies it to a deleted offset, too. So
the first record of a partition is let through only when the stable committed offset says so, and the library is never
told ``latest``: the end of the log is looked up and committed here when a partition without an offset is assigned, so
that a later owner starts there and not at an end that has moved on. With ``earliest`` every owner finds the same start.
Until its start is known, the drain does not pause a partition (a pause makes librdkafka look the start up again).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING

from eos_client.confluent.consumer.read_positions import no_offset
from eos_client.confluent.consumer.record_runs import runs
from eos_client.core.model import InputPartition, named

_ASK_AGAIN_S = 0.5
_TELL_AFTER_S = 30.0
_RESET = "auto.offset.reset"

Known = Mapping[InputPartition, int]


class ResetPolicy(Enum):
    """What ``auto.offset.reset`` asks for where the group has no offset. librdkafka takes three spellings of two."""

    EARLIEST = frozenset({"earliest", "beginning", "smallest"})
    LATEST = frozenset({"latest", "end", "largest"})
    ERROR = frozenset({"error"})

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> ResetPolicy:
        """Return the policy of ``settings``; what librdkafka does not know it has refused already."""
        wanted = str(settings[_RESET]).lower()
        return next((policy for policy in cls if wanted in policy.value), cls.ERROR)


def library_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` for the client library, which must never skip to the end of a log by itself."""
    if ResetPolicy.of(settings) is ResetPolicy.LATEST:
        return {**settings, _RESET: "earliest"}
    return dict(settings)


class Steering(Protocol):
    """What the check asks of the consumer."""

    def stable_offsets(self, partitions: Iterable[InputPartition]) -> Known | None:
        """Return the committed offsets; partitions without one are left out; None while any of them is pending."""
        ...

    def end_offset(self, partition: InputPartition) -> int | None:
        """Return the offset behind the last record that may be read now; None when nobody answers."""
        ...

    def commit_starts(self, starts: Known) -> bool:
        """Commit where these partitions start, if that is allowed now; returns whether later owners will find it."""
        ...

    def steer(self, partition: InputPartition, offset: int) -> None:
        """Continue ``partition`` at ``offset``."""
        ...

    def starts_at(self, partition: InputPartition, offset: int) -> None:
        """``partition`` is about to be handed over from ``offset`` on."""
        ...

    def hold_back(self, partitions: frozenset[InputPartition]) -> None:
        """Fetch nothing of ``partitions``."""
        ...

    def let_go(self, partitions: frozenset[InputPartition]) -> None:
        """Fetch ``partitions`` again."""
        ...

    def report(self, what: str) -> None:
        """Tell the application ``what`` keeps its records waiting."""
        ...


@dataclass(slots=True)
class _Start:
    """What is known of one partition whose first record was not let through yet.

    ``is_held``: nothing of it is fetched until its start is known. ``is_nowhere``: it has no offset to start at, and
    may not choose one. ``is_unfixed``: with ``latest``, later owners would not find its start yet. ``is_anew``: it is
    of another topic than before, so no committed offset counts. ``is_doubted``: records before the first to arrive may
    be missing. ``end``: where it starts without a committed offset.
    ``offset``: where it starts, once ``is_known``; None: at the beginning of the log.
    """

    is_held: bool = False
    is_nowhere: bool = False
    is_unfixed: bool = False
    is_anew: bool = False
    is_doubted: bool = False
    is_known: bool = False
    offset: int | None = None
    end: int | None = None

    def learn(self, offset: int | None) -> None:
        """Note where the partition starts: the group has said so, or we have committed it."""
        self.is_known, self.offset = True, offset
        if offset is not None:
            self.is_unfixed = self.is_anew = False
            self.end = None

    def forget(self) -> None:
        """Drop what was learned."""
        self.is_known, self.offset = False, None

    def is_missed_by(self, first_offset: int) -> bool:
        """Whether a record before ``first_offset`` may have to be the first."""
        if self.offset is None:
            return self.is_doubted and first_offset > 0
        return self.offset != first_offset

    @property
    def goal(self) -> int:
        """The offset to seek to, which may be a logical one."""
        return OFFSET_BEGINNING if self.offset is None else self.offset


class StartOffsets:
    """The partitions whose first record has not come yet, and those of them that wait for a pending offset."""

    def __init__(self, steering: Steering, clock: Callable[[], float], policy: ResetPolicy) -> None:
        self._steering = steering
        self._clock = clock
        self._policy = policy
        self._starts: dict[InputPartition, _Start] = {}
        self._places: dict[InputPartition, tuple[int | None, int]] = {}
        self._ask_at = 0.0
        self._unanswered_since: float | None = None

    @property
    def waiting(self) -> frozenset[InputPartition]:
        """Partitions whose first record was not let through yet: nobody else may pause or resume them."""
        return frozenset(p for p, start in self._starts.items() if not start.is_nowhere)

    @property
    def held(self) -> frozenset[InputPartition]:
        """Partitions of which nothing may be fetched until it is known where they go on."""
        return frozenset(p for p, start in self._starts.items() if start.is_held or start.is_nowhere)

    def assigned(self, partitions: Iterable[InputPartition]) -> None:
        """``partitions`` will start at the group's offset."""
        started = frozenset(partitions)
        for partition in started:
            start = self._start_of(partition)
            start.is_unfixed = self._policy is ResetPolicy.LATEST
            start.is_held = start.is_held or partition in self._places
        self._steering.let_go(started)  # a drain's pause outlives the revocation that came in the midst of it

    def go_on(self, places: Mapping[InputPartition, tuple[int | None, int]]) -> None:
        """Let partitions start where the application has sought, once they are assigned again.

        Each comes with the offset that the group had committed for it, and the place, which may be a logical offset.
        Where the group has another one by then, somebody else has gone on, and that one counts.
        """
        self._places.update(places)

    def _place_of(self, partition: InputPartition, committed: int | None) -> int | None:
        before, place = self._places.pop(partition, (None, committed))
        return place if before == committed else committed

    def fix(self) -> None:
        """With ``latest``, give the assigned partitions that have no committed offset one: the end as it is now.

        What cannot be read or committed now is tried again while records are fetched.
        """
        if unfixed := {p for p, start in self._starts.items() if start.is_unfixed}:
            self._take(unfixed)
            self._ask_at = self._clock() + _ASK_AGAIN_S

    def came_back(self, partitions: frozenset[InputPartition]) -> None:
        """``partitions`` were read too early: fetch nothing of them until it is known where they go on."""
        starts = [self._start_of(partition) for partition in partitions]
        self._steering.hold_back(partitions)
        for start in starts:
            start.is_held, start.is_nowhere = True, False
        self._take({p for p in partitions if not self._starts[p].is_known})
        self._ask_at = self._clock() + _ASK_AGAIN_S
        self._steer({})

    def doubt(self, partitions: frozenset[InputPartition]) -> None:
        """Note that the client library may have dropped the first records of ``partitions``, or an error event.

        A seek would end its own look-up of where they start, so what arrives is compared first. With ``error`` nothing
        arrives after an error event that was dropped.
        """
        if self._policy is ResetPolicy.ERROR:
            self.came_back(partitions)
            return
        for partition in partitions:
            self._start_of(partition).is_doubted = True

    def begin_anew(self, partitions: frozenset[InputPartition], read: frozenset[InputPartition]) -> None:
        """``partitions`` are of another topic now, and start at its beginning.

        Of those in ``read``, the old topic's records were handed over in this assignment, so no committed offset can
        be the new topic's; for the others, one that the group still has counts.
        """
        for partition in partitions:
            start = self._start_of(partition)
            start.forget()
            start.is_anew = start.is_anew or partition in read
            if partition in read or self._policy is ResetPolicy.LATEST:
                start.end = 0
        self.came_back(partitions)

    def settled(self, partitions: Iterable[InputPartition]) -> None:
        """``partitions`` have left, or the application has chosen where they start."""
        held = self.held & frozenset(partitions)
        for partition in partitions:
            self._starts.pop(partition, None)
            self._places.pop(partition, None)
        if held:
            self._steering.let_go(held)

    def admit(self, batch: list[Any]) -> list[Any]:
        """Return the records that may be handed over; steers what started elsewhere."""
        if not self._starts:
            return batch
        if self._clock() >= self._ask_at:
            self.fix()
        arrived: dict[InputPartition, int] = {}
        waiting = self.waiting
        for run in runs(batch):
            if run.partition in waiting and not run.is_error:
                arrived.setdefault(run.partition, run.first_offset)
        self._learn(arrived)
        held = frozenset(p for p in arrived if not self._starts[p].is_known and not self._starts[p].is_held)
        self._steering.hold_back(held)
        for partition in held:
            self._starts[partition].is_held = True
        refused = self._steer(arrived) | (arrived.keys() & self.held)
        if not refused:
            return batch
        return [m for m in batch if InputPartition(m.topic(), m.partition()) not in refused]

    def _start_of(self, partition: InputPartition) -> _Start:
        return self._starts.setdefault(partition, _Start())

    def _learn(self, arrived: Mapping[InputPartition, int]) -> None:
        """Ask for everything unknown at once; while something in it is pending, for what is needed one by one."""
        unknown = {p: start for p, start in self._starts.items() if not start.is_known and not start.is_nowhere}
        is_time = self._clock() >= self._ask_at
        needed = [p for p, start in unknown.items() if (is_time if start.is_held else p in arrived)]
        if not needed:
            return
        has_answered = self._take(set(unknown))
        self._note_answer(has_answered, needed)
        if not has_answered and len(self.waiting) > 1:
            for partition in needed:
                self._take({partition})
        self._ask_at = self._clock() + _ASK_AGAIN_S

    def _note_answer(self, has_answered: bool, needed: list[InputPartition]) -> None:
        """Report every _TELL_AFTER_S seconds that the group does not say where ``needed`` start."""
        now = self._clock()
        if has_answered:
            self._unanswered_since = None
        elif self._unanswered_since is None:
            self._unanswered_since = now
        elif now - self._unanswered_since >= _TELL_AFTER_S:
            self._unanswered_since = now
            self._steering.report(
                f"nothing of {named(frozenset(needed))} is handed over: the group has not told a stable committed "
                f"offset for {_TELL_AFTER_S:g} s or more. Either the cluster does not answer, or a transaction with "
                "offsets of this group is still open; the coordinator ends it at its transaction.timeout.ms"
            )

    def _take(self, partitions: set[InputPartition]) -> bool:
        """Find out where ``partitions`` start, and fix it with ``latest``; returns whether the group has answered."""
        asked = {p for p in partitions if not self._starts[p].is_anew}
        answer = self._steering.stable_offsets(asked) if asked else {}
        known: dict[InputPartition, int | None] = dict(answer or {})
        if self._policy is ResetPolicy.LATEST:
            self._look_up_ends(asked - known.keys())
        if answer is not None:
            known.update(self._committed_ends(partitions - known.keys()))
        if self._policy is not ResetPolicy.LATEST and answer is not None:
            known.update(dict.fromkeys(asked - known.keys()))
        for partition, offset in known.items():
            self._starts[partition].learn(self._place_of(partition, offset))
        return answer is not None

    def _look_up_ends(self, partitions: Iterable[InputPartition]) -> None:
        """Take down each partition's end once: it counts as of now, whenever it can be committed."""
        for partition in sorted(p for p in partitions if self._starts[p].end is None):
            end = self._steering.end_offset(partition)
            if end is None:
                return
            self._starts[partition].end = end

    def _committed_ends(self, partitions: Iterable[InputPartition]) -> Known:
        """Commit the ends that are known and return them; nothing when that was refused."""
        ends = {p: end for p in partitions if (end := self._starts[p].end) is not None}
        return ends if ends and self._steering.commit_starts(ends) else {}

    def _steer(self, arrived: Mapping[InputPartition, int]) -> set[InputPartition]:
        steered: set[InputPartition] = set()
        decided = {p: s for p, s in self._starts.items() if s.is_known and (s.is_held or p in arrived)}
        for partition, start in decided.items():
            if start.is_held and start.offset is None and self._policy is ResetPolicy.ERROR:
                start.forget()
                start.is_held, start.is_nowhere = False, True
                continue
            if start.is_held or start.is_missed_by(arrived[partition]):
                self._steering.steer(partition, start.goal)
                steered.add(partition)
            else:
                self._steering.starts_at(partition, start.goal)
            del self._starts[partition]
            if start.is_held:
                self._steering.let_go(frozenset({partition}))
        return steered

    def require_starts(self) -> None:
        """Raise InputPositionError when a partition has no offset to start at, and may not choose one."""
        for partition in sorted(p for p, start in self._starts.items() if start.is_nowhere):
            raise no_offset(partition)
