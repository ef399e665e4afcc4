"""The transaction coordinator's state of one transactional.id, and its transitions (KIP-98, KIP-360).

A transition makes a new value, which is written to the coordinator's log before it takes effect; a restarted
coordinator reads that log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from eos_client.testing.simulator.brokers.model import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    BrokerError,
    Marker,
    PartitionKey,
    ProducerIdentity,
)

# No producer gets the largest epoch, so that the coordinator can still fence the producer with the one before.
PRODUCER_EPOCH_MAX = 32_767
_LAST_USABLE_EPOCH = PRODUCER_EPOCH_MAX - 1

_PRODUCER_IDS_A_BLOCK = 1_000
_RECORDS_BEFORE_COMPACTION = 1_000


class TransactionState(Enum):
    """Kafka's states of a transactional.id, by Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and its markers are not all written."""
        return self in _COMPLETED


_PREPARED = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
_COMPLETED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class EndTxnAnswer(Enum):
    """The effect of EndTxn: end the transaction, nothing because it has ended so, or let the client retry."""

    PREPARE = "prepare"
    DONE_BEFORE = "done before"
    WAIT = "wait"


# By state, and whether the request is a commit; a missing pair is INVALID_TXN_STATE.
_END_TXN = {
    (TransactionState.ONGOING, True): EndTxnAnswer.PREPARE,
    (TransactionState.ONGOING, False): EndTxnAnswer.PREPARE,
    (TransactionState.PREPARE_COMMIT, True): EndTxnAnswer.WAIT,
    (TransactionState.PREPARE_ABORT, False): EndTxnAnswer.WAIT,
    (TransactionState.COMPLETE_COMMIT, True): EndTxnAnswer.DONE_BEFORE,
    (TransactionState.COMPLETE_ABORT, False): EndTxnAnswer.DONE_BEFORE,
}


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The answer of DescribeTransactions for one id. ``started_s`` None: no transaction is open."""

    transactional_id: str
    state: str
    producer: ProducerIdentity
    timeout_s: float
    partitions: frozenset[PartitionKey]
    groups: frozenset[str]
    started_s: float | None


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """One transactional.id. Times in seconds.

    ``last_producer_epoch``: the epoch before a bump that the producer itself requested, by which a repeated request is
    recognised (KIP-360); ``previous_producer_id``: likewise, for a changed producer id.
    """

    transactional_id: str
    producer: ProducerIdentity
    timeout_s: float
    updated_s: float
    state: TransactionState = TransactionState.EMPTY
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    partitions: frozenset[PartitionKey] = frozenset()
    groups: frozenset[str] = frozenset()
    started_s: float | None = None

    @property
    def outcome(self) -> Marker:
        """The decided outcome; only a prepared transaction has one."""
        return Marker.COMMIT if self.state is TransactionState.PREPARE_COMMIT else Marker.ABORT

    def is_predecessor(self, expected: ProducerIdentity) -> bool:
        """Whether ``expected`` may request a bump: it has the present producer id, or the exhausted one before."""
        return (
            self.producer.producer_epoch == NO_EPOCH
            or expected.producer_id == self.producer.producer_id
            or (expected.producer_id == self.previous_producer_id and expected.producer_epoch >= _LAST_USABLE_EPOCH)
        )

    def initialised(
        self, expected: ProducerIdentity | None, timeout_s: float, now_s: float, new_producer_id: Callable[[], int]
    ) -> TransactionMetadata:
        """Return the state after InitProducerId, by the four rules of KIP-360.

        Raises BrokerError PRODUCER_FENCED if ``expected`` is neither the present identity nor the previous one.
        """
        epoch = self.producer.producer_epoch
        if expected is not None and epoch not in (NO_EPOCH, expected.producer_epoch):
            if expected.producer_epoch != self.last_producer_epoch:
                raise BrokerError("PRODUCER_FENCED", f"epoch {expected.producer_epoch}, but the producer is at {epoch}")
            return replace(self, state=TransactionState.EMPTY, timeout_s=timeout_s, updated_s=now_s)
        if epoch >= _LAST_USABLE_EPOCH:
            producer = ProducerIdentity(new_producer_id(), 0)
        else:
            producer = ProducerIdentity(self.producer.producer_id, epoch + 1)
        last_epoch = NO_EPOCH if expected is None else epoch
        moved = self._moved(TransactionState.EMPTY, now_s)
        return replace(moved, producer=producer, last_producer_epoch=last_epoch, timeout_s=timeout_s)

    def with_members(
        self, partitions: frozenset[PartitionKey], groups: frozenset[str], now_s: float
    ) -> TransactionMetadata:
        """Return the state with more partitions and groups in the transaction, which begins if none is open."""
        running = self.state is TransactionState.ONGOING
        return self._moved(
            TransactionState.ONGOING,
            now_s,
            partitions=self.partitions | partitions if running else partitions,
            groups=self.groups | groups if running else groups,
            started_s=self.started_s if running else now_s,
        )

    def fenced(self) -> TransactionMetadata:
        """Return the state at an epoch that no producer has, so that the present producer is refused everywhere."""
        return self.at_epoch(min(self.producer.producer_epoch + 1, PRODUCER_EPOCH_MAX))

    def at_epoch(self, producer_epoch: int) -> TransactionMetadata:
        """Return the state at ``producer_epoch``, without an earlier bump that could be repeated."""
        producer = ProducerIdentity(self.producer.producer_id, producer_epoch)
        return replace(self, producer=producer, last_producer_epoch=NO_EPOCH)

    def described(self) -> TransactionDescription:
        """Return the answer of DescribeTransactions."""
        return TransactionDescription(
            self.transactional_id,
            self.state.value,
            self.producer,
            self.timeout_s,
            self.partitions,
            self.groups,
            self.started_s,
        )

    def end_txn_answer(self, *, commit: bool) -> EndTxnAnswer:
        """Return the effect of EndTxn in this state; raises BrokerError INVALID_TXN_STATE."""
        answer = _END_TXN.get((self.state, commit))
        if answer is None:
            raise BrokerError("INVALID_TXN_STATE", f"{'commit' if commit else 'abort'} in state {self.state.value}")
        return answer

    def prepared(self, now_s: float, *, commit: bool) -> TransactionMetadata:
        """Return the state with the decided outcome."""
        return self._moved(
            _PREPARED[commit], now_s, partitions=self.partitions, groups=self.groups, started_s=self.started_s
        )

    def completed(self, now_s: float) -> TransactionMetadata:
        """Return the state after the markers of its outcome were written."""
        return self._moved(_COMPLETED[self.state], now_s)

    def _moved(
        self,
        state: TransactionState,
        now_s: float,
        *,
        partitions: frozenset[PartitionKey] = frozenset(),
        groups: frozenset[str] = frozenset(),
        started_s: float | None = None,
    ) -> TransactionMetadata:
        return replace(
            self,
            state=state,
            updated_s=now_s,
            previous_producer_id=self.producer.producer_id,
            partitions=partitions,
            groups=groups,
            started_s=started_s,
        )


class TransactionLog:
    """The durable state: __transaction_state, and the controller's blocks of producer ids."""

    def __init__(self) -> None:
        self._records: list[tuple[str, TransactionMetadata | None]] = []
        self._next_block = 0
        self._compact_above = _RECORDS_BEFORE_COMPACTION

    def append(self, transactional_id: str, metadata: TransactionMetadata | None) -> None:
        """Write the state of ``transactional_id``; None: it has expired."""
        self._records.append((transactional_id, metadata))
        if len(self._records) > self._compact_above:
            self._records = list(self.replay().items())
            self._compact_above = 2 * len(self._records) + _RECORDS_BEFORE_COMPACTION

    def replay(self) -> dict[str, TransactionMetadata]:
        """Return the latest state of every transactional.id that has not expired; no state holds its last epoch."""
        latest: dict[str, TransactionMetadata] = {}
        for transactional_id, metadata in self._records:
            if metadata is None:
                latest.pop(transactional_id, None)
            else:
                latest[transactional_id] = replace(metadata, last_producer_epoch=NO_EPOCH)
        return latest

    def reserve_producer_ids(self) -> range:
        """Return a block of unused producer ids."""
        first = self._next_block * _PRODUCER_IDS_A_BLOCK
        self._next_block += 1
        return range(first, first + _PRODUCER_IDS_A_BLOCK)
