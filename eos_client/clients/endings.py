"""Reports the ends of a session's transactions to the block that waits, the counters and the hook."""

from __future__ import annotations

from eos_client.clients.block_state import BlockState
from eos_client.clients.dead_letters import UNKNOWN_HANDLING, RecordKey, event_fields
from eos_client.clients.step_state import Ending
from eos_client.core.error_report import ErrorReport
from eos_client.core.model import Outcome
from eos_client.observe import (
    ClientReported,
    Counters,
    EventHook,
    OutcomeResolved,
    RecordDeadLettered,
    TransactionAborted,
    TransactionCommitted,
)


class Endings:
    """The last ending, the totals, and the events of the open transaction, which are emitted once it has ended.

    ``commits`` and ``aborts`` count those of this session; the application may change its ``Counters``.
    """

    def __init__(self, block: BlockState, hook: EventHook, counters: Counters) -> None:
        self._block = block
        self._hook = hook
        self._counters = counters
        self._dead_lettered: dict[RecordKey, RecordDeadLettered] = {}
        self._due_event: TransactionCommitted | TransactionAborted | None = None
        self.last = Ending(Outcome.COMMITTED, "nothing was done yet")
        self.forced: Ending | None = None
        """How a revocation has ended the work; None again after the next end that was asked for."""
        self.commits = self.aborts = 0

    def record(self, ending: Ending) -> Ending:
        """Record how an attempt ended, and report it to the block that waits."""
        self.last, self.forced = ending, None
        self._block.report_outcome(ending.outcome, ending.reason)
        return ending

    def take_forced(self) -> Ending | None:
        """Return, once, how a revocation has ended the work since the last end that was asked for."""
        forced, self.forced = self.forced, None
        return forced

    def record_dead_letter(self, record: RecordKey, error: ErrorReport, topic: str) -> None:
        """Record that the open transaction holds a dead letter of ``record``; the commit emits its event."""
        self._dead_lettered[record] = RecordDeadLettered(**event_fields(record, error), dead_letter_topic=topic)

    def keep_until_emitted(self, ended: TransactionCommitted | TransactionAborted) -> None:
        """Keep the event of an end; the first one stays, because it was made before the work was cleared."""
        self._due_event = self._due_event or ended

    def emit(self) -> None:
        """Count the last end and emit its event, unless that was done."""
        ended, self._due_event = self._due_event, None
        if isinstance(ended, TransactionCommitted):
            self._count_committed(ended)
        elif ended is not None:
            self.count_aborted(ended)

    def _count_committed(self, committed: TransactionCommitted) -> None:
        """Count a commit and the dead letters that it holds, and emit their events."""
        self.commits += 1
        self._counters.committed += 1
        self._counters.records_in += committed.records_in
        self._counters.records_out += committed.records_out
        self._counters.generation_id = committed.generation.generation_id
        self._hook(committed)
        for letter in self._take_dead_lettered():
            self._counters.records_failed += 1
            self._hook(letter)

    def count_aborted(self, aborted: TransactionAborted) -> None:
        """Count an abort and emit its event."""
        self.aborts += 1
        self._dead_lettered.clear()
        self._counters.aborted += 1
        self._hook(aborted)

    def count_skipped(self) -> None:
        """Count a commit that the gate has skipped."""
        self._counters.skipped += 1

    def emit_left_unknown(self, why: str) -> None:
        """Emit, and report to the block, that the outcome of the last commit stays unknown."""
        for letter in self._take_dead_lettered():
            self._hook(ClientReported(client="producer", error=f"{UNKNOWN_HANDLING}{letter}"))
        self._hook(OutcomeResolved(outcome="unknown", reason=why))
        self._block.report_outcome(None, why)

    def _take_dead_lettered(self) -> list[RecordDeadLettered]:
        letters, self._dead_lettered = self._dead_lettered, {}
        return list(letters.values())
