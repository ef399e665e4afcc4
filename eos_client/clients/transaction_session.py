"""The session of one consumer and one producer (KIP-447): it owns their open work and every step of its transaction.

``core/transaction_lifecycle.py`` decides which step comes next; the session performs it. The order of a commit is
flush, serve callbacks, ask the gate, send offsets, commit: it keeps the window in which a silent epoch bump refuses the
commit as short as librdkafka allows. The loop, the blocks and the rebalance callbacks ask for these steps.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TypeVar

from eos_client import errors
from eos_client.clients.block_state import BlockState
from eos_client.clients.call_guard import CallGuard, beside_open_work
from eos_client.clients.callback_failure import CallbackFailure
from eos_client.clients.commit_decisions import CommitDecisions
from eos_client.clients.commit_outcomes import CommitOutcomes, undeterminable_outcome
from eos_client.clients.endings import Endings
from eos_client.clients.long_steps import EndedMeanwhileError, while_polling
from eos_client.clients.refused_letters import LettersOfBlocks
from eos_client.clients.step_state import AttemptedOffsets, Ending, StepState, needed
from eos_client.clients.transaction_outputs import TransactionOutputs
from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.failures.consumer_failures import leave_block
from eos_client.confluent.producer.confluent_producer import ConfluentProducer, offsets_to_send
from eos_client.confluent.serialisation import Serializers
from eos_client.core.commit_gate import CommitDecision, CommitRuling, WorkEnded
from eos_client.core.forced_ends import (
    ForcedEnd,
    WorkFacts,
    end_after_failed_callback,
    end_at_departure,
    end_at_revocation,
)
from eos_client.core.model import (
    InputPartition,
    InputPositions,
    Outcome,
    Partitions,
    UnexpectedEventError,
    format_partitions,
    record_count,
)
from eos_client.core.outcome_resolution import AttemptToken
from eos_client.core.transaction_lifecycle import (
    Act,
    Phase,
    TransactionEvent,
    TransactionLifecycle,
    TransactionState,
)
from eos_client.observe import Counters, EventHook, TransactionAborted, TransactionCommitted
from eos_client.ports import Clock, MembershipSnapshot

T = TypeVar("T")

_START_IS_REPEATED = (
    errors.AbortableError,  # the group or a broker has refused the offsets now
    errors.RebuildProducerError,  # another handle commits them
    errors.UnknownOutcomeError,  # the group's offsets show whether they were committed
    errors.TransactionStateError,  # the application has not called init_transactions(): the next call does that
    errors.WrongThreadError,  # another thread uses the producer at this moment
)
"""After these, ``commit_starts`` is called again with the next records."""


class TransactionSession:
    """The open work of one consumer and one producer: at most one transaction, held across gate closures.

    Records that were handed over, and outputs that were written, are *unprocessed* until ``mark_processed`` is called:
    by a loop after each batch, by a ``with`` block at its end. A revocation commits the open transaction while nothing
    is unprocessed, and aborts it otherwise.
    """

    def __init__(
        self,
        consumer: ConfluentConsumer,
        producer: ConfluentProducer,
        serializers: Serializers | None,
        hook: EventHook,
        counters: Counters,
        clock: Clock,
        *,
        needs_resume: bool = False,
    ) -> None:
        """Begin with nothing open. ``serializers``: the producer's. ``needs_resume``: whether its last session did."""
        self.consumer = consumer
        self.producer = producer
        self._clock = clock
        self.block = BlockState()
        self.call_guard = CallGuard(consumer, producer)
        self.endings = Endings(self.block, hook, counters)
        self.letters = LettersOfBlocks()
        self._lifecycle = TransactionLifecycle(is_broken=needs_resume)
        self.outputs = TransactionOutputs(producer, serializers, self._lifecycle, self._begin_for_output)
        self.steps = StepState(clock())
        self._token = AttemptToken(secrets.token_hex(6))
        self._decisions = CommitDecisions(consumer, hook, clock, of_transaction=True)
        self._outcomes = CommitOutcomes(consumer, producer, hook, counters, clock)
        self._acts = self._methods_by_act()
        self.callback_failure = CallbackFailure()
        self._is_closing = False
        self.is_over = False
        """Whether the producer was closed, or serves another consumer."""

    # -- what is open ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> TransactionState:
        """Where the transaction is in its life."""
        return self._lifecycle.state

    @property
    def has_open_work(self) -> bool:
        """Whether a block is open, or a transaction, or work is held, or the outcome of the last one is unknown."""
        is_in_use = self.facts().has_begun and not self.is_over
        return is_in_use or self.state.has_begun or self.state.outcome_is_pending

    def facts(self, partitions: Partitions | None = None) -> WorkFacts:
        """Return what is true of the open work, whose records are those of ``partitions``; None: of all."""
        positions = self.consumer.positions.keys()
        return WorkFacts(
            transaction=self.state,
            has_records=bool(positions if partitions is None else partitions & positions),
            is_unprocessed=self.has_unprocessed_work,
            in_block=self.block.is_open,
            is_leaving_block=self.block.leaving is not None,
            is_held=self.is_held and not self.consumer.membership.state.is_closed,
            is_abort_unfinished=self.state.needs_rebuild and bool(self.steps.abort_reason),
            is_closing=self._is_closing,
        )

    @property
    def has_unfinished_end(self) -> bool:
        """Whether an end was interrupted that both clients can still finish: the rewind may be due, or its report."""
        return self._has_unreported_end and not (self.is_over or self.consumer.membership.state.is_closed)

    def take_failure_of_next_block(self) -> bool:
        """Return, once, whether the application may hold records that come again, which the next block must not write.

        The close of the producer, or a rebalance, has failed the block that would come next.
        """
        is_failed = self.block.failure is not None and not self.block.is_open
        if is_failed:
            self.block.failure = None
        return self.callback_failure.forget() or is_failed

    def begin_closing(self) -> None:
        """Commit no start offsets any more: a client is about to be closed."""
        self._is_closing = True

    def tell(self, event: TransactionEvent) -> None:
        """Apply an ``event`` of a close, which asks for no further step."""
        self._lifecycle.tell(event)

    def end_service(self) -> None:
        """Take no further step: the producer serves another consumer."""
        self.is_over = True

    @property
    def has_unprocessed_work(self) -> bool:
        """Whether there are records or outputs of which more outputs may follow."""
        return self.outputs.are_unfinished or self.consumer.has_unprocessed_records

    @property
    def is_held(self) -> bool:
        """Whether the gate has skipped a commit of the open work, to which more may have been added since."""
        return self._decisions.is_held

    @property
    def _has_unreported_end(self) -> bool:
        """Whether a step was interrupted, or a block that was left does not know its outcome yet."""
        return self.state.needs_resume or self.block.leaving is not None

    @property
    def _has_nothing_to_end(self) -> bool:
        return not (self.state.has_begun or self.consumer.positions or self.is_held)

    # -- work --------------------------------------------------------------------------------------------------------

    def _begin_for_output(self) -> None:
        """Complete an interrupted step, and begin. Raises what `TransactionOutputs.begin` does."""
        self.call_guard.refuse_within_a_step("an output is written")
        ended = self._resume()
        if ended is not None and ended.outcome is Outcome.ABORTED:
            raise errors.AbortableError(f"{ended.reason} What was consumed since will be consumed again.")
        self.call_guard.run_block_step(lambda: self.call_guard.run_transaction_step(self._begin_unless_open))

    def _begin_unless_open(self) -> None:
        if not self.state.has_begun:
            self._perform(TransactionEvent.BEGIN)

    def mark_processed(self) -> None:
        """Record that everything handed over so far was processed, and that all its outputs were written."""
        self.consumer.mark_processed()
        self.outputs.are_unfinished = False

    def refuse_call_by_hand(self, call: str) -> None:
        """Raise TransactionStateError for a transactional ``call`` of the application while our work is open."""
        self.call_guard.refuse_within_a_step(call)
        self.resolve_left_block()
        if self.has_open_work:
            raise beside_open_work(call, self.facts())

    # -- the end -----------------------------------------------------------------------------------------------------

    def end(self) -> Ending:
        """Commit, hold or abort what is open; all of it counts as processed now.

        Raises what the caller has to decide: fenced, unfit, fatal, unknown. What a callback of the application has
        raised meanwhile is raised when the outcome is in ``endings.last``.
        """
        with self.producer.library.callback_errors.deferred():
            ended = self._resume()
            if ended is not None and (ended.outcome is Outcome.ABORTED or self._has_nothing_to_end):
                return ended
            self.mark_processed()
            self.callback_failure.raise_once()
            if self._has_nothing_to_end:
                self.call_guard.run_transaction_step(self.producer.calls.drain_events)
                return self.endings.record(Ending(Outcome.COMMITTED, "nothing to do"))
            return self.call_guard.run_transaction_step(lambda: self._perform(TransactionEvent.END))

    def abort(self, reason: str) -> Ending:
        """Abort what is open and rewind to the first uncommitted record."""
        return self._undo(reason, self._aborting(reason))

    def _aborting(self, reason: str, *, inside_revoke: bool = False) -> Callable[[], Ending]:
        return lambda: self._perform(TransactionEvent.ABORT, inside_revoke=inside_revoke, reason=reason)

    def recover(self, failure: errors.AbortableError | errors.RebuildProducerError) -> Ending:
        """Recover as the class of ``failure`` demands; it was raised while work was being added."""
        steps = StepState(self._clock())
        return self._undo(str(failure), lambda: self._run(steps.fail(failure), steps))

    def _undo(self, reason: str, undo: Callable[[], Ending]) -> Ending:
        with self.producer.library.callback_errors.deferred():
            self.callback_failure.raise_once()
            ended = self._resume()
            if ended is not None and ended.outcome is Outcome.ABORTED:
                return ended
            if ended is not None and self._has_nothing_to_end:
                # The resumed step committed everything before this abort; the block itself still counts as aborted.
                return self.endings.record(Ending(Outcome.ABORTED, reason))
            return self._abort_or_mark_broken(reason, undo)

    def _abort_or_mark_broken(self, reason: str, undo: Callable[[], Ending]) -> Ending:
        """Run ``undo``. Even if it fails, nothing of the transaction is committed and its records are read again."""
        try:
            return self.call_guard.run_transaction_step(undo)
        except errors.EosError as error:
            self.rewind(inside_revoke=False)
            self.endings.record(Ending(Outcome.ABORTED, f"{reason}; and the abort failed: {error}"))
            self._lifecycle.tell(TransactionEvent.ABORT_FAILED)  # where it has not even begun, a handler has raised
            raise

    def end_failed(self, failure: BaseException) -> Ending:
        """Abort what is open because of ``failure``, which was raised while work was being added."""
        self.callback_failure.raise_once()
        raised = f"the block raised {errors.text_of(failure)}"
        if not self.state.needs_resume and self._has_nothing_to_end:  # ended in a rebalance callback, reported there
            self._clear_work()
            reason = str(failure) if isinstance(failure, errors.EosError) else raised
            ending = self.endings.record(Ending(Outcome.ABORTED, reason))
            if isinstance(failure, errors.ClientClosedError):
                raise failure
            return ending
        if isinstance(failure, errors.LeaveBlockError):  # of a rebalance, which is no failure of the producer
            return self.abort(str(failure))
        if isinstance(failure, (errors.AbortableError, errors.RebuildProducerError)):
            return self.recover(failure)
        return self.abort(raised)

    def commit_starts(self, starts: InputPositions, snapshot: MembershipSnapshot) -> str | None:
        """Commit start offsets in a transaction of their own; returns why that has to be repeated.

        Not possible while another transaction is open, or with a closed producer. If the commit fails, consumed records
        are treated as after an abort, and the group's offsets are read again to see whether it took effect. Raises
        errors that a retry cannot fix.
        """
        is_in_transaction = self.state.has_begun or self.producer.calls.state.is_in_transaction
        is_closed = self._is_closing or self.is_over
        if is_closed or is_in_transaction or self._has_unreported_end or self.call_guard.is_working:
            return "the producer was closed" if is_closed else "another transaction is open, or is being ended"
        self._token = self._token.next()
        sent = AttemptedOffsets(starts, {}, snapshot, self._token, inside_revoke=False)
        steps = StepState(self._clock(), inside_fetch=True, attempted=sent)
        try:
            with self.producer.library.callback_errors.deferred(until_later=True):
                self.call_guard.run_transaction_step(lambda: self._run(TransactionEvent.COMMIT_STARTS, steps))
        except _START_IS_REPEATED as error:
            steps.abort_reason = f"the start offsets were not committed: {error}"
            return str(error)
        return None

    # -- outcomes that are still unknown -----------------------------------------------------------------------------

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
        return not (self.call_guard.is_inside_a_step or self.producer.ownership.is_owned_by_other)

    def finish_leaving(self) -> None:
        """Finish leaving the block; an outcome that is still unknown is reported to the block later."""
        self.block.finish_leaving(self.endings.last.outcome, self.endings.last.reason)

    def resolve_pending(self) -> None:
        """Resolve the outcome of a commit, or of the end of a block, that is still unknown.

        No more records are handed over before that, because the outcome decides which record comes next. Raises what
        ``end`` raises; the next call tries again.
        """
        leaving = self.block.leaving
        if not self.state.needs_resume and leaving is None:
            return
        with self.producer.library.callback_errors.deferred():
            self._resume()
            if leaving is not None and self.block.leaving is leaving:
                if not leaving.is_reported:
                    self._abort_or_mark_broken(leaving.reason, self._aborting(leaving.reason))
                self.finish_leaving()

    def _resume(self, *, inside_revoke: bool = False) -> Ending | None:
        """Complete the interrupted step, if there is one."""
        if not self.state.needs_resume:
            return None
        ended = self.call_guard.run_transaction_step(lambda: self._complete_step(inside_revoke=inside_revoke))
        self.callback_failure.forget()
        return ended

    def _complete_step(self, *, inside_revoke: bool) -> Ending:
        steps = self.steps
        was_inside, steps.inside_revoke = steps.inside_revoke, inside_revoke
        steps.inside_fetch = False  # the call that committed start offsets is over
        if self.state.needs_rebuild:
            steps.unhandled, steps.abort_reason = None, steps.abort_reason or steps.why_unknown(self.state.phase)
        try:
            return self._run(TransactionEvent.RESUME, steps)
        finally:
            steps.inside_revoke = was_inside

    # -- inside the rebalance callbacks (a part of RevocationWork); nothing here raises an EosError ------------------

    def commit_before_revoke(self, partitions: frozenset[InputPartition]) -> None:
        """Commit the whole transaction if it covers a departing partition: one transaction cannot be split.

        With anything unprocessed it is aborted instead. Records that were consumed outside a block, while no
        transaction was open, have no outputs: they stay uncommitted (NOT_OURS).
        """
        covered = partitions & self.consumer.positions.keys()
        reason = f"a rebalance took {format_partitions(covered)} with unprocessed records"
        self._force_end(end_at_revocation(self.facts(partitions)), reason)

    def _force_end(self, end: ForcedEnd, reason: str) -> None:
        """Perform ``end`` inside a revoke callback; ``reason``: of an abort."""
        match end:
            case ForcedEnd.RESUME:  # find out what became of a commit, which the next owner's would hide
                # If it is aborted, no block has to fail: nothing was handed over since it was sent.
                ending = self._keeping_failure(lambda: self._resume(inside_revoke=True))
            case ForcedEnd.COMMIT:
                ending = self._keeping_failure(lambda: self._perform(TransactionEvent.REVOKED, inside_revoke=True))
                if ending is not None and ending.outcome is Outcome.ABORTED:
                    self._fail_block(f"the held transaction was aborted in a rebalance: {ending.reason}")
            case ForcedEnd.ABORT:
                aborting = self._aborting(reason, inside_revoke=True)
                # A block aborts by itself, as soon as the error has left it.
                ending = None if self.block.is_open else self._keeping_failure(aborting)
                self._fail_block(reason)
            case ForcedEnd.NONE:
                return
            case _:
                raise UnexpectedEventError(f"a rebalance cannot end work by {end.value!r}")
        if not self.call_guard.is_working:
            self.endings.forced = ending

    def on_callback_failed(self, partitions: frozenset[InputPartition], reason: str) -> None:
        """Abort the whole transaction if it covers a departing partition."""
        self._force_end(end_after_failed_callback(self.facts(partitions)), reason)

    def on_departed(self, partitions: frozenset[InputPartition]) -> None:
        """Keep the positions of ``partitions``: the gate needs them to abort the transaction that contains them."""
        if end_at_departure(self.facts(partitions)) is ForcedEnd.ABORT:
            gone = partitions & self.consumer.positions.keys()
            self._fail_block(f"{format_partitions(gone)} left with records of the open transaction")

    def _fail_block(self, reason: str) -> None:
        if not self.call_guard.is_working:  # else it is the end of a block, which reports the outcome of its own work
            self.fail_next_block(reason)

    def fail_next_block(self, reason: str) -> None:
        """Let the open block, or the next one, end as ABORTED because of ``reason``."""
        self.block.fail(
            leave_block(
                f"{reason}. Let this error leave the block: it ends as ABORTED, and what is still ours of its "
                "records is consumed again."
            ),
            quietly=True,
        )

    def fail_block_after_seek(self) -> None:
        """Let a block end as ABORTED that has given back all of its records by ``seek`` and has written outputs."""
        if self.block.gave_back and self.outputs.are_unfinished and self.consumer.state.has_given_all_back:
            self.fail_next_block(
                f"seek() has given back all records of this block, the last ones of {self.block.gave_back}, and its "
                "outputs would be written again"
            )

    def _keeping_failure(self, act: Callable[[], Ending | None]) -> Ending | None:
        try:
            with self.producer.library.callback_errors.deferred(until_later=True):
                return self.call_guard.run_transaction_step(act)
        except errors.EosError as error:
            self.callback_failure.keep(error)
            if not self.state.outcome_is_pending and not isinstance(error, errors.UnknownOutcomeError):
                self.steps.abort_reason = self.steps.abort_reason or str(error)
                self.rewind(inside_revoke=True)
                self._lifecycle.tell(TransactionEvent.ABORT_FAILED)
            return None

    # -- the steps ---------------------------------------------------------------------------------------------------

    def _perform(self, event: TransactionEvent, *, inside_revoke: bool = False, reason: str = "") -> Ending:
        """Do what ``event`` asks for: to begin, to end as the gate decides, or to abort because of ``reason``."""
        return self._run(event, StepState(self._clock(), inside_revoke=inside_revoke, abort_reason=reason))

    def _run(self, event: TransactionEvent, steps: StepState) -> Ending:
        """Perform what follows from ``event``. A commit: FLUSH, SERVE_CALLBACKS, DECIDE, COMMIT, RECORD_COMMITTED."""
        self._emit_end()
        self.steps = steps
        act = self._lifecycle.tell(event)
        while act is not Act.NOTHING:
            follows = self._acts[act](steps)
            act = Act.NOTHING if follows is None else self._lifecycle.tell(follows)
        if self.state.phase is Phase.IDLE:
            self._while_polling(steps, self.producer.rebuild_after_lost_connection)
        return self.endings.last

    def _methods_by_act(self) -> dict[Act, Callable[[StepState], TransactionEvent | None]]:
        """Return the acts: each performs one step and returns the resulting event, if it has not applied it."""
        return {
            Act.BEGIN: self._begin,
            Act.FLUSH: self._flush,
            Act.SERVE_CALLBACKS: self._serve_callbacks,
            Act.DECIDE: self._decide,
            Act.COMMIT: self._commit,
            Act.RESOLVE_OUTCOME: self._resolve_outcome,
            Act.ABORT: self._abort,
            Act.REBUILD: self._rebuild,
            Act.RECORD_COMMITTED: self._record_committed,
            Act.RECORD_ABORTED: self._record_aborted,
            Act.RECORD_HELD: self._record_held,
            Act.COMMIT_STARTS: self._commit_starts,
        }

    def _begin(self, _: StepState) -> TransactionEvent:
        try:
            self.consumer.require_open()
            self.producer.begin_transaction()
        except errors.EosError:
            if not self.producer.calls.state.can_end_transaction:  # else a signal handler has raised it
                self._lifecycle.tell(TransactionEvent.NOT_BEGUN)
            raise
        return TransactionEvent.BEGUN

    def _flush(self, steps: StepState) -> TransactionEvent:
        meanwhile = None if steps.inside_revoke else self.consumer.fetching.prefetch
        try:
            self.producer.flush_outputs(self.producer.limits.commit_timeout_s, meanwhile)
        except (errors.AbortableError, errors.RebuildProducerError) as error:
            if not steps.inside_revoke:
                self.callback_failure.raise_once()  # a commit inside a callback served meanwhile may have taken effect
            is_finished = steps.fail(error) is TransactionEvent.HANDLE_FINISHED
            return TransactionEvent.NOT_FLUSHED_BY_HANDLE if is_finished else TransactionEvent.NOT_FLUSHED
        if steps.inside_revoke:
            return TransactionEvent.FLUSHED_IN_CALLBACK
        self.callback_failure.raise_once()
        return TransactionEvent.FLUSHED

    def _serve_callbacks(self, _: StepState) -> TransactionEvent:
        self.consumer.fetching.serve_callbacks()
        self.callback_failure.raise_once()
        return TransactionEvent.SERVED

    def _decide(self, steps: StepState) -> TransactionEvent | None:
        try:
            ruling, snapshot = steps.decided = self._ruling(inside_revoke=steps.inside_revoke)
        except EndedMeanwhileError:
            return None
        if ruling.decision is not CommitDecision.COMMIT:
            steps.abort_reason, steps.abort_rule = ruling.reason, ruling.rule
            is_skip = ruling.decision is CommitDecision.SKIP
            return TransactionEvent.DECIDED_SKIP if is_skip else TransactionEvent.DECIDED_ABORT
        self._token = self._token.next()
        steps.attempted = AttemptedOffsets(
            positions=dict(self.consumer.positions),
            group_offsets_before=self.consumer.state.group_offsets,
            snapshot=snapshot,
            token=self._token,
            inside_revoke=steps.inside_revoke,
        )
        return TransactionEvent.DECIDED_COMMIT if self.state.has_begun else TransactionEvent.DECIDED_COMMIT_UNBEGUN

    def _ruling(self, *, inside_revoke: bool) -> tuple[CommitRuling, MembershipSnapshot]:
        if inside_revoke:
            return self._decisions.decide(self.consumer.positions)
        return self._decisions.decide_and_wait(
            lambda: self.consumer.positions, is_still_due=self._is_deciding, on_skip=self.endings.count_skipped
        )

    def _is_deciding(self) -> bool:
        self.callback_failure.raise_once()
        return self.state.phase is Phase.DECIDING

    def _commit(self, steps: StepState) -> TransactionEvent:
        sent, calls = needed(steps.attempted), self.producer.calls
        try:
            if sent.positions:
                self._send_offsets(sent.positions, sent.snapshot, sent.token)
            self.producer.commit_transaction(keeps_handle=True)
        except errors.UnknownOutcomeError as error:
            steps.unanswered = error
            return TransactionEvent.UNANSWERED
        except errors.EosError as error:
            if not calls.state.commit_took_no_effect:  # RESUME reads its outcome from the group's offsets (KAFKA-17754)
                raise
            if isinstance(error, (errors.AbortableError, errors.RebuildProducerError)):
                return steps.fail(error)
            self._lifecycle.tell(TransactionEvent.NOT_SENT)
            raise
        return TransactionEvent.ANSWERED

    def _commit_starts(self, steps: StepState) -> TransactionEvent:
        sent = needed(steps.attempted)
        self.producer.begin_transaction()
        self._send_offsets(sent.positions, sent.snapshot, sent.token)
        self.producer.commit_transaction(keeps_handle=True)
        return TransactionEvent.STARTS_COMMITTED

    def _send_offsets(self, positions: InputPositions, snapshot: MembershipSnapshot, token: AttemptToken) -> None:
        offsets = offsets_to_send(positions, str(token))
        by_pattern_alone = self.consumer.membership.state.by_pattern_alone(positions)
        self.producer.send_offsets_to_transaction(
            offsets, snapshot.group_metadata, is_gated=True, by_pattern_alone=by_pattern_alone
        )

    def _resolve_outcome(self, steps: StepState) -> TransactionEvent | None:
        """Resolve the commit's outcome from the group's offsets; an error meanwhile leaves it open."""
        cause = steps.unanswered = steps.unanswered or errors.UnknownOutcomeError(steps.why_unknown(self.state.phase))
        if not steps.is_resolution_counted:
            steps.is_resolution_counted = True
            self._outcomes.record_unanswered(cause)
        sent = needed(steps.attempted)
        try:
            outcome = self._while_polling(steps, lambda poll: self._outcomes.resolve_commit_outcome(sent, cause, poll))
        except EndedMeanwhileError:
            self.callback_failure.raise_once()  # of a revocation that has looked for the outcome in vain
            return None
        if outcome is None:
            error = undeterminable_outcome(sent.positions)
            self.block.report_outcome(None, str(error))
            self.consumer.leave_work_to_others()
            self._clear_work()
            self._lifecycle.tell(TransactionEvent.NOT_FOUND)  # last: until then, an interrupted step is repeated
            raise error from cause
        self.callback_failure.forget()
        if outcome is Outcome.ABORTED:
            steps.abort_rule = None
            steps.abort_reason = f"{errors.what_happened(cause)} The group's offsets show that it took no effect."
            return TransactionEvent.FOUND_ABORTED
        return TransactionEvent.FOUND_COMMITTED

    def _abort(self, steps: StepState) -> TransactionEvent:
        self._record_failure(steps)
        try:
            if self.state.has_begun:
                self.producer.abort_transaction(keeps_handle=True)
        except errors.RebuildProducerError as error:
            reason, follows = steps.abort_reason, steps.fail(error)
            steps.abort_reason = f"{reason.rstrip('.')}. Then {error}"
            return follows
        return TransactionEvent.ABORT_CONFIRMED

    def _rebuild(self, steps: StepState) -> TransactionEvent:
        """Replace the handle: no commit was sent, so init_transactions aborts whatever is open."""
        self._record_failure(steps)
        self._while_polling(steps, self.producer.rebuild)
        return TransactionEvent.REBUILT

    def _record_failure(self, steps: StepState) -> None:
        failure, steps.unhandled = steps.unhandled, None
        if failure is not None:
            self._outcomes.record_failure(failure)

    def _while_polling(self, steps: StepState, step: Callable[[Callable[[], None]], T]) -> T:
        """Perform ``step``, which may take long, and keep the member in its group meanwhile."""
        if steps.inside_revoke or steps.inside_fetch:
            return step(lambda: None)
        phase = self.state.phase
        return while_polling(self.consumer, step, is_over=lambda: self.state.phase is not phase)

    # -- how it ended ------------------------------------------------------------------------------------------------

    def _record_committed(self, steps: StepState) -> None:
        sent, (ruling, _) = needed(steps.attempted), needed(steps.decided)
        records_in, now = record_count(sent.positions), self._clock()
        committed = TransactionCommitted(
            records_in=records_in,
            records_out=self.outputs.records_out,
            duration_s=now - steps.began_at,
            generation=sent.snapshot.generation,
            inside_revoke=sent.inside_revoke,
            poll_to_commit_s=now - self.consumer.work_since if records_in else None,
        )
        self.endings.keep_until_emitted(committed)
        self.consumer.record_committed({p: position.next_offset for p, position in sent.positions.items()})
        self._clear_work()
        self.endings.record(Ending(Outcome.COMMITTED, ruling.reason, ruling.rule))
        self._lifecycle.tell(TransactionEvent.RECORDED)
        self._emit_end()
        self._outcomes.report()

    def _record_aborted(self, steps: StepState) -> None:
        reason, rule, positions = steps.abort_reason, steps.abort_rule, self.consumer.positions or steps.rewound
        aborted = TransactionAborted(
            reason=reason,
            rule=rule,
            records_in=record_count(positions),
            refused_by_group=steps.refused_by_group,
        )
        self.endings.keep_until_emitted(aborted)
        self.rewind(inside_revoke=steps.inside_revoke)
        self.endings.record(Ending(Outcome.ABORTED, reason, rule, frozenset(positions)))
        self._lifecycle.tell(TransactionEvent.RECORDED)
        self._emit_end()

    def finish_recording(self) -> None:
        """Record the last end and emit its event if an exception has interrupted that; asks no broker."""
        if self.state.phase is Phase.COMMITTED:
            self._record_committed(self.steps)
        elif self.state.phase is Phase.ABORTED:
            self.steps.inside_revoke = True  # the seeks stay due until the consumer's next call
            self._record_aborted(self.steps)
        self._emit_end()

    def _emit_end(self) -> None:
        """Count the last end and emit its event once it is recorded; if that is interrupted, the next step does it."""
        if self.state.phase is Phase.IDLE:
            self.endings.emit()

    def _record_held(self, steps: StepState) -> None:
        ruling, snapshot = needed(steps.decided)
        self.endings.count_skipped()
        self._decisions.record_skip(ruling, snapshot)
        self.endings.record(Ending(Outcome.SKIPPED, ruling.reason, ruling.rule))

    def rewind(self, *, inside_revoke: bool) -> None:
        """Rewind to the first uncommitted record."""
        self.steps.rewound = self.consumer.positions or self.steps.rewound
        self.consumer.rewind(in_call=inside_revoke)
        self._clear_work()

    def _clear_work(self) -> None:
        """Record that no work is open any more."""
        self.consumer.gate.tell(WorkEnded())
        self.outputs.clear()
        self._decisions.end_hold()
