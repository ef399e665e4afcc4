"""Where a commit is performed: flush, serve callbacks, ask the gate, snapshot, send offsets, commit.

That order keeps the window in which a silent epoch bump refuses the commit as short as librdkafka allows. One session
joins one consumer and one producer (KIP-447); while the gate is closed its transaction stays open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eos_client.clients.gate_attempts import GateAttempts
from eos_client.clients.recovery_trace import RecoveryTrace
from eos_client.clients.unknown_outcome import ask_the_log
from eos_client.core.commit_gate import (
    CommitDecision,
    CommitGate,
    CommitRuling,
    GatePolicy,
    WorkSettled,
)
from eos_client.core.model import InputPartition, Outcome, record_count
from eos_client.errors import AbortableError, EosError, RebuildProducerError, UnknownOutcomeError
from eos_client.observe import (
    Counters,
    EventHook,
    TransactionAborted,
    TransactionCommitted,
    log_event,
)
from eos_client.ports import Clock, GroupConsumer, MembershipSnapshot, OutputRecord, TransactionalProducer

_BLOCK_SLICE_S = 0.02


@dataclass(frozen=True, slots=True)
class Ending:
    """How one attempt to end a transaction came out. ``row``: the gate's row, 0 when the gate was not the reason."""

    outcome: Outcome
    reason: str
    row: int = 0


class TransactionSession:
    """The open work of one consumer and one producer: at most one transaction, held across gate closures."""

    def __init__(
        self,
        consumer: GroupConsumer,
        producer: TransactionalProducer,
        *,
        clock: Clock,
        hook: EventHook = log_event,
        counters: Counters | None = None,
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._gate: CommitGate = consumer.gate
        self._hook = hook
        self._clock = clock
        self.counters = counters or Counters()
        self.active = False
        self.last = Ending(Outcome.COMMITTED, "nothing was done yet")
        self._open = False
        self._records_out = 0
        self._attempts = GateAttempts(consumer, hook, clock)
        self._trace = RecoveryTrace(producer, hook, self.counters, clock)
        self._failure: EosError | None = None

    def joins(self, consumer: GroupConsumer) -> bool:
        """Whether this session is the one of ``consumer``."""
        return self._consumer is consumer

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._open

    @property
    def is_held(self) -> bool:
        """Whether the gate keeps the transaction open beyond its time."""
        return self._attempts.is_held

    @property
    def commits_when_generation_moves(self) -> bool:
        """Whether a held transaction is tried again at once, not at its next interval."""
        return self._gate.settings.policy is GatePolicy.HOLD

    # -- work ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a transaction unless one is open."""
        if not self._open:
            self._producer.begin_transaction()
            self._open = True

    def outlet(self) -> Callable[..., None]:
        """Begin, and return the quickest way to write simple outputs; ``wrote`` counts them."""
        self.begin()
        return self._producer.outlet

    def wrote(self, count: int) -> None:
        """Count ``count`` outputs that were written."""
        self._records_out += count

    def serve_deliveries(self) -> None:
        """Let go of what was acknowledged, soon: memory that is used again at once is still in the cache."""
        self._producer.poll(0)

    def produce(self, topic: str, record: OutputRecord) -> None:
        """Write one output inside the transaction."""
        self.enqueue(topic, record)
        self.wrote(1)

    def enqueue(self, topic: str, record: OutputRecord) -> None:
        """Write one output of any kind, without counting it; ``wrote`` does."""
        self.begin()
        self._producer.enqueue(topic, record)

    # -- the end -------------------------------------------------------------------------------------------------

    def end(self) -> Ending:
        """Commit, hold or abort what is open. Raises what the caller has to decide: fenced, unfit, fatal, unknown."""
        self._raise_failure()
        if not self._open and not self._consumer.positions:
            self._attempts.ended()
            return Ending(Outcome.COMMITTED, "nothing to do")
        try:
            self.last = self._end()
        except UnknownOutcomeError:
            self._consumer.rewind()
            self._settled()
            raise
        return self.last

    def _end(self) -> Ending:
        began_at, before = self._clock(), self.last
        failed = self._flush()
        if failed is not None:
            return failed
        self._consumer.serve_callbacks()  # serves callbacks, too; a single record would be the whole of the next batch
        self._raise_failure()
        if self.last is not before:  # a revocation ended it meanwhile
            return self.last
        ruling, snapshot = self._rule()
        if self.last is not before:
            return self.last
        return self._obey(ruling, snapshot, began_at)

    def _flush(self, *, inside_revoke: bool = False) -> Ending | None:
        """Wait for the outputs; returns how the transaction ended when they did not get through."""
        before = self.last
        meanwhile = None if inside_revoke else self._consumer.prefetch
        try:
            self._producer.flush_outputs(self._producer.limits.commit_timeout_s, meanwhile)
        except (AbortableError, RebuildProducerError) as error:
            return self._recover(error, inside_revoke=inside_revoke) if self.last is before else self.last
        return None

    def _obey(self, ruling: CommitRuling, snapshot: MembershipSnapshot, began_at: float) -> Ending:
        if ruling.decision is CommitDecision.COMMIT:
            return self._commit(snapshot, began_at, ruling, inside_revoke=False)
        if ruling.decision is CommitDecision.ABORT:
            return self._abort(ruling.reason, ruling.row)
        return self._hold(ruling, snapshot)

    def _rule(self) -> tuple[CommitRuling, MembershipSnapshot]:
        """Ask the gate until it gives a verdict; serving callbacks may end the transaction meanwhile."""
        before = self.last

        def stands() -> bool:
            self._raise_failure()
            return self.last is before

        ruling, snapshot = self._attempts.verdict(lambda: self._consumer.positions, stands)
        if ruling.decision is CommitDecision.SKIP and self._gate.settings.policy is GatePolicy.BLOCK:
            return self._block(ruling, snapshot)
        return ruling, snapshot

    def _block(self, ruling: CommitRuling, snapshot: MembershipSnapshot) -> tuple[CommitRuling, MembershipSnapshot]:
        """Stay in poll until the gate opens; its hold limit ends this (row 7)."""
        before = self.last
        self._hold(ruling, snapshot)
        self.last = before
        while ruling.decision in {CommitDecision.SKIP, CommitDecision.SERVE_CALLBACKS} and self.last is before:
            if ruling.decision is CommitDecision.SKIP:
                self._consumer.wait_while_paused(_BLOCK_SLICE_S)
            else:
                self._consumer.serve_callbacks(drain=True)
            self._raise_failure()
            ruling, snapshot = self._attempts.ask(self._consumer.positions)
        return ruling, snapshot

    def _hold(self, ruling: CommitRuling, snapshot: MembershipSnapshot) -> Ending:
        self.counters.skipped += 1
        self._attempts.skipped(ruling, snapshot)
        return Ending(Outcome.SKIPPED, ruling.reason, ruling.row)

    def _commit(
        self, snapshot: MembershipSnapshot, began_at: float, ruling: CommitRuling, *, inside_revoke: bool
    ) -> Ending:
        positions = dict(self._consumer.positions)
        timeout_s = self._producer.limits.commit_timeout_s
        try:
            self.begin()
            if positions:
                self._producer.send_offsets(positions, snapshot, timeout_s)
            self._producer.commit_transaction(timeout_s)
        except UnknownOutcomeError as error:
            self.counters.outcomes_resolved += 1
            self._trace.failed(error)
            outcome = ask_the_log(self._consumer, self._producer, positions, error, self._hook, self._clock)
            if self._trace.resolved(outcome) is Outcome.ABORTED:
                self._open = False
                return self._abort(str(error), inside_revoke=inside_revoke)
        except (AbortableError, RebuildProducerError) as error:
            return self._recover(error, inside_revoke=inside_revoke)
        records_in = record_count(positions)
        self.counters.committed += 1
        self.counters.records_in += records_in
        self.counters.records_out += self._records_out
        self.counters.generation_id = snapshot.generation.generation_id
        self._hook(
            TransactionCommitted(
                records_in=records_in,
                records_out=self._records_out,
                duration_s=self._clock() - began_at,
                generation=snapshot.generation,
                inside_revoke=inside_revoke,
            )
        )
        self._consumer.settle()
        self._settled()
        self._trace.committed()
        return Ending(Outcome.COMMITTED, ruling.reason, ruling.row)

    # -- abort ---------------------------------------------------------------------------------------------------

    def abort(self, reason: str) -> Ending:
        """Abort what is open and rewind to the first uncommitted record."""
        self._raise_failure()
        self.last = self._abort(reason)
        return self.last

    def give_up(self, reason: str) -> None:
        """Abort on the way out: nothing is rebuilt and nothing rewound, because nothing will be read any more.

        Raises what the abort raised; then the coordinator's time-out, or the next instance, ends the transaction.
        """
        if self._open:
            self._settled()
            self.counters.aborted += 1
            self._hook(TransactionAborted(reason=reason, row=0, records_in=record_count(self._consumer.positions)))
            self._producer.abort_transaction(self._producer.limits.commit_timeout_s)

    def _abort(self, reason: str, row: int = 0, *, inside_revoke: bool = False) -> Ending:
        try:
            if self._open:
                self._producer.abort_transaction(self._producer.limits.commit_timeout_s)
        except RebuildProducerError as error:
            return self._recover(error, inside_revoke=inside_revoke)
        self._rewind(inside_revoke=inside_revoke, reason=reason, row=row)
        return Ending(Outcome.ABORTED, reason, row)

    def _recover(self, error: AbortableError | RebuildProducerError, *, inside_revoke: bool = False) -> Ending:
        self._trace.failed(error)
        if isinstance(error, RebuildProducerError):
            return self._start_over(error, inside_revoke=inside_revoke)
        return self._abort(str(error), inside_revoke=inside_revoke)

    def _start_over(self, error: RebuildProducerError, *, inside_revoke: bool = False) -> Ending:
        """Replace the handle: no commit was sent, so init_transactions aborts whatever is open."""
        self._open = False
        self._producer.rebuild()
        self._rewind(inside_revoke=inside_revoke, reason=str(error), row=0)
        return Ending(Outcome.ABORTED, str(error))

    def _rewind(self, *, inside_revoke: bool, reason: str, row: int) -> None:
        records_in = record_count(self._consumer.positions)
        if inside_revoke:
            self._consumer.rewind_soon()
        else:
            self._consumer.rewind()
        self._settled()
        self.counters.aborted += 1
        self._hook(TransactionAborted(reason=reason, row=row, records_in=records_in))

    def _settled(self) -> None:
        self._gate.observe(WorkSettled())
        self._open = False
        self._records_out = 0
        self._attempts.ended()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def recover(self, error: AbortableError | RebuildProducerError) -> Ending:
        """Do what ``error``, raised while work was being added, is named for."""
        self._raise_failure()
        self.last = self._recover(error)
        return self.last

    # -- inside the rebalance callbacks (RevocationWork); nothing here raises --------------------------------------

    def snapshot(self) -> MembershipSnapshot:
        """Read the group metadata now."""
        return self._consumer.snapshot()

    def uncommitted(self) -> frozenset[InputPartition]:
        """Return the partitions whose consumed records are not committed."""
        return frozenset(self._consumer.positions)

    def commit_before_revoke(self, partitions: frozenset[InputPartition]) -> None:
        """Commit the whole transaction if it covers a departing partition: one transaction cannot be split.

        What an earlier ``consume`` returned counts as processed when ``consume`` is called again; records taken
        outside a transaction have no outputs yet and stay uncommitted (row 4).
        """
        if (self._open or self.active) and not partitions.isdisjoint(self._consumer.positions):
            self._keeping_failure(self._commit_inside_revoke)

    def abort_before_revoke(self, partitions: frozenset[InputPartition], reason: str) -> None:
        """Abort the whole transaction if it covers a departing partition."""
        if not partitions.isdisjoint(self._consumer.positions):
            self._keeping_failure(lambda: self._abort(reason, inside_revoke=True))

    def departed(self, partitions: frozenset[InputPartition]) -> None:
        """Keep their positions: the gate still needs them to abort the transaction they are in."""

    def _commit_inside_revoke(self) -> Ending:
        began_at = self._clock()
        failed = self._flush(inside_revoke=True)
        if failed is not None:
            return failed
        ruling, snapshot = self._attempts.ask(self._consumer.positions)
        if ruling.decision is CommitDecision.COMMIT:
            return self._commit(snapshot, began_at, ruling, inside_revoke=True)
        return self._abort(ruling.reason, ruling.row, inside_revoke=True)

    def _keeping_failure(self, act: Callable[[], Ending]) -> None:
        try:
            self.last = act()
        except EosError as error:
            self._failure = error
            self._settled()
            self._consumer.rewind_soon()
