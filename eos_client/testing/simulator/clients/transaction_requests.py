"""The transactional requests of a producer, in the background: identity, partitions, offsets, EndTxn."""

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
from eos_client.testing.simulator.clients.refusals import Treatment, reported_code, treatment_of
from eos_client.testing.simulator.clients.request_repeater import RequestRepeater, Timers
from eos_client.testing.simulator.clients.transaction_state import Phase, TransactionState

_INIT, _ADD_PARTITIONS, _ADD_OFFSETS = "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn"
_OFFSET_COMMIT, _END = "TxnOffsetCommit", "EndTxn"
_IDENTITY_BACKOFF_S = 0.5
_PARTITIONS_BACKOFF_S = 0.02
_OFFSETS_BACKOFF_S = 0.5


def _named(identity: ProducerIdentity) -> str:
    return f"PID{{Id:{identity.producer_id},Epoch:{identity.producer_epoch}}}"


class TransactionRequests:
    """Each method starts a request whose result ends the application's call. ``init_refusal``: see `initialise`."""

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
        self._partitions: set[PartitionKey] = set()
        self._joining: list[PartitionKey] = []
        self._has_add_request = False
        self._transaction = 0
        self._offsets_call = 0
        self._offsets_step = _ADD_OFFSETS
        self._offsets_code = ""
        self._identity_call = 0
        self._requests_identity = False
        self._is_bumping = False
        if settings.transactional_id is not None:
            sender.joins_transaction = self._joins

    @property
    def _identity(self) -> ProducerIdentity:
        if self._sender.identity is None:
            raise RuntimeError(f"{self._transactional_id} has no producer id yet")
        return self._sender.identity

    def _fail_fatally(self, code: str, why: str) -> None:
        error = self._state.fail_fatally(reported_code(code), why)
        if error is not None:
            self._events.fatal(error)
            self._sender.purge(in_flight=True)

    def _fail(self, code: str, why: str, *, bump: bool = False) -> None:
        if self._state.fail(reported_code(code), why, bump=bump):
            self._sender.purge()

    # -- identity ------------------------------------------------------------------------------------------------

    def initialise(self) -> None:
        """Request the first identity; ``init_refusal`` is the code of the last retriable refusal."""
        self._state.require(Phase.INIT, Phase.WAIT_PID, Phase.READY_NOT_ACKED)
        if self._state.phase is Phase.READY_NOT_ACKED:
            return
        self._state.move(Phase.WAIT_PID)
        self.init_refusal = ""
        if not self._requests_identity:
            self._request_identity(None)

    def _request_identity(self, expected: ProducerIdentity | None) -> None:
        self._identity_call += 1
        call = self._identity_call
        self._requests_identity = True
        if expected is not None:
            self._requests.log("GETPID", f"Requesting ProducerId bump for {_named(expected)}")

        def act() -> ProducerIdentity:
            return self._transactions.init_producer_id(self._transactional_id, self._timeout_s, expected)

        def again() -> None:
            # An abandoned handle must not fence its successor.
            if call == self._identity_call and self._state.is_in_call and not self._state.is_fatal:
                self._request_identity(expected)

        def answered(answer: Answer[ProducerIdentity] | None) -> None:
            self._requests_identity = False
            if answer is None:
                again()
            elif answer.refusal is None:
                self._on_identity(answer.take())
            elif treatment_of(_INIT, answer.refusal.code) is Treatment.FATAL:
                self._fail_fatally(answer.refusal.code, f"Failed to acquire transactional PID: {answer.refusal}")
            else:
                self.init_refusal = answer.refusal.code
                self._timers.after(_IDENTITY_BACKOFF_S, again)

        self._requests.send_once(_INIT, act, answered)

    def _bump(self) -> None:
        """Request the next epoch from the coordinator, which refuses it to a fenced producer (KIP-360)."""
        self._is_bumping = True
        self._request_identity(self._identity)

    def _on_identity(self, identity: ProducerIdentity) -> None:
        self._is_bumping = False
        self._requests.log("GETPID", f"Acquired {_named(identity)}")
        if self._state.phase is Phase.WAIT_PID:
            self._state.move(Phase.READY_NOT_ACKED)
        elif self._state.phase in {Phase.BEGIN_ABORT, Phase.ABORTING}:
            self._state.move(Phase.ABORT_NOT_ACKED)
        self._sender.use(identity)
        self._state.set_result()

    # -- partitions ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a transaction without partitions."""
        self._transaction += 1
        self._partitions.clear()
        self.stop_joining()

    def stop_joining(self) -> None:
        """Add no more partitions."""
        self._joining.clear()
        self._has_add_request = False

    def _joins(self, partition: PartitionKey) -> bool:
        if partition in self._partitions:
            return True
        if partition not in self._joining:
            self._joining.append(partition)
            self._add_partitions_after(0.0)
        return False

    def _add_partitions_after(self, delay_s: float) -> None:
        transaction = self._transaction
        if not self._has_add_request:
            self._has_add_request = True
            self._timers.after(delay_s, lambda: self._send_add_partitions(transaction))

    def _send_add_partitions(self, transaction: int) -> None:
        if transaction != self._transaction:
            return
        if not self._state.may_send or not self._joining:
            self._has_add_request = False
            return
        partitions, identity = tuple(self._joining), self._identity
        self._state.coordinator_requests += 1

        def act() -> None:
            self._transactions.add_partitions(self._transactional_id, identity, partitions)

        def answered(answer: Answer[None] | None) -> None:
            if transaction != self._transaction:
                return
            self._has_add_request = False
            if not self._state.may_send:  # librdkafka ignores an answer that comes after the abort as outdated
                return
            if answer is None:
                self._add_partitions_after(0.0)
            elif answer.refusal is None:
                self._on_partitions_added(partitions)
            else:
                self._on_partitions_refused(answer.refusal)

        self._requests.send_once(_ADD_PARTITIONS, act, answered)

    def _on_partitions_added(self, partitions: tuple[PartitionKey, ...]) -> None:
        self._partitions.update(partitions)
        for added in partitions:
            self._requests.log("ADDPARTS", f"{added.topic} [{added.partition}] registered with transaction")
        self._joining = [p for p in self._joining if p not in self._partitions]
        if self._joining:
            self._add_partitions_after(0.0)
        self._sender.pump_all()

    def _on_partitions_refused(self, refusal: BrokerError) -> None:
        treatment = treatment_of(_ADD_PARTITIONS, refusal.code)
        why = f"Failed to add partition(s) to transaction: {refusal}"
        if treatment is Treatment.RETRY:
            self._add_partitions_after(_PARTITIONS_BACKOFF_S)
        elif treatment is Treatment.FATAL:
            self._fail_fatally(refusal.code, why)
        else:
            self._fail(refusal.code, why, bump=treatment is Treatment.ABORT_AND_BUMP)

    # -- offsets -------------------------------------------------------------------------------------------------

    def send_offsets(
        self, group_id: str, membership: Membership, offsets: Mapping[PartitionKey, OffsetAndMetadata]
    ) -> None:
        """Add ``offsets`` to the transaction, by two requests; `offsets_timed_out` stops waiting for them."""
        self._state.require(Phase.IN_TRANSACTION)
        self._offsets_call += 1
        call, identity = self._offsets_call, self._identity
        self._state.coordinator_requests += 1
        self._offsets_step = _ADD_OFFSETS

        def wanted() -> bool:
            return call == self._offsets_call

        def attempting() -> None:
            self._offsets_code = "_TIMED_OUT"  # the code of an earlier attempt does not apply to this one

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
                self._on_offsets_refused(_ADD_OFFSETS, refusal)
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
                self._on_offsets_refused(_OFFSET_COMMIT, refusal)

        self._requests.send(_ADD_OFFSETS, add, added, wanted=wanted, attempting=attempting, refused=refused)

    def _on_offsets_refused(self, request: str, refusal: BrokerError) -> None:
        steps = {_ADD_OFFSETS: "Failed to add offsets to transaction", _OFFSET_COMMIT: "Failed to commit offsets"}
        why = f"{steps[request]}: {refusal}"
        if treatment_of(request, refusal.code) is Treatment.FATAL:
            self._fail_fatally(refusal.code, why)
        else:
            self._fail(refusal.code, why)
            self._state.set_result(kafka_error(reported_code(refusal.code), why, abortable=True))

    def offsets_timed_out(self) -> None:
        """End the call: its time-out is over. Requests that were sent may still take effect."""
        self._offsets_call += 1
        code, why = self._offsets_code, f"{self._offsets_step} did not succeed in time"
        if self._offsets_step == _OFFSET_COMMIT:
            self._fail(code, why)
            self._state.set_result(kafka_error(code, why, abortable=True))
        else:
            self._state.set_result(kafka_error(code, why, retriable=True))

    # -- the end -------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit, or continue the commit."""
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
        """Abort, or continue the abort."""
        self._state.require(Phase.BEGIN_ABORT, Phase.ABORTING, Phase.ABORT_NOT_ACKED)
        if self._requests_identity or self._state.phase is Phase.ABORT_NOT_ACKED:
            return
        if self._is_bumping:
            self._bump()
        elif self._state.phase is Phase.BEGIN_ABORT:
            self._end(commit=False)

    def _end(self, *, commit: bool) -> None:
        if not self._state.coordinator_requests:
            self._on_ended(commit=commit)
            return
        identity = self._identity
        self._state.move(Phase.COMMITTING if commit else Phase.ABORTING)
        phase, transaction = self._state.phase, self._transaction

        def act() -> None:
            self._transactions.end(self._transactional_id, identity, commit=commit)

        def done(_: None, refusal: BrokerError | None) -> None:
            if refusal is None:
                self._on_ended(commit=commit)
            else:
                self._on_end_refused(refusal, commit=commit)

        def wanted() -> bool:
            return self._state.phase is phase and transaction == self._transaction

        self._requests.send(_END, act, done, wanted=wanted)

    def _on_end_refused(self, refusal: BrokerError, *, commit: bool) -> None:
        treatment = treatment_of(_END, refusal.code)
        why = f"EndTxn {'commit' if commit else 'abort'} failed: {refusal}"
        if treatment is Treatment.FATAL:
            self._fail_fatally(refusal.code, f"Failed to end transaction: {refusal}")
        elif treatment is Treatment.ABORT_AND_BUMP and not commit:
            self._bump()
        else:
            if not commit:
                self._state.move(Phase.BEGIN_ABORT)
            self._fail(refusal.code, why, bump=treatment is Treatment.ABORT_AND_BUMP)
            self._state.set_result(kafka_error(reported_code(refusal.code), why, abortable=True))

    def _on_ended(self, *, commit: bool) -> None:
        if self._state.requires_bump:
            self._bump()
            return
        self._state.move(Phase.COMMIT_NOT_ACKED if commit else Phase.ABORT_NOT_ACKED)
        self._state.set_result()
