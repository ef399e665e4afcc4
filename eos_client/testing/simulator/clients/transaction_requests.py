"""The transactional requests of a producer, in the background: identity, members of the transaction, its end."""

from __future__ import annotations

from collections.abc import Mapping

from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.model import (
    BrokerError,
    Membership,
    OffsetAndMetadata,
    PartitionKey,
    ProducerIdentity,
)
from eos_client.testing.simulator.brokers.network import Answer
from eos_client.testing.simulator.clients.kafka_errors import kafka_error
from eos_client.testing.simulator.clients.producer_events import ProducerEvents
from eos_client.testing.simulator.clients.producer_settings import ProducerSettings
from eos_client.testing.simulator.clients.record_sender import RecordSender
from eos_client.testing.simulator.clients.refusals import Treatment, told_as, treatment_of
from eos_client.testing.simulator.clients.request_repeater import RequestRepeater, Timers
from eos_client.testing.simulator.clients.transaction_state import Phase, TransactionState

_INIT, _ADD_PARTITIONS, _ADD_OFFSETS = "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn"
_OFFSET_COMMIT, _END = "TxnOffsetCommit", "EndTxn"
_IDENTITY_BACKOFF_S = 0.5
_PARTITIONS_BACKOFF_S = 0.02
_OFFSETS_BACKOFF_S = 0.5


class TransactionRequests:
    """Each method starts something; its end is the result of the application's call. ``init_refusal``: see there."""

    def __init__(
        self,
        link: ClientLink,
        settings: ProducerSettings,
        state: TransactionState,
        events: ProducerEvents,
        timers: Timers,
        requests: RequestRepeater,
        sender: RecordSender,
    ) -> None:
        self.init_refusal = ""
        self._transactions = link.brokers.transactions
        self._groups = link.brokers.groups
        self._transactional_id = settings.transactional_id or ""
        self._timeout_s = settings.transaction_timeout_s
        self._state = state
        self._events = events
        self._timers = timers
        self._requests = requests
        self._sender = sender
        self._members: set[PartitionKey] = set()
        self._joining: list[PartitionKey] = []
        self._registers = False
        self._transaction = 0
        self._offsets_call = 0
        self._offsets_step = _ADD_OFFSETS
        self._offsets_code = ""
        self._identity_call = 0
        self._asks_identity = False
        self._bumps = False
        if settings.transactional_id is not None:
            sender.joins_transaction = self._joins

    @property
    def _identity(self) -> ProducerIdentity:
        if self._sender.identity is None:
            raise RuntimeError(f"{self._transactional_id} has no producer id yet")
        return self._sender.identity

    def _finish(self, code: str, why: str) -> None:
        error = self._state.fail_for_good(told_as(code), why)
        if error is not None:
            self._events.fatal(error)
            self._sender.purge(in_flight=True)

    def _fail(self, code: str, why: str, *, bump: bool = False) -> None:
        if self._state.fail(told_as(code), why, bump=bump):
            self._sender.purge()

    # -- identity ------------------------------------------------------------------------------------------------

    def initialise(self) -> None:
        """Get the first identity; ``init_refusal`` is the last refusal that is tried again inside."""
        self._state.require(Phase.INIT, Phase.WAIT_PID, Phase.READY_NOT_ACKED)
        if self._state.phase is Phase.READY_NOT_ACKED:
            return
        self._state.move(Phase.WAIT_PID)
        self.init_refusal = ""
        if not self._asks_identity:
            self._ask_identity(None)

    def _ask_identity(self, expected: ProducerIdentity | None) -> None:
        self._identity_call += 1
        call = self._identity_call
        self._asks_identity = True

        def act() -> ProducerIdentity:
            return self._transactions.init_producer_id(self._transactional_id, self._timeout_s, expected)

        def again() -> None:
            # A handle that was left behind must not take the id back from its successor.
            if call == self._identity_call and self._state.is_waited_for and not self._state.is_fatal:
                self._ask_identity(expected)

        def answered(answer: Answer[ProducerIdentity] | None) -> None:
            self._asks_identity = False
            if answer is None:
                again()
            elif answer.refusal is None:
                self._assigned(answer.take())
            elif treatment_of(_INIT, answer.refusal.code) is Treatment.FATAL:
                self._finish(answer.refusal.code, f"Failed to acquire transactional PID: {answer.refusal}")
            else:
                self.init_refusal = answer.refusal.code
                self._timers.after(_IDENTITY_BACKOFF_S, again)

        self._requests.send_once(_INIT, act, answered)

    def _bump(self) -> None:
        """Get the next epoch from the coordinator, which knows whether somebody else has it (KIP-360)."""
        self._bumps = True
        self._ask_identity(self._identity)

    def _assigned(self, identity: ProducerIdentity) -> None:
        self._bumps = False
        if self._state.phase is Phase.WAIT_PID:
            self._state.move(Phase.READY_NOT_ACKED)
        elif self._state.phase in {Phase.BEGIN_ABORT, Phase.ABORTING}:
            self._state.move(Phase.ABORT_NOT_ACKED)
        self._sender.use(identity)
        self._state.set_result()

    # -- members -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a transaction, without members."""
        self._transaction += 1
        self._members.clear()
        self.stop_joining()

    def stop_joining(self) -> None:
        """Have no more partitions added."""
        self._joining.clear()
        self._registers = False

    def _joins(self, partition: PartitionKey) -> bool:
        if partition in self._members:
            return True
        if partition not in self._joining:
            self._joining.append(partition)
            self._register_soon(0.0)
        return False

    def _register_soon(self, delay_s: float) -> None:
        transaction = self._transaction
        if not self._registers:
            self._registers = True
            self._timers.after(delay_s, lambda: self._register(transaction))

    def _register(self, transaction: int) -> None:
        if transaction != self._transaction:
            return
        if not self._state.may_send or not self._joining:
            self._registers = False
            return
        partitions, identity = tuple(self._joining), self._identity
        self._state.coordinator_requests += 1

        def act() -> None:
            self._transactions.add_partitions(self._transactional_id, identity, partitions)

        def answered(answer: Answer[None] | None) -> None:
            if transaction != self._transaction:
                return
            self._registers = False
            if not self._state.may_send:  # librdkafka ignores an answer that comes after the abort as outdated
                return
            if answer is None:
                self._register_soon(0.0)
            elif answer.refusal is None:
                self._joined(partitions)
            else:
                self._not_joined(answer.refusal)

        self._requests.send_once(_ADD_PARTITIONS, act, answered)

    def _joined(self, partitions: tuple[PartitionKey, ...]) -> None:
        self._members.update(partitions)
        self._joining = [p for p in self._joining if p not in self._members]
        if self._joining:
            self._register_soon(0.0)
        self._sender.pump_all()

    def _not_joined(self, refusal: BrokerError) -> None:
        treatment = treatment_of(_ADD_PARTITIONS, refusal.code)
        why = f"Failed to add partition(s) to transaction: {refusal}"
        if treatment is Treatment.RETRY:
            self._register_soon(_PARTITIONS_BACKOFF_S)
        elif treatment is Treatment.FATAL:
            self._finish(refusal.code, why)
        else:
            self._fail(refusal.code, why, bump=treatment is Treatment.ABORT_AND_BUMP)

    # -- offsets -------------------------------------------------------------------------------------------------

    def send_offsets(
        self, group_id: str, membership: Membership, offsets: Mapping[PartitionKey, OffsetAndMetadata]
    ) -> None:
        """Have ``offsets`` committed with the transaction, in two steps; `offsets_overdue` gives up."""
        self._state.require(Phase.IN_TRANSACTION)
        self._offsets_call += 1
        call, identity = self._offsets_call, self._identity
        self._state.coordinator_requests += 1
        self._offsets_step = _ADD_OFFSETS

        def wanted() -> bool:
            return call == self._offsets_call

        def attempting() -> None:
            self._offsets_code = "_TIMED_OUT"  # what an earlier attempt was told says nothing of this one

        def refused(refusal: BrokerError) -> None:
            self._offsets_code = refusal.code

        def add() -> None:
            self._transactions.add_offsets(self._transactional_id, identity, group_id)

        def commit() -> None:
            self._transactions.verify_offsets(self._transactional_id, identity, group_id)
            self._groups.commit_offsets_in_transaction(group_id, membership, identity, offsets)

        def added(_: None, refusal: BrokerError | None) -> None:
            if refusal is not None:
                self._state.coordinator_requests -= 1
                self._offsets_refused(_ADD_OFFSETS, refusal)
                return
            self._offsets_step = _OFFSET_COMMIT
            self._requests.send(
                _OFFSET_COMMIT,
                commit,
                committed,
                backoff_s=_OFFSETS_BACKOFF_S,
                wanted=wanted,
                attempting=attempting,
                refused=refused,
            )

        def committed(_: None, refusal: BrokerError | None) -> None:
            if refusal is None:
                self._state.set_result()
            else:
                self._offsets_refused(_OFFSET_COMMIT, refusal)

        self._requests.send(_ADD_OFFSETS, add, added, wanted=wanted, attempting=attempting, refused=refused)

    def _offsets_refused(self, request: str, refusal: BrokerError) -> None:
        steps = {_ADD_OFFSETS: "Failed to add offsets to transaction", _OFFSET_COMMIT: "Failed to commit offsets"}
        why = f"{steps[request]}: {refusal}"
        if treatment_of(request, refusal.code) is Treatment.FATAL:
            self._finish(refusal.code, why)
        else:
            self._fail(refusal.code, why)
            self._state.set_result(kafka_error(told_as(refusal.code), why, abortable=True))

    def offsets_overdue(self) -> None:
        """Give up, as the application's time is over. What was sent may still take effect."""
        self._offsets_call += 1
        code, why = self._offsets_code, f"{self._offsets_step} did not succeed in time"
        if self._offsets_step == _OFFSET_COMMIT:
            self._fail(code, why)
            self._state.set_result(kafka_error(code, why, abortable=True))
        else:
            self._state.set_result(kafka_error(code, why, retriable=True))

    # -- the end -------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit, or go on with it."""
        self._state.require(Phase.BEGIN_COMMIT, Phase.COMMITTING, Phase.COMMIT_NOT_ACKED)
        if self._state.phase is not Phase.BEGIN_COMMIT:
            return
        if self._state.undelivered:
            why = f"{self._state.undelivered} message(s) failed delivery (see individual delivery reports)"
            self._fail("_INCONSISTENT", why)
            self._state.set_result(kafka_error("_INCONSISTENT", why, abortable=True))
        else:
            self._end(commit=True)

    def abort(self) -> None:
        """Abort, or go on with it."""
        self._state.require(Phase.BEGIN_ABORT, Phase.ABORTING, Phase.ABORT_NOT_ACKED)
        if self._asks_identity or self._state.phase is Phase.ABORT_NOT_ACKED:
            return
        if self._bumps:
            self._bump()
        elif self._state.phase is Phase.BEGIN_ABORT:
            self._end(commit=False)

    def _end(self, *, commit: bool) -> None:
        if not self._state.coordinator_requests:
            self._ended(commit=commit)
            return
        identity = self._identity
        self._state.move(Phase.COMMITTING if commit else Phase.ABORTING)
        phase, transaction = self._state.phase, self._transaction

        def act() -> None:
            self._transactions.end(self._transactional_id, identity, commit=commit)

        def done(_: None, refusal: BrokerError | None) -> None:
            if refusal is None:
                self._ended(commit=commit)
            else:
                self._end_refused(refusal, commit=commit)

        def wanted() -> bool:
            return self._state.phase is phase and transaction == self._transaction

        self._requests.send(_END, act, done, wanted=wanted)

    def _end_refused(self, refusal: BrokerError, *, commit: bool) -> None:
        treatment = treatment_of(_END, refusal.code)
        why = f"EndTxn {'commit' if commit else 'abort'} failed: {refusal}"
        if treatment is Treatment.FATAL:
            self._finish(refusal.code, f"Failed to end transaction: {refusal}")
        elif treatment is Treatment.ABORT_AND_BUMP and not commit:
            self._bump()
        else:
            if not commit:
                self._state.move(Phase.BEGIN_ABORT)
            self._fail(refusal.code, why, bump=treatment is Treatment.ABORT_AND_BUMP)
            self._state.set_result(kafka_error(told_as(refusal.code), why, abortable=True))

    def _ended(self, *, commit: bool) -> None:
        if self._state.requires_bump:
            self._bump()
            return
        self._state.move(Phase.COMMIT_NOT_ACKED if commit else Phase.ABORT_NOT_ACKED)
        self._state.set_result()
