"""Decides what a call hands over to the application, or why it hands over nothing.

`next_hand_over` judges the runs that wait, in their order. The runs before a run that may not be handed over are handed
over. The next call begins at that run and is refused. What stops everything is a `standing_refusal`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from eos_client.core.leader_epochs import Misplacement, epoch_at
from eos_client.core.model import CommittedOffset, InputPartition
from eos_client.core.partition_events import Misplaced, Truncated
from eos_client.core.partition_states import ConsumerState
from eos_client.core.record_runs import Run, messages_of, take, without_partitions


class ReplacedTopic(msgspec.Struct, frozen=True):
    """The ``topic`` was deleted and created again."""

    topic: str


class MissingStart(msgspec.Struct, frozen=True):
    """The group has no offset for ``partition``, and ``auto.offset.reset=error`` allows no other start."""

    partition: InputPartition


class TruncatedLog(msgspec.Struct, frozen=True):
    """The log of ``partition`` was truncated (KIP-320)."""

    partition: InputPartition
    misplacement: Misplacement


class StartForgotten(msgspec.Struct, frozen=True):
    """The library says wrongly that the group has no offset for ``partition``; ``committed``: None while it is pending.

    librdkafka (2.16) forgets the look-up of a pending offset when a cooperative member joins again.
    """

    partition: InputPartition
    committed: int | None


class ForbiddenReset(msgspec.Struct, frozen=True):
    """``error`` says that ``partition`` cannot be read on, and ``auto.offset.reset=error`` allows no other offset.

    ``start_is_unknown``: the group has not said yet where the partition starts.
    """

    partition: InputPartition
    error: Any
    start_is_unknown: bool

    def given_committed(
        self, answer: Mapping[InputPartition, CommittedOffset] | None
    ) -> ForbiddenReset | StartForgotten:
        """Decide about an ``error`` that names no offset, where the start is unknown; ``answer``: of the group.

        None, for no answer: the group may have an offset.
        """
        if not self.start_is_unknown or (answer is not None and self.partition not in answer):
            return self
        return StartForgotten(self.partition, None if answer is None else answer[self.partition].offset)


class LogTooShort(msgspec.Struct, frozen=True):
    """The log of ``partition`` ends before the ``expected`` offset; the library has offered the record at ``found``."""

    partition: InputPartition
    expected: int
    found: int


Refusal = ReplacedTopic | MissingStart | TruncatedLog | StartForgotten | ForbiddenReset | LogTooShort


class MisplacedRun(NamedTuple):
    """The ``run`` at position ``at`` begins too early; ``were_read``: whether records of its partition precede it."""

    at: int
    run: Run
    misplacement: Misplacement
    were_read: bool
    may_be_sought_again: bool

    @property
    def shows_truncation(self) -> bool:
        """Whether the log was truncated and has grown again."""
        return self.misplacement.shows_truncation(were_read=self.were_read)

    def is_to_be_sought(self, end: int | None) -> bool:
        """Whether its partition is sought once more; else the log ends too early. ``end``: of the log, if known."""
        return self.may_be_sought_again and (end is None or end >= self.misplacement.expected)


class HandOver(msgspec.Struct, frozen=True):
    """The ``runs`` that one call hands over, and those that go on ``waiting``.

    ``refusal``: why nothing is handed over. ``event``: what the state must be told first. ``misplaced``: the run after
    ``runs`` that begins too early; `given_log_end` decides about it.
    """

    runs: tuple[Run, ...]
    waiting: tuple[Run, ...]
    refusal: Refusal | None = None
    event: Misplaced | Truncated | None = None
    misplaced: MisplacedRun | None = None

    @property
    def messages(self) -> list[Any]:
        """The messages of its runs."""
        return messages_of(self.runs)

    @property
    def has_errors(self) -> bool:
        """Whether there are error events among its messages."""
        return any(run.is_error for run in self.runs)

    def given_log_end(self, end: int | None) -> HandOver:
        """Decide about the ``misplaced`` run, whose log has this ``end``; None: not known.

        Its partition is sought again, or refused because its log ends before the expected offset.
        """
        if self.misplaced is None:
            return self
        partition, misplacement = self.misplaced.run.partition, self.misplaced.misplacement
        if self.misplaced.is_to_be_sought(end):
            waiting = without_partitions(self.waiting, {partition})
            return HandOver(self.runs, waiting, event=Misplaced(partition))
        refusal = LogTooShort(partition, misplacement.expected, misplacement.found)
        return HandOver(self.runs, self.waiting, None if self.runs else refusal)


def standing_refusal(state: ConsumerState) -> Refusal | None:
    """Return why nothing at all may be handed over, until the application chooses where a partition goes on.

    A replaced topic refuses for good: its offsets were committed for another log.
    """
    if state.replaced_topic is not None:
        return ReplacedTopic(state.replaced_topic)
    if not state.stopping:
        return None
    if missing := state.missing_starts:
        return MissingStart(min(missing))
    return next((TruncatedLog(*found) for found in state.truncations.items()), None)


def next_hand_over(state: ConsumerState, count: int) -> HandOver:
    """Return what may be handed over of the first ``count`` messages that wait and are not paused."""
    if (standing := standing_refusal(state)) is not None:
        return HandOver((), state.waiting, standing)
    taken, waiting = take(state.waiting, count, state.paused)
    misplaced = first_misplaced(state, taken)
    end = len(taken) if misplaced is None else misplaced.at
    for index, run in enumerate(taken[:end]):
        if run.forbids_reset:
            start_is_unknown = state.row(run.partition).start_is_unknown
            return _up_to(index, taken, waiting, ForbiddenReset(run.partition, run.messages[0], start_is_unknown))
    if misplaced is None:
        return HandOver(taken, waiting)
    if misplaced.shows_truncation:
        partition, misplacement = misplaced.run.partition, misplaced.misplacement
        before = _up_to(end, taken, waiting, TruncatedLog(partition, misplacement))
        return replace(before, event=Truncated(partition, misplacement))
    return HandOver(taken[:end], (*taken[end:], *waiting), misplaced=misplaced)


def misplacement(state: ConsumerState, run: Run, before: Run | None) -> Misplacement | None:
    """Return where ``run`` begins too early; None where it does not.

    ``before``: the run of its partition that is to be handed over before it.
    """
    row = state.row(run.partition)
    expected = row.next_to_hand_over if before is None else before.next_offset
    if expected is None or run.first_offset >= expected or not (row.rejects_earlier or before):
        return None
    epoch = epoch_at(row.epochs, expected) if before is None else before.leader_epoch
    return Misplacement(expected, epoch, run.first_offset, run.epochs[0][1])


def first_misplaced(state: ConsumerState, taken: Sequence[Run]) -> MisplacedRun | None:
    """Return the first run of ``taken``, which are to be handed over in this order, that begins too early."""
    before: dict[InputPartition, Run] = {}
    for index, run in enumerate(taken):
        if run.is_error:
            continue
        found = misplacement(state, run, before.get(run.partition))
        if found is not None:
            row = state.row(run.partition)
            were_read = run.partition in before or row.was_read
            return MisplacedRun(index, run, found, were_read, row.may_be_sought_again)
        before[run.partition] = run
    return None


def _up_to(end: int, taken: tuple[Run, ...], waiting: tuple[Run, ...], refusal: Refusal) -> HandOver:
    """Return the runs before ``end``; the ``refusal`` of the one there if it comes first."""
    return HandOver(taken[:end], (*taken[end:], *waiting), None if end else refusal)
