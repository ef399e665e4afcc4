"""The open work of one consumer and one producer (KIP-447), as the loop, the blocks and the rebalance callbacks see it.

``core/transaction_lifecycle.py`` decides which step comes next; ``transaction_steps.py`` performs it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from eos_client import errors
from eos_client.clients.dead_letters import RecordKey, told_of
from eos_client.clients.refused_letters import RefusedLetters
from eos_client.clients.transaction_steps import NOTHING_WAS_SENT, WAIT_SLICE_S, Ending, TransactionSteps
from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.failures.client_failures import misplaced_call
from eos_client.confluent.failures.consumer_failures import leave_block
from eos_client.confluent.producer.confluent_producer import ConfluentProducer
from eos_client.confluent.producer.output_arguments import write_by
from eos_client.core.error_report import ErrorReport
from eos_client.core.model import InputPartition, InputPositions, Outcome, format_partitions, record_count
from eos_client.core.transaction_lifecycle import NEEDS_REBUILD, OUTCOME_PENDING, UNFINISHED, TransactionEvent
from eos_client.observe import Counters, EventHook, OutcomeResolved, RecordDeadLettered, TransactionAborted
from eos_client.ports import Clock, DeliveryCallback, MembershipSnapshot, OutputRecord, OverridableProducer

_ANSWER_WAIT_S = 5.0
_TO_BE_REPEATED = (
    errors.AbortableError,
    errors.RebuildProducerError,
    errors.RetriableError,
    errors.ClusterUnavailableError,
    *NOTHING_WAS_SENT,
)


class TransactionSession:
    """The open work of one consumer and one producer: at most one transaction, held across gate closures.

    Records that were handed over, and outputs that were written, are *in hand* until ``mark_processed`` is called: by a
    loop after each batch, by a ``with`` block at its end. A revocation commits the open transaction while nothing is in
    hand, and aborts it otherwise.
    """

    def __init__(
        self,
        consumer: ConfluentConsumer,
        producer: ConfluentProducer,
        facade: OverridableProducer,
        hook: EventHook,
        counters: Counters,
        clock: Clock,
        *,
        needs_resume: bool = False,
    ) -> None:
        """``facade``: the application's producer. ``needs_resume``: whether its last session did."""
        self.consumer = consumer
        self.producer = producer
        self._facade = facade
        self._hook = hook
        self._clock = clock
        self._steps = steps = TransactionSteps(
            consumer, producer, facade, hook, counters, clock, needs_resume=needs_resume
        )
        self.block, self.kept, self.under_way = steps.block, steps.kept, steps.under_way
        self.letters = RefusedLetters()
        self._given_up = False
        self.is_producer_closed = False

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._steps.lifecycle.has_begun

    @property
    def has_open_work(self) -> bool:
        """Whether a block with its producer is open, or a transaction, or the outcome of the last one is unknown."""
        return (self.block.is_open and not self.is_producer_closed) or self.is_open or self.is_unresolved

    @property
    def is_unresolved(self) -> bool:
        """Whether a commit was sent whose outcome is not known yet; `resolve_pending` asks for it."""
        return self._steps.lifecycle.phase in OUTCOME_PENDING

    @property
    def has_unreported_outcome(self) -> bool:
        """Whether a block that has ended does not know its outcome yet."""
        return self.needs_resume or self.block.leaving is not None

    @property
    def needs_resume(self) -> bool:
        """Whether an interrupted or failed step must be completed first."""
        return self._steps.lifecycle.phase in UNFINISHED

    @property
    def endings(self) -> tuple[int, int]:
        """How many transactions were committed and aborted; the application may change its ``Counters``."""
        return self._steps.commits, self._steps.aborts

    @property
    def in_hand(self) -> bool:
        """Whether there are records or outputs of which more outputs may follow."""
        return self._steps.outputs_in_hand or self.consumer.handed.work.in_hand

    @property
    def is_held(self) -> bool:
        """Whether the gate keeps the transaction open beyond its time."""
        return self._steps.decisions.is_held

    # -- work ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a transaction unless one is open.

        Raises TransactionStateError inside a step of ours that needs the state as it is: a callback of the producer, a
        hook or a signal handler may write while that step begins, commits or undoes a transaction.
        """
        if not self._steps.lifecycle.takes_outputs:
            self.under_way.refuse_within_a_step("an output is written")
            self._begin_anew()
        self._steps.outputs_in_hand = True

    def _begin_anew(self) -> None:
        ended = self._resume()
        if ended is not None and ended.outcome is Outcome.ABORTED:
            raise errors.AbortableError(f"{ended.reason} What was consumed since will be consumed again.")
        self.under_way.run_block_step(lambda: self.under_way.run_transaction_step(self._begin_unless_open))

    def _begin_unless_open(self) -> Ending:
        return self._steps.last if self.is_open else self._steps.perform(TransactionEvent.BEGIN)

    def mark_processed(self) -> None:
        """Record that everything handed over so far was processed, and that all its outputs were written."""
        self.consumer.handed.work.mark_processed()
        self._steps.outputs_in_hand = False

    def refuse_transaction_by_hand(self) -> None:
        """Raise TransactionStateError for a block while the application has a transaction of its own open."""
        if self.producer.calls.has_open_transaction and not self.is_open:
            raise misplaced_call(
                "a block while the transaction that begin_transaction() of "
                f"{self.producer.library.transactional_id!r} began is open: it would be torn apart. End it by "
                "commit_transaction() or abort_transaction() first"
            )

    def recognises_or_refuses(self, call: str) -> bool:
        """Return whether this session makes the transactional ``call`` itself; the gate has decided on it then.

        Raises TransactionStateError for a call of the application while our work is open.
        """
        if self.under_way.is_making(call):
            return True
        self.under_way.refuse_within_a_step(call)
        self.resolve_left_block()
        if self.has_open_work:
            if self.is_unresolved:
                raise misplaced_call(
                    f"{call} while the outcome of the last commit is unknown: enter the next block, which finds out"
                )
            where = "inside a block" if self.block.is_open else "while a block's transaction is held"
            raise misplaced_call(
                f"{call} {where}: producer.transaction(consumer) begins, sends the offsets, commits and aborts by "
                "itself. Leave the block, and enter the next one until its outcome is not SKIPPED"
            )
        return False

    def raw_produce(self) -> Callable[..., None]:
        """Begin, and return the quickest way to write simple outputs; ``count_outputs`` counts them."""
        self.begin()
        return self.producer.raw_produce

    def count_outputs(self, count: int) -> None:
        """Count ``count`` outputs that were written by ``raw_produce`` or by the application's producer."""
        self._steps.records_out += count

    def await_deliveries(self) -> None:
        """Wait until all outputs written so far are acknowledged or refused.

        Raises AbortableError after a time-out, ClusterUnfitError where one was refused because of this host's clock.
        """
        if self.is_open:
            self.producer.flush_outputs(self.producer.limits.commit_timeout_s)
            self.producer.calls.record_acknowledged_outputs()

    def enqueue(self, topic: str, record: OutputRecord, on_delivery: DeliveryCallback | None = None) -> None:
        """Write one output of any kind, which the application's producer counts.

        ``on_delivery`` gets its report, before the callback that the application may have set for all. Waits for room
        in the local queue. Raises OutputRefusedError for an invalid output, AbortableError without room in time.
        """
        self.begin()
        producer, facade = self.producer, self._facade
        if on_delivery is not None:
            on_delivery = producer.library.before_application_callback(on_delivery)
        limit_s = producer.limits.commit_timeout_s
        producer.await_room(facade.poll, limit_s, write_by, facade.produce, topic, record, on_delivery)

    def record_dead_letter(self, record: RecordKey, error: ErrorReport, topic: str) -> None:
        """Record that the open transaction holds a dead letter of ``record``, which is told when it is committed."""
        self._steps.dead_lettered[record] = RecordDeadLettered(**told_of(record, error), dead_letter_topic=topic)

    # -- the end -------------------------------------------------------------------------------------------------

    def end(self) -> Ending:
        """Commit, hold or abort what is open; all of it counts as processed now.

        Raises what the caller has to decide: fenced, unfit, fatal, unknown. What a callback of the application has
        raised meanwhile is raised when the outcome is in ``last``.
        """
        with self.producer.library.callback_errors.deferred():
            ended = self._resume()
            if ended is not None and (ended.outcome is Outcome.ABORTED or self._steps.is_idle):
                return ended
            self.mark_processed()
            self.kept.raise_failure()
            if self._steps.is_idle:
                self._steps.decisions.end_hold()
                self.under_way.run_transaction_step(self.producer.calls.drain_events)
                return self._steps.record_ending(Ending(Outcome.COMMITTED, "nothing to do"))
            if (failed := self.producer.calls.transaction_failure) is not None:
                return self.recover(failed)
            return self.under_way.run_transaction_step(lambda: self._steps.perform(TransactionEvent.END))

    def commit_starts(self, starts: InputPositions, snapshot: MembershipSnapshot) -> bool:
        """Commit start offsets in a transaction of their own; returns whether they were committed.

        Not possible while another transaction is open. If the commit fails, consumed records are treated as after an
        abort, and the group's offsets are read again to see whether it took effect. Raises errors that a retry cannot
        fix.
        """
        if self.is_open or self.has_unreported_outcome or self.under_way.is_working or self._given_up:
            return False
        try:
            with self.producer.library.callback_errors.deferred(keep_deferred=True):
                self.under_way.run_transaction_step(lambda: self._steps.commit_starts(starts, snapshot))
        except _TO_BE_REPEATED:
            return False
        return True

    # -- outcomes that are still unknown --------------------------------------------------------------------------

    def await_plain_commits(self) -> None:
        """Wait for commits that the application made itself, and record their offsets.

        A plain commit applied later would move the group's committed offsets backwards, and an abort would rewind to
        before the application's own commits.
        """
        until = self._clock() + min(_ANSWER_WAIT_S, self.producer.limits.commit_timeout_s)
        while self.consumer.plain.unanswered() and self._clock() < until:
            self.consumer.fetching.wait_while_paused(WAIT_SLICE_S)
            self.kept.raise_failure()
        # Before fence_commits() leaves the group: leaving drops work that is not recorded as committed.
        self.consumer.record_manual_commits(self.producer.limits.commit_timeout_s)
        self.consumer.fence_commits()
        self.kept.raise_failure()

    def leave_interrupted_block(self) -> None:
        """Begin to end a block whose ``__exit__`` was interrupted."""
        if self.block.is_interrupted and self._may_resolve:
            self.block.leave()

    def resolve_left_block(self) -> None:
        """Resolve the outcome of a block that was left, unless its end is under way."""
        self.leave_interrupted_block()
        if self.block.leaving is not None and self._may_resolve:
            self.resolve_pending()

    @property
    def _may_resolve(self) -> bool:
        return not (self.under_way.is_inside_a_step or self.producer.ownership.is_owned_by_other)

    def finish_leaving(self) -> None:
        """Finish leaving the block; an outcome that is still unknown is reported to the block later."""
        self.block.finish_leaving(self._steps.last.outcome, self._steps.last.reason)

    def resolve_pending(self) -> None:
        """Resolve the outcome of a commit, or of the end of a block, that is still unknown.

        No more records are handed over before that, because the outcome decides which record comes next. Raises what
        ``end`` raises; the next call tries again.
        """
        leaving = self.block.leaving
        if not self.needs_resume and leaving is None:
            return
        with self.producer.library.callback_errors.deferred():
            self._resume()
            if leaving is not None and self.block.leaving is leaving:
                if not leaving.is_reported:
                    self._abort_or_mark_broken(leaving.reason, lambda: self._steps.abort(leaving.reason))
                self.finish_leaving()

    def _resume(self, *, inside_revoke: bool = False) -> Ending | None:
        """Complete the interrupted step, if there is one."""
        if not self.needs_resume:
            return None
        ended = self.under_way.run_transaction_step(lambda: self._steps.resume(inside_revoke=inside_revoke))
        self.kept.failure = None  # what it left undone is resolved
        return ended

    # -- abort ---------------------------------------------------------------------------------------------------

    def abort(self, reason: str) -> Ending:
        """Abort what is open and rewind to the first uncommitted record."""
        with self.producer.library.callback_errors.deferred():
            self.kept.raise_failure()
            return self._undo(reason, lambda: self._steps.abort(reason))

    def _undo(self, reason: str, undo: Callable[[], Ending]) -> Ending:
        ended = self._resume()
        if ended is not None and ended.outcome is Outcome.ABORTED:
            return ended
        if ended is not None and self._steps.is_idle:
            # The resumed step committed everything before this abort; the block itself still counts as aborted.
            return self._steps.record_ending(Ending(Outcome.ABORTED, reason))
        return self._abort_or_mark_broken(reason, undo)

    def _abort_or_mark_broken(self, reason: str, undo: Callable[[], Ending]) -> Ending:
        """Run ``undo``. Even if it fails, nothing of the transaction is committed and its records are read again."""
        try:
            return self.under_way.run_transaction_step(undo)
        except errors.EosError as error:
            ending = Ending(Outcome.ABORTED, f"{reason}; and the abort failed: {error}")
            self._steps.mark_broken(ending, inside_revoke=False)
            raise

    def end_failed(self, failure: BaseException) -> Ending:
        """Abort what is open because of ``failure``, which was raised while work was being added."""
        self.kept.raise_failure()
        raised = f"the block raised {errors.text_of(failure)}"
        if not self.needs_resume and self._steps.is_idle:  # ended in a rebalance callback, and reported there
            self._steps.clear_work()
            reason = str(failure) if isinstance(failure, errors.EosError) else raised
            ending = self._steps.record_ending(Ending(Outcome.ABORTED, reason))
            if isinstance(failure, errors.ClientClosedError):
                raise failure
            return ending
        if isinstance(failure, (errors.AbortableError, errors.RebuildProducerError)):
            return self.recover(failure)
        return self.abort(raised)

    def give_up(self, reason: str) -> None:
        """Abort before the clients are closed, without a rebuild or a rewind.

        A commit whose outcome is unknown is not aborted. Raises what the abort raised; then the coordinator's time-out,
        or the next instance, ends the transaction.
        """
        self._given_up = True
        if self.is_unresolved:
            self._leave_unknown(reason)
        elif self.is_open:
            self._steps.clear_work()
            try:
                self.under_way.run_transaction_step(self._steps.abort_for_good)
            finally:
                records_in = record_count(self.consumer.positions)
                self._steps.count_aborted(TransactionAborted(reason=reason, rule=None, records_in=records_in))

    def prepare_consumer_close(self) -> None:
        """Record that the consumer is about to be closed: no outcome can be read by it any more."""
        self.leave_interrupted_block()
        if self.is_unresolved:
            self._leave_unknown("the consumer was closed")
            self._given_up = True
            self._steps.give_up()
        else:
            with suppress(errors.EosError):  # which is reported to the block
                self.resolve_left_block()

    def prepare_producer_close(self) -> None:
        """Record that the producer is about to be closed: no outcome can be resolved with it any more."""
        self.is_producer_closed = True
        self.leave_interrupted_block()
        self.finish_leaving()
        leaving = self.block.leaving
        has_work = not (self._given_up or self._steps.is_idle)
        if self.is_unresolved:
            self._leave_unknown("the producer was closed")
        elif leaving is not None:
            self._abort_for_closing(f"{leaving.reason}, and the producer was closed", is_counted=has_work)
        elif has_work and self.block.is_open:
            self._abort_for_closing("the producer was closed inside its block")
        elif has_work and self.is_open:
            self._abort_for_closing("the producer was closed while the gate held the transaction")

    def _abort_for_closing(self, reason: str, *, is_counted: bool = True) -> None:
        try:
            self.under_way.run_transaction_step(self._steps.abort_for_good if self.is_open else self._steps.give_up)
        except errors.EosError as error:
            reason = f"{reason}, and the coordinator aborts it when its time is over: {error}"
        aborted = self._steps.record_abort(reason, inside_revoke=True)
        self.finish_leaving()
        if is_counted:
            self._steps.count_aborted(aborted)

    def _leave_unknown(self, reason: str) -> None:
        if why := self._steps.record_left_unknown(reason):
            self._hook(OutcomeResolved(outcome="unknown", reason=why))
            self.block.report_outcome(None, why)

    def recover(self, error: errors.AbortableError | errors.RebuildProducerError) -> Ending:
        """Recover as the class of ``error`` demands; it was raised while work was being added."""
        with self.producer.library.callback_errors.deferred():
            self.kept.raise_failure()
            return self._undo(str(error), lambda: self._steps.recover(error))

    # -- inside the rebalance callbacks (a part of RevocationWork); nothing here raises --------------------------------

    def commit_before_revoke(self, partitions: frozenset[InputPartition]) -> None:
        """Commit the whole transaction if it covers a departing partition: one transaction cannot be split.

        With anything in hand it is aborted instead. Records that were taken outside a block and while no transaction
        was open have no outputs yet and stay uncommitted (NOT_OURS).
        """
        covered = partitions & self.consumer.positions.keys()
        if not covered or self._given_up:
            return
        if self.needs_resume:
            self._resume_before_revoke()
        elif not self.in_hand:
            ending = self._keeping_failure(lambda: self._steps.perform(TransactionEvent.REVOKED, inside_revoke=True))
            if ending is not None and ending.outcome is Outcome.ABORTED:
                self._fail_block(f"the held transaction was aborted in a rebalance: {ending.reason}")
        elif self.has_open_work:
            self._abort_for_rebalance(f"a rebalance took {format_partitions(covered)} with unprocessed records")

    def on_callback_failed(self, partitions: frozenset[InputPartition], reason: str) -> None:
        """Abort the whole transaction if it covers a departing partition."""
        if partitions.isdisjoint(self.consumer.positions) or self._given_up:
            return
        if self.needs_resume:
            self._resume_before_revoke()
        else:
            self._abort_for_rebalance(reason)

    def _resume_before_revoke(self) -> None:
        """Find out what became of a commit, which the next owner's would hide. An abort ends in its own step."""
        if self._steps.lifecycle.phase not in NEEDS_REBUILD:
            self._keeping_failure(lambda: self._resume(inside_revoke=True))

    def on_departed(self, partitions: frozenset[InputPartition]) -> None:
        """Keep the positions of ``partitions``: the gate needs them to abort the transaction that contains them."""
        gone = partitions & self.consumer.positions.keys()
        if gone and self.has_open_work and not self.is_unresolved:
            self._fail_block(f"{format_partitions(gone)} left with records of the open transaction")

    def _abort_for_rebalance(self, reason: str) -> None:
        if not self.block.is_open:  # a block aborts by itself, as soon as the error has left it
            self._keeping_failure(lambda: self._steps.abort(reason, inside_revoke=True))
        self._fail_block(reason)

    def _fail_block(self, reason: str) -> None:
        if self.under_way.is_working:  # the end of a block, which reports the outcome of its own work
            return
        self.block.fail(
            leave_block(
                f"{reason}. Let this error leave the block: it ends as ABORTED, and what is still ours of its "
                "records is consumed again."
            ),
            quietly=True,
        )

    def _keeping_failure(self, act: Callable[[], Ending | None]) -> Ending | None:
        try:
            with self.producer.library.callback_errors.deferred(keep_deferred=True):
                return self.under_way.run_transaction_step(act)
        except errors.EosError as error:
            self.kept.failure = error
            if not self.is_unresolved and not isinstance(error, errors.UnknownOutcomeError):
                self._steps.mark_broken(None, inside_revoke=True)
            return None
