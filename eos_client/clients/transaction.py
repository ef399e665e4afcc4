"""Where a commit is performed: flush, serve callbacks, ask the gate, snapshot, send offsets, commit.

That order keeps the window in which a silent epoch bump refuses the commit as short as librdkafka allows. One session
joins one consumer and one producer (KIP-447); while the gate is closed its transaction stays open.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from eos_client.clients.block_state import BlockState, TellOutcome
from eos_client.clients.gate_attempts import GateAttempts
from eos_client.clients.recovery_trace import RecoveryTrace
from eos_client.clients.unknown_outcome import ask_the_log
from eos_client.confluent.call_stack import Calls, comes_from
from eos_client.confluent.failures import leave_block, misplaced_call
from eos_client.confluent.thread_ownership import OWNED_CALLS, is_in_call
from eos_client.core.commit_gate import (
    CommitDecision,
    CommitGate,
    CommitRuling,
    GatePolicy,
    GateRule,
    WorkSettled,
)
from eos_client.core.model import GroupGeneration, InputPartition, InputPositions, Outcome, named, record_count
from eos_client.core.outcome_resolution import AttemptToken
from eos_client.errors import (
    AbortableError,
    ClientClosedError,
    ClusterUnavailableError,
    EosError,
    RebuildProducerError,
    RetriableError,
    TransactionStateError,
    UnknownOutcomeError,
    WrongThreadError,
)
from eos_client.observe import (
    Counters,
    EventHook,
    OutcomeResolved,
    TransactionAborted,
    TransactionCommitted,
    log_event,
    safe_hook,
)
from eos_client.ports import Clock, GroupConsumer, MembershipSnapshot, OutputRecord, TransactionalProducer

_BLOCK_SLICE_S = 0.02
_ANSWER_WAIT_S = 5.0
_BROKEN_OFF = "an exception has broken off the end of the block"

_Result = TypeVar("_Result")
_OwnCall = Literal["begin_transaction", "send_offsets", "commit_transaction", "abort_transaction"]
"""``send_offsets`` makes the producer's own ``send_offsets_to_transaction``."""

_NOTHING_WAS_SENT = (TransactionStateError, ClientClosedError, WrongThreadError)
"""Of the errors of ``commit_transaction`` that name no recovery, those that leave no doubt about the outcome."""

_TO_BE_REPEATED = (AbortableError, RebuildProducerError, RetriableError, ClusterUnavailableError, *_NOTHING_WAS_SENT)


@dataclass(frozen=True, slots=True)
class Ending:
    """How one attempt to end a transaction came out. ``rule``: the gate's, None when the gate was not the reason."""

    outcome: Outcome
    reason: str
    rule: GateRule | None = None


@dataclass(frozen=True, slots=True)
class _Commit:
    """What a commit was sent with, and when its end was begun."""

    positions: InputPositions
    token: AttemptToken
    generation: GroupGeneration
    ruling: CommitRuling
    began_at: float
    inside_revoke: bool


@dataclass(slots=True)
class _Step:
    """A step that has not come to a known end: it runs, has failed, or was broken off by an asynchronous exception.

    A ``commit`` stays such a step until the log has told its outcome. ``cause``: why the log has to be asked.
    """

    name: str
    commit: _Commit | None = None
    cause: UnknownOutcomeError | None = None
    is_left_unknown: bool = False

    @property
    def why(self) -> str:
        """Why it is not known how the step ended."""
        return f"{self.name} did not come to a known end." if self.cause is None else str(self.cause)


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A block whose end has begun. ``before``: the session's last ending then."""

    tell: TellOutcome
    before: Ending


class TransactionSession:
    """The open work of one consumer and one producer: at most one transaction, held across gate closures.

    Records that were handed over, and outputs that were written, are *in hand* until ``processed`` says that nothing
    more will be written for them: a loop says so after each batch, a ``with`` block at its end. A revocation commits
    the open transaction while nothing is in hand, and aborts it otherwise.
    """

    def __init__(
        self,
        consumer: GroupConsumer,
        producer: TransactionalProducer,
        *,
        clock: Clock,
        hook: EventHook = log_event,
        counters: Counters | None = None,
        handle_in_doubt: bool = False,
    ) -> None:
        """``handle_in_doubt``: as the session said that has used the producer so far."""
        self._consumer = consumer
        self._producer = producer
        self._gate: CommitGate = consumer.gate
        self._hook = safe_hook(hook)
        self._clock = clock
        self.counters = counters or Counters()
        self.block = BlockState()
        self.last = Ending(Outcome.COMMITTED, "nothing was done yet")
        self._open = False
        self._records_out = 0
        self._outputs_in_hand = False
        self._calls_at_work = 0
        self._own_call: _OwnCall = "begin_transaction"
        self._attempts = GateAttempts(consumer, self._hook, clock)
        self._trace = RecoveryTrace(producer, self._hook, self.counters, clock)
        self._failure: EosError | None = None
        self._step = _Step("the last session's transaction") if handle_in_doubt else None
        self._leaving: _Leaving | None = None
        self._given_up = False
        self.is_over = False
        self._token = AttemptToken(secrets.token_hex(6))

    def joins(self, consumer: GroupConsumer) -> bool:
        """Whether this session is the one of ``consumer``."""
        return self._consumer is consumer

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._open

    @property
    def has_open_work(self) -> bool:
        """Whether a block is open, or a transaction, or what became of the last one is unknown."""
        return self.block.is_open or self._open or self.is_unresolved

    @property
    def is_unresolved(self) -> bool:
        """Whether a commit was sent whose outcome is not known yet; `conclude` asks for it."""
        return self._step is not None and self._step.commit is not None

    @property
    def is_in_doubt(self) -> bool:
        """Whether it is not settled yet what becomes of records that were handed over in a block that has ended."""
        return self._step is not None or self._leaving is not None

    @property
    def handle_in_doubt(self) -> bool:
        """Whether the producer's handle is to be replaced before it is used again."""
        return self._step is not None

    @property
    def in_hand(self) -> bool:
        """Whether there are records or outputs of which more outputs may follow."""
        return self._outputs_in_hand or self._consumer.records_in_hand

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
        ended = None if self._step is None else self._make_good()
        self._outputs_in_hand = True
        if ended is not None and ended.outcome is Outcome.ABORTED:
            raise AbortableError(f"{ended.reason} What was consumed since will be consumed again.")
        if not self._open:
            self.step_of_a_block(self._begin)

    def _begin(self) -> None:
        self._consumer.require_open()
        self._step = _Step("the begin of a transaction")
        try:
            self._working(lambda: self._call("begin_transaction"))
        except EosError as error:
            self._step = None
            # Where a signal handler's begin_transaction() has passed for ours (ARCHITECTURE), the library refuses ours.
            self._open = self._producer.has_open_transaction
            if not self._open or error.__cause__ is None:
                raise
        self._open = True
        self._step = None

    def processed(self) -> None:
        """Note that everything handed over so far was processed, and that all its outputs were written."""
        self._consumer.processed()
        self._outputs_in_hand = False

    @property
    def is_at_work(self) -> bool:
        """Whether the session itself is using its clients."""
        return self._calls_at_work > 0

    def _working(self, act: Callable[[], _Result]) -> _Result:
        # Not a context manager: where its exit is struck by an exception from outside, the session would stay at work.
        before = self._calls_at_work
        try:
            self._calls_at_work = before + 1
            return act()
        finally:
            self._calls_at_work = before

    def _call(self, name: _OwnCall, *arguments: Any) -> None:
        """Make the producer's transactional call of that name, which it refuses to everybody else meanwhile."""
        self._own_call = name
        getattr(self._producer, name)(*arguments)

    def step_of_a_block(self, act: Callable[[], _Result]) -> _Result:
        """Do ``act``, which begins or ends a block: nothing that the application calls meanwhile may come between."""
        return act()

    def refuse_within_a_step(self, call: str) -> None:
        """Raise TransactionStateError for a ``call`` by a callback or a signal handler inside a step of ours."""
        if self._is_within_a_step():
            raise misplaced_call(
                f"{call} while a block begins or ends, or its transaction is ended, by a callback or a signal handler: "
                "what becomes of its records is not settled yet. Let the callback or handler return, or raise, and "
                "make that call then"
            )

    def _is_within_a_step(self) -> bool:
        return _STEPS.are_under_way(self)

    def refuse_inside_a_call(self, what: str, *, is_writing: bool) -> None:
        """Raise TransactionStateError where ``what`` happens inside a call of the clients, or while a block writes."""
        if is_writing or is_in_call(self._consumer) or is_in_call(self._producer):
            raise misplaced_call(
                f"{what} inside a call of the block's clients or its own, by a callback or a signal handler: the call "
                "that was interrupted is not through. Let the callback or handler return, or raise, and do so then"
            )

    def refuse_transaction_by_hand(self) -> None:
        """Raise TransactionStateError for a block while the application has a transaction of its own open."""
        if self._producer.has_open_transaction and not self._open:
            raise misplaced_call(
                f"a block while the transaction that begin_transaction() of {self._producer.transactional_id!r} began "
                "is open: it would be torn apart. End it by commit_transaction() or abort_transaction() first"
            )

    def refuse_beside(self, call: str) -> None:
        """Raise TransactionStateError for a transactional ``call`` of the application while our work is open."""
        if call.startswith(self._own_call) and comes_from(_OWN_CALLS, self, OWNED_CALLS, self._producer, above=2):
            return
        self.refuse_within_a_step(call)
        self.conclude_block()
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

    def listen(self) -> None:
        """Take in what the producer's client library has to say while there is no work."""
        self._producer.listen()

    def await_deliveries(self) -> None:
        """Wait until all outputs written so far are acknowledged or refused; raises AbortableError after a time-out."""
        if self._open:
            self._producer.flush_outputs(self._producer.limits.commit_timeout_s)

    def take_refused_delivery(self) -> str:
        """Return to where and why an output of the last transaction was refused for good, once; empty if none was."""
        return self._producer.take_refused_delivery()

    def enqueue(self, topic: str, record: OutputRecord) -> None:
        """Write one output of any kind; inside a block the producer counts it, elsewhere ``wrote`` does."""
        self.begin()
        self._producer.enqueue(topic, record)

    # -- the end -------------------------------------------------------------------------------------------------

    def end(self) -> Ending:
        """Commit, hold or abort what is open; all of it counts as processed now.

        Raises what the caller has to decide: fenced, unfit, fatal, unknown. What a callback of the application has
        raised meanwhile is raised when the outcome is in ``last``.
        """
        with self._producer.callback_errors_deferred():
            return self._end_what_is_open()

    def _end_what_is_open(self) -> Ending:
        ended = self._make_good()
        if ended is not None and (ended.outcome is Outcome.ABORTED or self._is_idle):
            return ended
        self.processed()
        self.raise_failure()
        if self._is_idle:
            self._attempts.ended()
            self._working(self.listen)
            return self._ended(Ending(Outcome.COMMITTED, "nothing to do"))
        if (failed := self._producer.transaction_failure) is not None:
            return self.recover(failed)
        return self._working(self._end)

    def _ended(self, ending: Ending) -> Ending:
        """Note how the transaction ended, and tell the block that is being left; then no step is under way."""
        self.last = ending
        if self._leaving is not None:
            self._leaving.tell(ending.outcome, ending.reason)
        self._step = None
        return ending

    @property
    def _is_idle(self) -> bool:
        return not self._open and not self._consumer.positions

    def _end(self) -> Ending:
        began_at, before = self._clock(), self.last
        failed = self._flush()
        if failed is not None:
            return failed
        self._consumer.serve_callbacks()  # serves callbacks, too; a single record would be the whole of the next batch
        self.raise_failure()
        if self.last is not before:  # a revocation ended it meanwhile
            return self.last
        ruling, snapshot = self._decide()
        if self.last is not before:
            return self.last
        return self._obey(ruling, snapshot, began_at)

    def _plain_commits_under_way(self) -> str:
        """Return why the transaction must not be committed now, if a plain commit is the reason."""
        ours = self._consumer.positions.keys()
        if late := self._consumer.unanswered_commits & ours:
            return (
                f"an asynchronous commit() of {named(late)} was not answered in time: served after this transaction, "
                "it would take the group back"
            )
        if late := self._consumer.unfenced_commits & ours:
            return (
                f"a commit() of {named(late)} was not answered before this block: a copy of it, served after this "
                "transaction, would take the group back"
            )
        return ""

    def _flush(self, *, inside_revoke: bool = False) -> Ending | None:
        """Wait for the outputs; returns how the transaction ended when they did not get through."""
        before = self.last
        meanwhile = None if inside_revoke else self._consumer.prefetch
        try:
            self._producer.flush_outputs(self._producer.limits.commit_timeout_s, meanwhile)
        except (AbortableError, RebuildProducerError) as error:
            if not inside_revoke:
                self.raise_failure()  # a commit inside a callback that was served meanwhile may have taken effect
            return self._recover(error, inside_revoke=inside_revoke) if self.last is before else self.last
        return None

    def _obey(self, ruling: CommitRuling, snapshot: MembershipSnapshot, began_at: float) -> Ending:
        if ruling.decision is CommitDecision.COMMIT:
            return self._commit(snapshot, began_at, ruling, inside_revoke=False)
        if ruling.decision is CommitDecision.ABORT:
            return self._abort(ruling.reason, ruling.rule)
        self._note_skip(ruling, snapshot)
        return self._ended(Ending(Outcome.SKIPPED, ruling.reason, ruling.rule))

    def _decide(self) -> tuple[CommitRuling, MembershipSnapshot]:
        """Let the gate decide, which may serve callbacks first; they may end the transaction meanwhile."""
        before = self.last

        def stands() -> bool:
            self.raise_failure()
            return self.last is before

        ruling, snapshot = self._attempts.decide_after_callbacks(lambda: self._consumer.positions, stands)
        if ruling.decision is CommitDecision.SKIP and self._gate.settings.policy is GatePolicy.BLOCK:
            return self._block(ruling, snapshot)
        return ruling, snapshot

    def _block(self, ruling: CommitRuling, snapshot: MembershipSnapshot) -> tuple[CommitRuling, MembershipSnapshot]:
        """Stay in poll until the gate opens; its hold limit ends this."""
        before = self.last
        self._note_skip(ruling, snapshot)
        while ruling.decision in {CommitDecision.SKIP, CommitDecision.SERVE_CALLBACKS} and self.last is before:
            if ruling.decision is CommitDecision.SKIP:
                self._consumer.wait_while_paused(_BLOCK_SLICE_S)
            else:
                self._consumer.serve_callbacks(drain=True)
            self.raise_failure()
            ruling, snapshot = self._attempts.decide(self._consumer.positions)
        return ruling, snapshot

    def _note_skip(self, ruling: CommitRuling, snapshot: MembershipSnapshot) -> None:
        self.counters.skipped += 1
        self._attempts.skipped(ruling, snapshot)

    def _commit(
        self, snapshot: MembershipSnapshot, began_at: float, ruling: CommitRuling, *, inside_revoke: bool
    ) -> Ending:
        if late := self._plain_commits_under_way():
            return self._abort(late, inside_revoke=inside_revoke)
        self.begin()
        positions = dict(self._consumer.positions)
        self._token = self._token.next()
        commit = _Commit(positions, self._token, snapshot.generation, ruling, began_at, inside_revoke)
        self._step = step = _Step("a commit", commit)
        timeout_s = self._producer.limits.commit_timeout_s
        is_sent = False
        try:
            if positions:
                self._call("send_offsets", positions, snapshot, timeout_s, str(self._token))
            is_sent = True
            self._call("commit_transaction", timeout_s)
        except UnknownOutcomeError as error:
            return self._resolve(step, commit, error, inside_revoke=inside_revoke)
        except EosError as error:
            if self._producer.may_have_ended:  # then a signal handler has raised it
                raise
            if isinstance(error, (AbortableError, RebuildProducerError)):
                return self._recover(error, inside_revoke=inside_revoke)
            if not is_sent or isinstance(error, _NOTHING_WAS_SENT):
                self._step = None
            raise
        return self._committed(commit)

    def commit_starts(self, starts: InputPositions) -> bool:
        """Commit where partitions start, in a transaction of its own; returns whether later owners will find it.

        None is possible while another is open. Where it fails, what was handed over goes the way of an abort: whether
        it took effect is told by the group's offsets, which are asked for again. Raises what cannot be repeated.
        """
        if self._open or self.is_in_doubt or self.is_at_work or self._given_up:
            return False
        self._step = _Step("the commit of where partitions start")
        try:
            with self._producer.callback_errors_deferred(beyond=True):
                self._working(lambda: self._send_starts(starts))
        except _TO_BE_REPEATED:
            return False
        self._step = None
        return True

    def _send_starts(self, starts: InputPositions) -> None:
        timeout_s = self._producer.limits.commit_timeout_s
        self._token = self._token.next()
        self._call("begin_transaction")
        self._call("send_offsets", starts, self._consumer.snapshot(), timeout_s, str(self._token))
        self._call("commit_transaction", timeout_s)

    def _committed(self, commit: _Commit) -> Ending:
        committed = TransactionCommitted(
            records_in=record_count(commit.positions),
            records_out=self._records_out,
            duration_s=self._clock() - commit.began_at,
            generation=commit.generation,
            inside_revoke=commit.inside_revoke,
        )
        self._consumer.settle(commit.positions)
        self._settled()
        ending = self._ended(Ending(Outcome.COMMITTED, commit.ruling.reason, commit.ruling.rule))
        self.counters.committed += 1
        self.counters.records_in += committed.records_in
        self.counters.records_out += committed.records_out
        self.counters.generation_id = commit.generation.generation_id
        self._hook(committed)
        self._trace.committed()
        return ending

    # -- what has not come to a known end -------------------------------------------------------------------------

    def settle_other_commits(self) -> None:
        """Let what the application has committed by itself come before this block, and note it.

        A plain commit that is served later would take the group back, and an abort would go back behind one, or behind
        a transaction of the application's own.
        """
        until = self._clock() + min(_ANSWER_WAIT_S, self._producer.limits.commit_timeout_s)
        while self._consumer.unanswered_commits and self._clock() < until:
            self._consumer.wait_while_paused(_BLOCK_SLICE_S)
            self.raise_failure()
        # Before the group is left: there, what is not known to be committed counts as work that has gone with it.
        self._consumer.settle_commits_by_hand(self._producer.limits.commit_timeout_s)
        self._consumer.fence_commits()
        self.raise_failure()

    def leave_block(self) -> None:
        """Begin the end of the open block: whatever ends the transaction from now on is told to it."""
        self._leaving = _Leaving(self.block.tell, self.last)
        self.block.close()

    def leave_broken_block(self) -> None:
        """Begin the end of a block that was left, and could not do so itself."""
        if self.block.is_broken_off and not self._is_within_a_step():
            self.leave_block()

    def conclude_block(self) -> None:
        """Find out what became of a block that was left, unless its end is under way."""
        self.leave_broken_block()
        if self._leaving is not None and not self._is_within_a_step():
            self.conclude()

    def left_block(self) -> None:
        """Note that the end of the block is through; what it could not find out is told to the block later."""
        if self._leaving is not None and self.last is not self._leaving.before:
            self._tell_leaving(self._leaving)

    def _tell_leaving(self, leaving: _Leaving) -> None:
        leaving.tell(self.last.outcome, self.last.reason)
        self._leaving = None

    def conclude(self) -> None:
        """Find out what became of a commit, or of a block's end, that has not come to a known end.

        Nothing more may be handed over before that: whether those records come next is not known. Raises what ``end``
        raises; what is still unknown then is asked for by the next call.
        """
        leaving = self._leaving
        if self._step is None and leaving is None:
            return
        self._calls_at_work = 0
        with self._producer.callback_errors_deferred():
            self._make_good()
            if leaving is not None and self._leaving is leaving:
                if self.last is leaving.before:
                    self._undone(_BROKEN_OFF, self._abort)
                self._tell_leaving(leaving)

    def _make_good(self, *, inside_revoke: bool = False) -> Ending | None:
        """Bring the step that has not come to a known end to one, if there is such a step."""
        step = self._step
        if step is None:
            return None
        ended = self._working(lambda: self._bring_to_an_end(step, inside_revoke=inside_revoke))
        self._failure = None
        return ended

    def _bring_to_an_end(self, step: _Step, *, inside_revoke: bool) -> Ending:
        if step.commit is None:
            return self._start_over(RebuildProducerError(step.why), inside_revoke=inside_revoke)
        cause = step.cause or UnknownOutcomeError(step.why)
        return self._resolve(step, step.commit, cause, inside_revoke=inside_revoke)

    def _resolve(self, step: _Step, commit: _Commit, cause: UnknownOutcomeError, *, inside_revoke: bool) -> Ending:
        """Ask the log what became of ``commit``. What that raises leaves the step open, but for UnknownOutcomeError."""
        if step.cause is None:
            step.cause = cause
            self.counters.outcomes_resolved += 1
            self._trace.failed(cause)
        self._open = False
        try:
            outcome = ask_the_log(
                self._consumer, self._producer, commit.positions, commit.token, cause, self._hook, self._clock
            )
        except UnknownOutcomeError as error:
            self._step = None
            self._go_back(inside_revoke=inside_revoke)
            self._stays_unknown(str(error))
            raise
        if self._trace.resolved(outcome) is Outcome.ABORTED:
            return self._aborted(str(cause), inside_revoke=inside_revoke)
        return self._committed(commit)

    def _stays_unknown(self, reason: str) -> None:
        if self._leaving is not None:
            self._leaving.tell(None, reason)
            self._leaving = None

    # -- abort ---------------------------------------------------------------------------------------------------

    def abort(self, reason: str) -> Ending:
        """Abort what is open and rewind to the first uncommitted record."""
        with self._producer.callback_errors_deferred():
            self.raise_failure()
            return self._undo(reason, lambda _: self._abort(reason))

    def _undo(self, reason: str, undo: Callable[[str], Ending]) -> Ending:
        ended = self._make_good()
        if ended is not None and ended.outcome is Outcome.ABORTED:
            return ended
        if ended is not None and self._is_idle:  # all that was open has been committed
            return self._ended(Ending(Outcome.ABORTED, reason))
        return self._undone(reason, undo)

    def _undone(self, reason: str, undo: Callable[[str], Ending]) -> Ending:
        """Whatever ``undo`` raises: nothing of the transaction was committed, and its records are read again."""
        try:
            return self._working(lambda: undo(reason))
        except EosError as error:
            self._go_back()
            self._ended(Ending(Outcome.ABORTED, f"{reason}; and the abort failed: {error}"))
            self._step = _Step("an abort")
            raise

    def end_failed(self, failure: BaseException) -> Ending:
        """Abort what is open because of ``failure``, which was raised while work was being added."""
        self.raise_failure()
        if self._step is None and self._is_idle:  # ended inside a rebalance callback, and told there
            self._settled()
            return self._ended(Ending(Outcome.ABORTED, str(failure)))
        if isinstance(failure, (AbortableError, RebuildProducerError)):
            return self.recover(failure)
        return self.abort(f"the block met {type(failure).__name__}: {failure}")

    def give_up(self, reason: str) -> None:
        """Abort on the way out: nothing is rebuilt and nothing rewound, because nothing will be read any more.

        A commit whose outcome is unknown is not aborted. Raises what the abort raised; then the coordinator's time-out,
        or the next instance, ends the transaction.
        """
        self._given_up = True
        if self.is_unresolved:
            self._leave_unknown(reason)
        elif self._open:
            self._settled()
            self.counters.aborted += 1
            try:
                timeout_s = self._producer.limits.commit_timeout_s
                self._working(lambda: self._call("abort_transaction", timeout_s))
            finally:
                self._hook(
                    TransactionAborted(reason=reason, rule=None, records_in=record_count(self._consumer.positions))
                )

    def consumer_closes(self) -> None:
        """Note that the consumer is about to be closed: nobody can ask for an outcome by it any more."""
        self.leave_broken_block()
        if self.is_unresolved:
            self._leave_unknown("the consumer was closed")
            self._given_up, self._step = True, _Step("a commit")
        else:
            with suppress(EosError):  # which the block is told
                self.conclude_block()

    def producer_closes(self) -> None:
        """Note that the producer is about to be closed: the consumer does not learn an outcome by it any more."""
        self.is_over = True
        self.leave_broken_block()
        if self.is_unresolved:
            self._leave_unknown("the producer was closed")
        elif self._leaving is not None:
            leaving = self._leaving
            self._go_back(inside_revoke=True)
            self._ended(Ending(Outcome.ABORTED, f"{_BROKEN_OFF}, and the producer was closed"))
            self._tell_leaving(leaving)
        elif self._open and not (self.block.is_open or self._given_up):
            self._end_held("the producer was closed while the gate held the transaction")

    def _end_held(self, reason: str) -> None:
        try:
            limit_s = self._producer.limits.commit_timeout_s
            self._working(lambda: self._call("abort_transaction", limit_s))
        except EosError as error:
            reason = f"{reason}, and the coordinator aborts it when its time is over: {error}"
        self._aborted(reason, inside_revoke=True)

    def _leave_unknown(self, reason: str) -> None:
        step = self._step
        if step is None or step.is_left_unknown:
            return
        step.is_left_unknown = True
        reason = f"{step.why} It stays unknown what became of it: {reason}"
        self._hook(OutcomeResolved(outcome="unknown", reason=reason))
        self._stays_unknown(reason)

    def _abort(self, reason: str, rule: GateRule | None = None, *, inside_revoke: bool = False) -> Ending:
        self._step = _Step("an abort")
        try:
            if self._open:
                self._call("abort_transaction", self._producer.limits.commit_timeout_s)
        except RebuildProducerError as error:
            return self._recover(error, inside_revoke=inside_revoke)
        return self._aborted(reason, rule, inside_revoke=inside_revoke)

    def _recover(self, error: AbortableError | RebuildProducerError, *, inside_revoke: bool = False) -> Ending:
        self._trace.failed(error)
        if isinstance(error, RebuildProducerError):
            return self._start_over(error, inside_revoke=inside_revoke)
        return self._abort(str(error), inside_revoke=inside_revoke)

    def _start_over(self, error: RebuildProducerError, *, inside_revoke: bool = False) -> Ending:
        """Replace the handle: no commit was sent, so init_transactions aborts whatever is open."""
        self._step = _Step("an abort")
        self._open = False
        try:
            self._producer.rebuild()
        except EosError:
            self._go_back(inside_revoke=inside_revoke)
            raise
        return self._aborted(str(error), inside_revoke=inside_revoke)

    def _aborted(self, reason: str, rule: GateRule | None = None, *, inside_revoke: bool = False) -> Ending:
        records_in = record_count(self._consumer.positions)
        self._go_back(inside_revoke=inside_revoke)
        ending = self._ended(Ending(Outcome.ABORTED, reason, rule))
        self.counters.aborted += 1
        self._hook(TransactionAborted(reason=reason, rule=rule, records_in=records_in))
        return ending

    def _go_back(self, *, inside_revoke: bool = False) -> None:
        if inside_revoke:
            self._consumer.rewind_soon()
        else:
            self._consumer.rewind()
        self._settled()

    def _settled(self) -> None:
        self._gate.observe(WorkSettled())
        self._open = False
        self._records_out = 0
        self._outputs_in_hand = False
        self._attempts.ended()

    def raise_failure(self) -> None:
        """Raise what happened inside a rebalance callback and could not be raised there."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def recover(self, error: AbortableError | RebuildProducerError) -> Ending:
        """Do what ``error``, raised while work was being added, is named for."""
        with self._producer.callback_errors_deferred():
            self.raise_failure()
            return self._undo(str(error), lambda _: self._recover(error))

    # -- inside the rebalance callbacks (RevocationWork); nothing here raises --------------------------------------

    def snapshot(self) -> MembershipSnapshot:
        """Read the group metadata now."""
        return self._consumer.snapshot()

    def uncommitted(self) -> frozenset[InputPartition]:
        """Return the partitions whose consumed records are not committed."""
        return frozenset(self._consumer.positions)

    def commit_before_revoke(self, partitions: frozenset[InputPartition]) -> None:
        """Commit the whole transaction if it covers a departing partition: one transaction cannot be split.

        With anything in hand it is aborted instead. Records that were taken outside a block and while no transaction
        was open have no outputs yet and stay uncommitted (NOT_OURS).
        """
        covered = partitions & self._consumer.positions.keys()
        if not covered or self._given_up:
            return
        if self._step is not None:
            self._keeping_failure(lambda: self._make_good(inside_revoke=True))
        elif not self.in_hand:
            ending = self._keeping_failure(self._commit_inside_revoke)
            if ending is not None and ending.outcome is Outcome.ABORTED:
                self._fail_block(f"the held transaction was aborted in a rebalance: {ending.reason}")
        elif self.has_open_work:
            self._take_away(f"a rebalance took {named(covered)} with records that were not processed yet")

    def on_callback_failed(self, partitions: frozenset[InputPartition], reason: str) -> None:
        """Abort the whole transaction if it covers a departing partition."""
        if partitions.isdisjoint(self._consumer.positions) or self._given_up:
            return
        if self._step is not None:
            self._keeping_failure(lambda: self._make_good(inside_revoke=True))
        else:
            self._take_away(reason)

    def departed(self, partitions: frozenset[InputPartition]) -> None:
        """Keep their positions: the gate still needs them to abort the transaction they are in."""
        gone = partitions & self._consumer.positions.keys()
        if gone and self.has_open_work and not self.is_unresolved:
            self._fail_block(f"{named(gone)} left with records of the open transaction")

    def _take_away(self, reason: str) -> None:
        if not self.block.is_open:  # a block aborts by itself, as soon as the error has left it
            self._keeping_failure(lambda: self._abort(reason, inside_revoke=True))
        self._fail_block(reason)

    def _fail_block(self, reason: str) -> None:
        if self.is_at_work:  # the end of a block, which tells what became of its own work
            return
        self.block.fail(
            leave_block(
                f"{reason}. Let this error leave the block: it ends as ABORTED, and what is still ours of its "
                "records is consumed again."
            ),
            quietly=True,
        )

    def _commit_inside_revoke(self) -> Ending:
        began_at = self._clock()
        failed = self._flush(inside_revoke=True)
        if failed is not None:
            return failed
        ruling, snapshot = self._attempts.decide(self._consumer.positions)
        if ruling.decision is CommitDecision.COMMIT:
            return self._commit(snapshot, began_at, ruling, inside_revoke=True)
        return self._abort(ruling.reason, ruling.rule, inside_revoke=True)

    def _keeping_failure(self, act: Callable[[], Ending | None]) -> Ending | None:
        try:
            with self._producer.callback_errors_deferred(beyond=True):
                return self._working(act)
        except EosError as error:
            self._failure = error
            if not self.is_unresolved and not isinstance(error, UnknownOutcomeError):
                self._go_back(inside_revoke=True)
                self._step = _Step("an abort")
            return None


_OWN_CALLS = Calls(TransactionSession._call)  # noqa: SLF001  # of the class above

_STEPS = Calls(TransactionSession.step_of_a_block, TransactionSession._working)  # noqa: SLF001  # of the class above
