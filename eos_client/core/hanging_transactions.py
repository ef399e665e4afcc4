"""Finds open transactions that no coordinator will end (KIP-664).

A coordinator ends every transaction that it knows, at the latest when its time-out is over, and that is at most the
brokers' ``transaction.max.timeout.ms``. A transaction that is open on a partition but unknown to every coordinator is
never ended: readers with ``read_committed`` wait before its first record for good.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

_AT_REST = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction as the leader of one partition shows it.

    ``last_timestamp_ms`` is the latest timestamp among its last records, which their producer may have chosen.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class KnownTransaction:
    """A transactional id as its coordinator knows it, with what belongs to its open transaction where it has one.

    ``state`` is Kafka's own name of it; ``partitions`` are those that have been added to the transaction.
    """

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str
    producer_epoch: int | None = None
    timeout_ms: int | None = None
    started_ms: int | None = None
    partitions: frozenset[tuple[str, int]] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether the transaction has not ended on all of its partitions."""
        return self.state not in _AT_REST


class TransactionStatus(Enum):
    """Who will end a partition's open transaction."""

    ONGOING = "its coordinator knows it and will end it"
    RECENT = "no coordinator lists it, but it is too young to be called hanging"
    HIDDEN = "no transactional id that this user may see has its producer id"
    HANGING = "no coordinator knows it: nobody will end it"


def status_of(
    found: OpenTransaction, known: Iterable[KnownTransaction], *, now_ms: int, limit_ms: int, sees_all_ids: bool
) -> TransactionStatus:
    """Return who will end ``found``.

    :param known: every transactional id that was listed after ``found`` was seen.
    :param limit_ms: how long a transaction may last on these brokers (``transaction.max.timeout.ms``).
    :param sees_all_ids: whether this user may see every transactional id, so that ``known`` lacks none.
    """
    owners = [each for each in known if each.producer_id == found.producer_id]
    if any((found.topic, found.partition) in owner.partitions for owner in owners):
        return TransactionStatus.ONGOING
    if now_ms - found.last_timestamp_ms <= limit_ms:
        return TransactionStatus.RECENT
    return TransactionStatus.HANGING if owners or sees_all_ids else TransactionStatus.HIDDEN
