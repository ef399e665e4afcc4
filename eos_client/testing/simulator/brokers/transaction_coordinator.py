"""The transaction coordinator: which producer may use a transactional.id, and how each transaction ends.

It answers as Kafka 4.3 answers a client without KIP-890 part 2, such as librdkafka (InitProducerId v4, EndTxn v1,
AddPartitionsToTxn and AddOffsetsToTxn v0): the next transaction keeps the epoch, so a late EndTxn may end it
(KAFKA-17754).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from eos_client.testing.simulator.brokers.model import NO_EPOCH, BrokerError, Marker, PartitionKey, ProducerIdentity
from eos_client.testing.simulator.brokers.partition_log import PartitionLog
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from eos_client.testing.simulator.brokers.transaction_metadata import (
    PRODUCER_EPOCH_MAX,
    EndTxnAnswer,
    TransactionDescription,
    TransactionLog,
    TransactionMetadata,
    TransactionState,
)

# The retriable errors for a client without KIP-890 whose write is verified while the transaction ends.
_BUSY_AT_PRODUCE = "NOT_ENOUGH_REPLICAS"
_BUSY_AT_OFFSET_COMMIT = "COORDINATOR_NOT_AVAILABLE"


class TransactionalOffsets(Protocol):
    """The group coordinator, as the receiver of a transaction's markers."""

    def complete_transaction(self, group_id: str, producer: ProducerIdentity, *, committed: bool) -> None:
        """Commit the offsets that ``producer`` staged in ``group_id``, or drop them."""
        ...


class TransactionCoordinator:
    """The coordinator of all transactions. Refusals raise BrokerError. ``log`` returns a partition's log."""

    def __init__(
        self,
        clock: Callable[[], float],
        log: Callable[[PartitionKey], PartitionLog],
        groups: TransactionalOffsets,
        settings: BrokerSettings,
    ) -> None:
        self._clock = clock
        self._partition_log = log
        self._groups = groups
        self._settings = settings
        self._durable = TransactionLog()
        self._known: dict[str, TransactionMetadata] = {}
        self._producer_ids: Iterator[int] = iter(())
        self._hold_markers = False
        self._due_s: float | None = None

    # -- requests ------------------------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str | None, timeout_s: float, expected: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        """InitProducerId: return a producer's identity, and fence earlier producers of the transactional.id (KIP-98).

        ``expected`` requests a bump of that identity only (KIP-360). Raises CONCURRENT_TRANSACTIONS while an earlier
        transaction ends (repeat the call), PRODUCER_FENCED, INVALID_TRANSACTION_TIMEOUT, INVALID_REQUEST.
        """
        if transactional_id is None:
            return ProducerIdentity(self._new_producer_id(), 0)
        self._check_init(transactional_id, timeout_s, expected)
        now_s = self._clock()
        known = self._known.get(transactional_id)
        if known is None:
            unused = ProducerIdentity(self._new_producer_id(), NO_EPOCH)
            known = TransactionMetadata(transactional_id, unused, timeout_s, now_s)
        if expected is not None and not known.is_predecessor(expected):
            raise BrokerError(
                "PRODUCER_FENCED", f"producer id {expected.producer_id} does not belong to {transactional_id!r}"
            )
        if known.state is TransactionState.ONGOING:
            self._end(known.fenced(), commit=False)
            raise BrokerError("CONCURRENT_TRANSACTIONS", "the open transaction is aborted first")
        self._check_not_ending(known)
        known = known.initialised(expected, timeout_s, now_s, self._new_producer_id)
        self._write(known)
        return known.producer

    def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[PartitionKey]
    ) -> None:
        """AddPartitionsToTxn: add partitions to the open transaction, or begin one with them.

        Raises UNKNOWN_TOPIC_OR_PART, INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, CONCURRENT_TRANSACTIONS.
        """
        wanted = frozenset(partitions)
        for partition in sorted(wanted):
            self._partition_log(partition)
        self._add(transactional_id, producer, wanted, frozenset())

    def add_offsets(self, transactional_id: str, producer: ProducerIdentity, group_id: str) -> None:
        """AddOffsetsToTxn: add ``group_id`` to the transaction. Raises as `add_partitions` does."""
        self._add(transactional_id, producer, frozenset(), frozenset({group_id}))

    def end(self, transactional_id: str, producer: ProducerIdentity, *, commit: bool) -> None:
        """EndTxn: make the outcome durable and write the markers. A repetition has no effect.

        Raises INVALID_TXN_STATE, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING; CONCURRENT_TRANSACTIONS while
        the markers of the same outcome are not written yet.
        """
        known = self._of(transactional_id, producer)
        answer = known.end_txn_answer(commit=commit)
        if answer is EndTxnAnswer.WAIT:
            self._check_not_ending(known)
        elif answer is EndTxnAnswer.PREPARE:
            self._end(known, commit=commit)

    def verify(
        self, transactional_id: str | None, producer_id: int, producer_epoch: int, partition: PartitionKey
    ) -> None:
        """Refuse a write to a partition that is not in the producer's open transaction (KIP-890 part 1).

        Raises INVALID_TXN_STATE, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING; NOT_ENOUGH_REPLICAS, which is
        retriable, while the transaction ends.
        """
        known = self._verified(transactional_id, ProducerIdentity(producer_id, producer_epoch), _BUSY_AT_PRODUCE)
        if partition not in known.partitions:
            raise BrokerError(
                "INVALID_TXN_STATE", f"{partition.topic} [{partition.partition}] is not in the transaction"
            )

    def verify_offsets(self, transactional_id: str | None, producer: ProducerIdentity, group_id: str) -> None:
        """Refuse to stage offsets of a group that is not in the producer's open transaction (KIP-890 part 1).

        Raises as `verify` does, but for COORDINATOR_NOT_AVAILABLE, which is retriable, while the transaction ends.
        """
        if group_id not in self._verified(transactional_id, producer, _BUSY_AT_OFFSET_COMMIT).groups:
            raise BrokerError("INVALID_TXN_STATE", f"group {group_id!r} is not in the transaction")

    # -- for test scripts ----------------------------------------------------------------------------------------

    @property
    def hold_markers(self) -> bool:
        """Whether a transaction that ends stays in PrepareCommit or PrepareAbort, its markers unwritten.

        EndTxn is answered nevertheless, as by a real broker; later requests get CONCURRENT_TRANSACTIONS. Once this is
        False again, the next `work` writes the markers.
        """
        return self._hold_markers

    @hold_markers.setter
    def hold_markers(self, hold: bool) -> None:
        self._hold_markers = hold
        self._due_s = None

    def forget(self, transactional_id: str) -> None:
        """Expire the id now: INVALID_PRODUCER_ID_MAPPING from now on. An open transaction is aborted first.

        Raises LookupError for an unknown id.
        """
        known = self._require_known(transactional_id)
        if known.state is TransactionState.ONGOING:
            self._end(known.fenced(), commit=False)
        known = self._known[transactional_id]
        if known.state.is_prepared:
            self._complete(known)
        self._remove(transactional_id)

    def set_epoch(self, transactional_id: str, producer_epoch: int) -> None:
        """Bump the epoch to ``producer_epoch``, as that many initialisations do; the present one is fenced.

        Raises LookupError for an unknown id, ValueError for an epoch that does not rise or is above 32767.
        """
        known = self._require_known(transactional_id)
        if not known.producer.producer_epoch < producer_epoch <= PRODUCER_EPOCH_MAX:
            raise ValueError(f"the epoch of {transactional_id!r} is {known.producer.producer_epoch}: {producer_epoch}")
        self._write(known.at_epoch(producer_epoch))

    def restart(self) -> None:
        """Restore the state from the log. The markers of decided transactions are written afterwards."""
        self._known = self._durable.replay()
        self._producer_ids = iter(())
        self._due_s = None

    def describe(self, transactional_id: str) -> TransactionDescription | None:
        """Return the state of ``transactional_id``; None: it is unknown."""
        known = self._known.get(transactional_id)
        return None if known is None else known.described()

    # -- time ----------------------------------------------------------------------------------------------------

    @property
    def due_s(self) -> float:
        """When the next transaction times out, id expires, or waiting marker can be written; ``math.inf``: never."""
        if self._due_s is None:
            self._due_s = min(map(self._due_of, self._known.values()), default=math.inf)
        return self._due_s

    def work(self) -> None:
        """Abort transactions that timed out and fence their producers; write markers; expire idle ids."""
        now_s = self._clock()
        for known in [each for each in self._known.values() if self._due_of(each) <= now_s]:
            if known.state is TransactionState.ONGOING:
                self._end(known.fenced(), commit=False)
            elif known.state.is_prepared:
                self._complete(known)
            else:
                self._remove(known.transactional_id)

    def _due_of(self, known: TransactionMetadata) -> float:
        if known.state.is_prepared:
            return math.inf if self._hold_markers else known.updated_s
        if known.started_s is None:
            return known.updated_s + self._settings.transactional_id_expiration_s
        interval_s = self._settings.transaction_abort_check_interval_s
        return (math.floor((known.started_s + known.timeout_s) / interval_s) + 1) * interval_s

    # -- steps ---------------------------------------------------------------------------------------------------

    def _check_init(self, transactional_id: str, timeout_s: float, expected: ProducerIdentity | None) -> None:
        if not transactional_id or (expected is not None and min(expected.producer_id, expected.producer_epoch) < 0):
            raise BrokerError("INVALID_REQUEST", f"transactional.id {transactional_id!r}, expected {expected}")
        if not 0 < timeout_s <= self._settings.transaction_max_timeout_s:
            allowed_s = self._settings.transaction_max_timeout_s
            raise BrokerError("INVALID_TRANSACTION_TIMEOUT", f"{timeout_s:g} s, allowed are up to {allowed_s:g} s")

    def _of(self, transactional_id: str | None, producer: ProducerIdentity) -> TransactionMetadata:
        if not transactional_id:
            raise BrokerError("INVALID_REQUEST", "no transactional.id")
        known = self._known.get(transactional_id)
        if known is None or known.producer.producer_id != producer.producer_id:
            raise BrokerError("INVALID_PRODUCER_ID_MAPPING", f"{transactional_id!r} does not belong to {producer}")
        if known.producer != producer:
            raise BrokerError(
                "INVALID_PRODUCER_EPOCH", f"{producer}, but {transactional_id!r} belongs to {known.producer}"
            )
        return known

    def _check_not_ending(self, known: TransactionMetadata) -> None:
        if known.state.is_prepared:
            raise BrokerError("CONCURRENT_TRANSACTIONS", f"{known.transactional_id!r} is in {known.state.value}")

    def _add(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[PartitionKey],
        groups: frozenset[str],
    ) -> None:
        known = self._of(transactional_id, producer)
        self._check_not_ending(known)
        self._write(known.with_members(partitions, groups, self._clock()))

    def _verified(self, transactional_id: str | None, producer: ProducerIdentity, busy: str) -> TransactionMetadata:
        if transactional_id is None:
            raise BrokerError("INVALID_TXN_STATE", "a transactional write without a transactional.id")
        known = self._of(transactional_id, producer)
        if known.state.is_prepared:
            raise BrokerError(busy, f"{transactional_id!r} is in {known.state.value}")
        return known

    def _end(self, known: TransactionMetadata, *, commit: bool) -> None:
        prepared = known.prepared(self._clock(), commit=commit)
        self._write(prepared)
        if not self._hold_markers:
            self._complete(prepared)

    def _complete(self, prepared: TransactionMetadata) -> None:
        now_s = self._clock()
        for partition in sorted(prepared.partitions):
            try:
                log = self._partition_log(partition)
            except BrokerError:
                continue  # its topic was deleted: Kafka writes no marker there either
            log.append_marker(prepared.producer, prepared.outcome, now_s)
        for group_id in sorted(prepared.groups):
            committed = prepared.outcome is Marker.COMMIT
            self._groups.complete_transaction(group_id, prepared.producer, committed=committed)
        self._write(prepared.completed(now_s))

    def _new_producer_id(self) -> int:
        producer_id = next(self._producer_ids, None)
        if producer_id is None:
            self._producer_ids = iter(self._durable.reserve_producer_ids())
            producer_id = next(self._producer_ids)
        return producer_id

    def _require_known(self, transactional_id: str) -> TransactionMetadata:
        known = self._known.get(transactional_id)
        if known is None:
            raise LookupError(f"no producer has used transactional.id {transactional_id!r}")
        return known

    def _write(self, known: TransactionMetadata) -> None:
        self._durable.append(known.transactional_id, known)
        self._known[known.transactional_id] = known
        self._due_s = None

    def _remove(self, transactional_id: str) -> None:
        self._durable.append(transactional_id, None)
        del self._known[transactional_id]
        self._due_s = None
