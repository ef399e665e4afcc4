"""Asks where newly assigned partitions start, and commits what they lack (KIP-447).

librdkafka may start at ``auto.offset.reset`` although an offset is pending, and applies it to a deleted offset, too. So
the first record of a partition is let through only when the stable committed offset says so. ``latest`` is implemented
here: the end of the log is looked up and committed when a partition without an offset is assigned, so that a later
owner starts there. librdkafka validates a start against truncation (KIP-320) only when it is sought with a leader
epoch: that is done if the first record has another epoch than the committed offset.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from eos_client.confluent.consumer.library_consumer import LibraryConsumer
from eos_client.confluent.consumer.partition_table import PartitionTable
from eos_client.core.model import CommittedOffset, InputPartition, Partitions, format_partitions
from eos_client.core.partition_events import (
    EndsFound,
    LogEndFound,
    StartsFound,
)
from eos_client.core.record_runs import Run

_RETRY_INTERVAL_S = 0.5
_REPORT_AFTER_S = 30.0


@dataclass(eq=False, repr=False)
class _Overdue:
    """Something that is tried again and again; ``since``: when it began to fail, or was reported last."""

    since: float | None = None

    def is_to_be_reported(self, now: float) -> bool:
        """Record that it has failed ``now``; returns whether it has failed for _REPORT_AFTER_S seconds."""
        if self.since is None:
            self.since = now
        if now - self.since < _REPORT_AFTER_S:
            return False
        self.since = now
        return True

    def end(self) -> None:
        """Record that it has succeeded."""
        self.since = None


@dataclass(eq=False, repr=False)
class StartOffsets:
    """Finds the start offsets that are due.

    ``_commit`` commits start offsets, if that is allowed now; it returns why they were not committed.
    """

    _library: LibraryConsumer
    _table: PartitionTable
    _commit: Callable[[Mapping[InputPartition, int]], str | None]
    _report: Callable[[str], None]
    _clock: Callable[[], float]
    _skipped_by_latest: dict[InputPartition, int] = field(default_factory=dict, init=False)
    _ask_at: float = field(default=0.0, init=False)
    _unanswered: _Overdue = field(default_factory=_Overdue, init=False)
    _uncommitted: _Overdue = field(default_factory=_Overdue, init=False)

    def take_skipped_by_latest(self) -> Mapping[InputPartition, int]:
        """Return how many offsets lie before the end at which partitions have started since the last call."""
        skipped_by_latest, self._skipped_by_latest = self._skipped_by_latest, {}
        return skipped_by_latest

    def commit_missing(self) -> None:
        """With ``latest``, commit the present end as the start offset of assigned partitions that have none.

        What cannot be read or committed now is tried again while records are fetched.
        """
        if self._table.state.asking and (uncommitted := self._table.state.due_start_commits):
            self._find(uncommitted)

    def commit_missing_in_callback(self) -> None:
        """Commit inside on_assign what is missing; what fails here is tried again, and reported, by the next fetch."""
        with contextlib.suppress(RuntimeError, KafkaException):
            self.commit_missing()

    def find(self, partitions: Partitions) -> None:
        """Ask once where ``partitions`` start, as far as that is not known."""
        if unknown := partitions & self._table.state.unknown_starts:
            self._find(unknown)

    def find_due(self, arrived: Iterable[Run]) -> None:
        """Find the starts that are needed now that records have ``arrived``.

        All unknown starts are asked for in one request; if one of them is pending, the needed ones one by one.
        """
        if not self._table.state.unsettled:
            return
        is_time = self._clock() >= self._ask_at
        if is_time:
            self.commit_missing()
        arrived = list(arrived)
        needed = self._table.state.due_starts(arrived, is_time=is_time)
        if needed:
            unknown = self._table.state.unknown_starts
            has_answered = self._find(unknown)
            self._record_answer(needed, has_answered=has_answered)
            if not has_answered and len(unknown) > 1:
                for partition in sorted(needed):
                    self._find(frozenset({partition}))
        for partition in sorted(self._table.state.due_log_ends(arrived)):
            if (end := self._library.end_of(partition)) is not None:
                self._table.tell(LogEndFound(partition, end))

    def _find(self, partitions: Partitions) -> bool:
        """Find start offsets of ``partitions``, commit them with ``latest``; returns whether the group has answered."""
        answer = self._library.committed_offsets(partitions)
        self._find_ends(partitions - (answer or {}).keys())
        if answer is not None:
            self._table.tell(StartsFound({partition: answer.get(partition) for partition in partitions}))
            self._commit_ends(self._table.state.due_end_commits(partitions))
        self._ask_at = self._clock() + _RETRY_INTERVAL_S
        return answer is not None

    def _find_ends(self, partitions: Partitions) -> None:
        for partition in sorted(self._table.state.due_ends(partitions)):
            if (span := self._library.span_of(partition)) is None:
                return
            self._table.tell(EndsFound({partition: (span[1], span[1] - span[0])}))

    def _commit_ends(self, ends: Mapping[InputPartition, int]) -> None:
        if not ends:
            return
        refusal = self._commit(ends)
        self._record_commit(frozenset(ends), refusal)
        if refusal is not None:
            return
        for partition in ends:
            start = self._table.state.row(partition).start
            if start is not None and start.skipped_by_latest:
                self._skipped_by_latest[partition] = start.skipped_by_latest
        self._table.tell(StartsFound({partition: CommittedOffset(end, "") for partition, end in ends.items()}))

    def _record_answer(self, needed: Partitions, *, has_answered: bool) -> None:
        """Report every _REPORT_AFTER_S seconds that the group does not say where ``needed`` start."""
        if has_answered:
            self._unanswered.end()
        elif self._unanswered.is_to_be_reported(self._clock()):
            self._report(
                f"nothing of {format_partitions(needed)} is handed over: the group has not answered with a "
                f"stable committed offset for {_REPORT_AFTER_S:g} s or more. Either the cluster does not answer, or "
                "a transaction with offsets of this group is still open; the coordinator ends it at its "
                f"transaction.timeout.ms. The last answer was: {self._library.why_unanswered}"
            )

    def _record_commit(self, partitions: Partitions, refusal: str | None) -> None:
        """Report every _REPORT_AFTER_S seconds that the starts of ``partitions`` cannot be committed."""
        if refusal is None:
            self._uncommitted.end()
        elif self._uncommitted.is_to_be_reported(self._clock()):
            self._report(
                f"nothing of {format_partitions(partitions)} is handed over: with auto.offset.reset=latest the group's "
                "start is committed before the first record, and that has not been possible for "
                f"{_REPORT_AFTER_S:g} s or more. It is tried again. The last reason was: {refusal}"
            )
