"""Performs the next step of a transaction as ``core/transaction_lifecycle.py`` decides, and records the outcome.

The order of a commit is flush, serve callbacks, ask the gate, send offsets, commit: it keeps the window in which a
silent epoch bump refuses the commit as short as librdkafka allows.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from eos_client import errors
from eos_client.clients.block_state import BlockState
from eos_client.clients.commit_decisions import CommitDecisions
from eos_client.clients.dead_letters import UNKNOWN_HANDLING, RecordKey
from eos_client.clients.recovery import Recovery
from eos_client.clients.steps_under_way import StepsUnderWay
from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.producer.confluent_producer import ConfluentProducer, offsets_to_send
from eos_client.core.commit_gate import CommitDecision, CommitRuling, GatePolicy, GateRule, WorkEnded
from eos_client.core.model import InputPositions, Outcome, record_count
from eos_client.core.outcome_resolution import AttemptToken
from eos_client.core.transaction_lifecycle import NEEDS_REBUILD, Act, Phase, TransactionEvent, TransactionLifecycle
from eos_client.observe import (
    ClientReported,
    Counters,
    EventHook,
    RecordDeadLettered,
    TransactionAborted,
    TransactionCommitted,
)
from eos_client.ports import Clock, MembershipSnapshot, OverridableProducer

T = TypeVar("T")

WAIT_SLICE_S = 0.02

NOTHING_WAS_SENT = (errors.TransactionStateError, errors.ClientClosedError, errors.WrongThreadError)
"""Errors of ``commit_transaction`` that have no recovery action, after which certainly nothing was sent."""

_INTERRUPTED_STEPS = {
    Phase.BEGINNING: "the start of a transaction",
    Phase.BEGINNING_TO_COMMIT: "the start of a transaction",
    Phase.COMMITTING_STARTS: "the commit of start offsets",
    Phase.ABORTING: "an abort",
    Phase.REBUILDING: "an abort",
    Phase.BROKEN: "an earlier transaction",
}


@dataclass(frozen=True, slots=True)
class Ending:
    """The result of one attempt to end a transaction. ``rule``: the gate's, None when the gate was not the reason."""

    outcome: Outcome
    reason: str
    rule: GateRule | None = None


class KeptFailure:
    """The last failure of a rebalance callback, which may raise nothing, until a call of the application raises it."""

    def __init__(self) -> None:
        self.failure: errors.EosError | None = None

    def raise_failure(self) -> None:
        """Raise it once, if there is one."""
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure


@dataclass(slots=True)
class _Attempt:
    """The state that the steps of one attempt to end a transaction share.

    ``inside_revoke``: the consumer can be rewound only after its running call has returned. ``may_poll``: no call of it
    is running that has fetched records. ``reason`` and ``rule`` say why the transaction is aborted, ``is_refused`` that
    the group has refused its offsets. ``failure``: an error of the client library that was not acted on yet.
    ``positions`` and ``token``: what a commit is sent with, under ``snapshot`` and because of ``ruling``.
    """

    began_at: float
    inside_revoke: bool = False
    may_poll: bool = True
    reason: str = ""
    rule: GateRule | None = None
    is_refused: bool = False
    failure: errors.AbortableError | errors.RebuildProducerError | None = None
    ruling: CommitRuling | None = None
    snapshot: MembershipSnapshot | None = None
    positions: InputPositions | None = None
    token: AttemptToken | None = None
    was_sent_inside_revoke: bool = False
    unanswered: errors.UnknownOutcomeError | None = None
    is_resolution_counted: bool = False
    is_left_unknown: bool = False

    def fail(self, failure: errors.AbortableError | errors.RebuildProducerError) -> TransactionEvent:
        """Make ``failure`` the reason for the abort; returns the lifecycle's event for it."""
        self.failure, self.reason, self.rule = failure, str(failure), None
        self.is_refused = isinstance(failure, errors.CommitRefusedError)
        is_finished = isinstance(failure, errors.RebuildProducerError)
        return TransactionEvent.HANDLE_FINISHED if is_finished else TransactionEvent.REFUSED


class _RaisedMeanwhileError(Exception):
    """Carries an ``error`` of the consumer out of the producer's step, which takes an EosError for its own."""

    def __init__(self, error: errors.EosError) -> None:
        super().__init__(str(error))
        self.error = error


class _EndedMeanwhileError(Exception):
    """A rebalance callback that was served during a step has completed it."""


class TransactionSteps:
    """The steps of the transactions of one consumer and one producer, and the state that they are in.

    Each outcome is reported to ``block``; ``kept`` holds what a rebalance callback could not raise.
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
        needs_resume: bool,
    ) -> None:
        """As for `TransactionSession`."""
        self._consumer = consumer
        self._producer = producer
        self._hook = hook
        self._counters = counters
        self._clock = clock
        self.block = BlockState()
        self.kept = KeptFailure()
        self.under_way = StepsUnderWay(consumer, producer, facade)
        self.lifecycle = TransactionLifecycle(is_broken=needs_resume)
        self.last = Ending(Outcome.COMMITTED, "nothing was done yet")
        self.outputs_in_hand = False
        self.records_out = self.commits = self.aborts = 0
        self.dead_lettered: dict[RecordKey, RecordDeadLettered] = {}
        self.decisions = CommitDecisions(consumer, hook, clock, consumer.plain)
        self._recovery = Recovery(consumer, producer, hook, counters, clock)
        self._attempt = _Attempt(self._clock())
        self._token = AttemptToken(secrets.token_hex(6))
        self._acts = self._methods_by_act()

    def _methods_by_act(self) -> dict[Act, Callable[[_Attempt], TransactionEvent | None]]:
        return {
            Act.BEGIN: self._begin,
            Act.FLUSH: self._flush,
            Act.SERVE_CALLBACKS: self._serve_callbacks,
            Act.ASK_GATE: self._ask_gate,
            Act.COMMIT: self._commit,
            Act.RESOLVE_OUTCOME: self._resolve_outcome,
            Act.ABORT: self._abort,
            Act.REBUILD: self._rebuild,
            Act.RECORD_COMMITTED: self._record_committed,
            Act.RECORD_ABORTED: self._record_aborted,
            Act.RECORD_HELD: self._record_held,
            Act.COMMIT_STARTS: self._commit_starts,
        }

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to end."""
        return not self.lifecycle.has_begun and not self._consumer.positions

    # -- what is asked for -----------------------------------------------------------------------------------------

    def perform(self, event: TransactionEvent, *, inside_revoke: bool = False) -> Ending:
        """Do what ``event`` asks for: to begin, or to end as the gate decides."""
        return self._run(event, _Attempt(self._clock(), inside_revoke=inside_revoke))

    def commit_starts(self, starts: InputPositions, snapshot: MembershipSnapshot) -> Ending:
        """Commit ``starts`` by themselves, under the membership for which the gate lets them pass."""
        attempt = _Attempt(self._clock(), may_poll=False, positions=starts, snapshot=snapshot)
        return self._run(TransactionEvent.COMMIT_STARTS, attempt)

    def abort(self, reason: str, *, inside_revoke: bool = False) -> Ending:
        """Abort because of ``reason``, and go back to the first uncommitted record."""
        return self._run(TransactionEvent.ABORT, _Attempt(self._clock(), inside_revoke=inside_revoke, reason=reason))

    def recover(self, failure: errors.AbortableError | errors.RebuildProducerError) -> Ending:
        """Perform the recovery that the class of ``failure`` asks for; it was raised while work was added."""
        attempt = _Attempt(self._clock())
        return self._run(attempt.fail(failure), attempt)

    def resume(self, *, inside_revoke: bool) -> Ending:
        """Complete the interrupted step."""
        attempt = self._attempt
        was_inside, attempt.inside_revoke = attempt.inside_revoke, inside_revoke
        if self.lifecycle.phase in NEEDS_REBUILD:
            attempt.failure, attempt.reason = None, attempt.reason or self._why(attempt)
        try:
            return self._run(TransactionEvent.RESUME, attempt)
        finally:
            attempt.inside_revoke = was_inside

    def mark_broken(self, ending: Ending | None, *, inside_revoke: bool) -> None:
        """Record that an abort failed: its records are read again, and the handle is replaced before its next use."""
        self.rewind(inside_revoke=inside_revoke)
        if ending is not None:
            self.record_ending(ending)
        self.lifecycle.on(TransactionEvent.ABORT_FAILED)

    def give_up(self) -> None:
        """Record that a client is being closed: it begins nothing more, and no handle is left to be replaced."""
        self.lifecycle.on(TransactionEvent.GIVEN_UP)

    def abort_for_good(self) -> None:
        """Abort because a client is being closed; raises what the abort raised."""
        self.give_up()
        self.under_way.own_call("abort_transaction", self._producer.limits.commit_timeout_s)

    def record_left_unknown(self, reason: str) -> str | None:
        """Record that the outcome of the commit stays unknown; returns why, None from the second call on."""
        if self._attempt.is_left_unknown:
            return None
        self._attempt.is_left_unknown = True
        handled, self.dead_lettered = self.dead_lettered, {}
        for letter in handled.values():
            self._hook(ClientReported(client="producer", error=f"{UNKNOWN_HANDLING}{letter}"))
        return f"{self._why(self._attempt)} That stays unknown: {reason}"

    def _run(self, event: TransactionEvent, attempt: _Attempt) -> Ending:
        self._attempt = attempt
        act = self.lifecycle.on(event)
        while act is not Act.NOTHING:
            follows = self._acts[act](attempt)
            act = Act.NOTHING if follows is None else self.lifecycle.on(follows)
        if self.lifecycle.phase is Phase.IDLE:
            self._while_polling(attempt, self._producer.rebuild_after_lost_connection)
        return self.last

    def _why(self, attempt: _Attempt) -> str:
        """Return why the outcome of the current step is unknown."""
        if attempt.unanswered is not None:
            return str(attempt.unanswered)
        return f"{_INTERRUPTED_STEPS.get(self.lifecycle.phase, 'a commit')} has no known outcome."

    def _send_offsets(self, positions: InputPositions, snapshot: MembershipSnapshot, token: AttemptToken) -> None:
        offsets, timeout_s = offsets_to_send(positions, str(token)), self._producer.limits.commit_timeout_s
        names = self._consumer.membership.names
        self._producer.calls.by_pattern_alone = {p.topic: not names(p.topic) for p in positions}
        self.under_way.own_call("send_offsets_to_transaction", offsets, snapshot.group_metadata, timeout_s)

    # -- the acts: each performs one step and returns the resulting event --------------------------------------------

    def _begin(self, _: _Attempt) -> TransactionEvent:
        try:
            self._consumer.require_open()
            self.under_way.own_call("begin_transaction")
        except errors.EosError as error:
            # If a signal handler called begin_transaction() first, the client library refuses this call.
            if not self._producer.calls.has_open_transaction:
                self.lifecycle.on(TransactionEvent.NOT_BEGUN)
                raise
            if error.__cause__ is None:
                self.lifecycle.on(TransactionEvent.BEGUN_ELSEWHERE)
                raise
        return TransactionEvent.BEGUN

    def _flush(self, attempt: _Attempt) -> TransactionEvent:
        meanwhile = None if attempt.inside_revoke else self._consumer.fetching.prefetch
        try:
            self._producer.flush_outputs(self._producer.limits.commit_timeout_s, meanwhile)
        except (errors.AbortableError, errors.RebuildProducerError) as error:
            if not attempt.inside_revoke:
                self.kept.raise_failure()  # a commit inside a callback that was served meanwhile may have taken effect
            is_finished = attempt.fail(error) is TransactionEvent.HANDLE_FINISHED
            return TransactionEvent.NOT_FLUSHED_BY_HANDLE if is_finished else TransactionEvent.NOT_FLUSHED
        if attempt.inside_revoke:
            return TransactionEvent.FLUSHED_IN_CALLBACK
        self.kept.raise_failure()
        return TransactionEvent.FLUSHED

    def _serve_callbacks(self, _: _Attempt) -> TransactionEvent:
        self._consumer.fetching.serve_callbacks()
        self.kept.raise_failure()
        return TransactionEvent.SERVED

    def _ask_gate(self, attempt: _Attempt) -> TransactionEvent:
        if attempt.inside_revoke:
            ruling, snapshot = self.decisions.decide(self._consumer.positions)
        else:
            ruling, snapshot = self.decide()
        attempt.ruling, attempt.snapshot = ruling, snapshot
        if ruling.decision is not CommitDecision.COMMIT:
            attempt.reason, attempt.rule = ruling.reason, ruling.rule
            is_abort = attempt.inside_revoke or ruling.decision is CommitDecision.ABORT
            return TransactionEvent.RULED_ABORT if is_abort else TransactionEvent.RULED_SKIP
        self._token = self._token.next()
        attempt.positions, attempt.token = dict(self._consumer.positions), self._token
        attempt.was_sent_inside_revoke = attempt.inside_revoke
        return TransactionEvent.RULED_COMMIT if self.lifecycle.has_begun else TransactionEvent.RULED_COMMIT_UNBEGUN

    def decide(self) -> tuple[CommitRuling, MembershipSnapshot]:
        """Ask the gate, serving callbacks as it wants; a callback may end the transaction meanwhile."""

        def is_due() -> bool:
            self.kept.raise_failure()
            return self.lifecycle.phase is Phase.DECIDING

        ruling, snapshot = self.decisions.decide_after_callbacks(lambda: self._consumer.positions, is_still_due=is_due)
        if ruling.decision is CommitDecision.SKIP and self._consumer.gate.settings.policy is GatePolicy.BLOCK:
            return self._block(ruling, snapshot)
        return ruling, snapshot

    def _block(self, ruling: CommitRuling, snapshot: MembershipSnapshot) -> tuple[CommitRuling, MembershipSnapshot]:
        """Stay in poll until the gate opens; its hold limit ends this."""
        self._record_skip(ruling, snapshot)
        waits = {CommitDecision.SKIP, CommitDecision.SERVE_CALLBACKS}
        while ruling.decision in waits and self.lifecycle.phase is Phase.DECIDING:
            if ruling.decision is CommitDecision.SKIP:
                self._consumer.fetching.wait_while_paused(WAIT_SLICE_S)
            else:
                self._consumer.fetching.serve_callbacks(drain=True)
            self.kept.raise_failure()
            ruling, snapshot = self.decisions.decide(self._consumer.positions)
        return ruling, snapshot

    def _commit(self, attempt: _Attempt) -> TransactionEvent:
        positions, timeout_s = _needed(attempt.positions), self._producer.limits.commit_timeout_s
        try:
            if positions:
                self._send_offsets(positions, _needed(attempt.snapshot), _needed(attempt.token))
            self.under_way.own_call("commit_transaction", timeout_s)
        except errors.UnknownOutcomeError as error:
            attempt.unanswered = error
            return TransactionEvent.UNANSWERED
        except errors.EosError as error:
            if self._producer.calls.may_have_ended:  # then a signal handler has raised it
                raise
            if isinstance(error, (errors.AbortableError, errors.RebuildProducerError)):
                return attempt.fail(error)
            if not self._producer.calls.commit_may_take_effect or isinstance(error, NOTHING_WAS_SENT):
                self.lifecycle.on(TransactionEvent.NOT_SENT)
            raise
        return TransactionEvent.ANSWERED

    def _resolve_outcome(self, attempt: _Attempt) -> TransactionEvent | None:
        """Resolve the commit's outcome from the group's offsets; errors but UnknownOutcomeError leave it open."""
        cause = attempt.unanswered = attempt.unanswered or errors.UnknownOutcomeError(self._why(attempt))
        if not attempt.is_resolution_counted:
            attempt.is_resolution_counted = True
            self._counters.outcomes_resolved += 1
            self._recovery.record_failure(cause)
        try:
            positions, token = _needed(attempt.positions), _needed(attempt.token)
            outcome = self._while_polling(
                attempt, lambda poll: self._recovery.resolve_commit_outcome(positions, token, cause, poll)
            )
        except _EndedMeanwhileError:
            return None
        except errors.UnknownOutcomeError as error:
            self.lifecycle.on(TransactionEvent.NOT_FOUND)
            self.rewind(inside_revoke=attempt.inside_revoke)
            self.block.report_outcome(None, str(error))
            raise
        self.kept.failure = None  # of a callback that has looked for the same outcome in vain
        if outcome is Outcome.ABORTED:
            attempt.reason, attempt.rule = str(cause), None
            return TransactionEvent.FOUND_ABORTED
        return TransactionEvent.FOUND_COMMITTED

    def _commit_starts(self, attempt: _Attempt) -> TransactionEvent:
        timeout_s = self._producer.limits.commit_timeout_s
        self._token = self._token.next()
        self.under_way.own_call("begin_transaction")
        self._send_offsets(_needed(attempt.positions), _needed(attempt.snapshot), self._token)
        self.under_way.own_call("commit_transaction", timeout_s)
        return TransactionEvent.STARTS_COMMITTED

    def _abort(self, attempt: _Attempt) -> TransactionEvent:
        self._record_failure(attempt)
        try:
            if self.lifecycle.has_begun:
                self.under_way.own_call("abort_transaction", self._producer.limits.commit_timeout_s)
        except errors.RebuildProducerError as error:
            reason, follows = attempt.reason, attempt.fail(error)
            attempt.reason = f"{reason.rstrip('.')}. Then {error}"
            return follows
        return TransactionEvent.ABORT_CONFIRMED

    def _rebuild(self, attempt: _Attempt) -> TransactionEvent:
        """Replace the handle: no commit was sent, so init_transactions aborts whatever is open."""
        self._record_failure(attempt)
        try:
            self._while_polling(attempt, self._producer.rebuild)
        except errors.EosError:
            self.rewind(inside_revoke=attempt.inside_revoke)
            raise
        return TransactionEvent.REBUILT

    def _while_polling(self, attempt: _Attempt, step: Callable[[Callable[[], None]], T]) -> T:
        """Perform ``step``, which calls what it is given between two attempts; raises what that has raised."""
        try:
            return step(self._polling(attempt))
        except _RaisedMeanwhileError as raised:
            raise raised.error from raised.error.__cause__

    def _polling(self, attempt: _Attempt) -> Callable[[], None]:
        """Return what keeps the member in its group during a long step: it is polled with its partitions paused.

        A revocation that comes meanwhile resolves an unknown outcome in its callback. Then this raises
        _EndedMeanwhileError. One that comes during an abort leaves all of it to the step that is under way.
        """
        phase, membership = self.lifecycle.phase, self._consumer.membership

        def poll() -> None:
            if attempt.inside_revoke or not attempt.may_poll or membership.in_callback or membership.is_closed:
                return
            try:
                self._consumer.fetching.serve_callbacks(drain=True)
            except errors.EosError as error:
                raise _RaisedMeanwhileError(error) from error
            if self.lifecycle.phase is not phase:
                raise _EndedMeanwhileError

        return poll

    def _record_failure(self, attempt: _Attempt) -> None:
        failure, attempt.failure = attempt.failure, None
        if failure is not None:
            self._recovery.record_failure(failure)

    # -- how it ended ------------------------------------------------------------------------------------------------

    def record_ending(self, ending: Ending) -> Ending:
        """Record how an attempt ended, and report it to the block that waits."""
        self.last = ending
        self.block.report_outcome(ending.outcome, ending.reason)
        return ending

    def _record_committed(self, attempt: _Attempt) -> None:
        positions, ruling = _needed(attempt.positions), _needed(attempt.ruling)
        generation = _needed(attempt.snapshot).generation
        records_in = record_count(positions)
        committed = TransactionCommitted(
            records_in=records_in,
            records_out=self.records_out,
            duration_s=self._clock() - attempt.began_at,
            generation=generation,
            inside_revoke=attempt.was_sent_inside_revoke,
            poll_to_commit_s=self._clock() - self._consumer.work_since if records_in else None,
        )
        self._consumer.record_committed(positions)
        self.clear_work()
        self.record_ending(Ending(Outcome.COMMITTED, ruling.reason, ruling.rule))
        self.lifecycle.on(TransactionEvent.RECORDED)
        self.commits += 1
        self._counters.committed += 1
        self._counters.records_in += committed.records_in
        self._counters.records_out += committed.records_out
        self._counters.generation_id = generation.generation_id
        self._hook(committed)
        handled, self.dead_lettered = self.dead_lettered, {}
        for letter in handled.values():
            self._counters.records_failed += 1
            self._hook(letter)
        self._recovery.report()

    def _record_aborted(self, attempt: _Attempt) -> None:
        aborted = self.record_abort(attempt.reason, attempt.rule, inside_revoke=attempt.inside_revoke)
        aborted = replace(aborted, refused_by_group=attempt.is_refused)
        self.lifecycle.on(TransactionEvent.RECORDED)
        self.count_aborted(aborted)

    def record_abort(self, reason: str, rule: GateRule | None = None, *, inside_revoke: bool) -> TransactionAborted:
        """Rewind, and record that nothing of the transaction was committed; returns the event to report."""
        records_in = record_count(self._consumer.positions)
        self.rewind(inside_revoke=inside_revoke)
        self.record_ending(Ending(Outcome.ABORTED, reason, rule))
        return TransactionAborted(reason=reason, rule=rule, records_in=records_in)

    def count_aborted(self, aborted: TransactionAborted) -> None:
        """Count and report an abort."""
        self.aborts += 1
        self.dead_lettered.clear()
        self._counters.aborted += 1
        self._hook(aborted)

    def _record_held(self, attempt: _Attempt) -> None:
        ruling = _needed(attempt.ruling)
        self._record_skip(ruling, _needed(attempt.snapshot))
        self.record_ending(Ending(Outcome.SKIPPED, ruling.reason, ruling.rule))

    def _record_skip(self, ruling: CommitRuling, snapshot: MembershipSnapshot) -> None:
        self._counters.skipped += 1
        self.decisions.record_skip(ruling, snapshot)

    def rewind(self, *, inside_revoke: bool) -> None:
        """Rewind to the first uncommitted record."""
        if inside_revoke:
            self._consumer.fetching.rewind_soon()
        else:
            self._consumer.fetching.rewind()
        self.clear_work()

    def clear_work(self) -> None:
        """Record that no work is open any more."""
        self._consumer.gate.observe(WorkEnded())
        self.records_out = 0
        self.outputs_in_hand = False
        self.decisions.end_hold()


def _needed(value: T | None) -> T:
    """Return ``value``; raises LookupError if no earlier step has set it."""
    if value is None:
        raise LookupError("an earlier step of the transaction did not set a value that this step needs")
    return value
