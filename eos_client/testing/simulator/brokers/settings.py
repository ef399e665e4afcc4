"""The settings of the simulated brokers, with Kafka's names and defaults; times in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum


class CommitCheck(Enum):
    """Which commits of a KIP-848 member the group coordinator accepts (KAFKA-19779).

    EXACT: only the member's present epoch (Kafka up to 4.2). REVOCATION_EPOCH_MEMBER, REVOCATION_EPOCH_PARTITION: as
    KAFKA-19779 proposed, ``revocation < sent <= present``, with one integer a member or one a partition.
    ASSIGNMENT_EPOCH: ``assigned <= sent <= present`` for each partition (KIP-1251, Kafka 4.3).
    """

    EXACT = "exact"
    REVOCATION_EPOCH_MEMBER = "revocation_epoch_member"
    REVOCATION_EPOCH_PARTITION = "revocation_epoch_partition"
    ASSIGNMENT_EPOCH = "assignment_epoch"


class ProducerStateKind(Enum):
    """A partition's state of each producer: Kafka's last five batches, or only the latest sequence (P5)."""

    FIVE_BATCHES = "five_batches"
    LATEST_SEQUENCE = "latest_sequence"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The settings of the simulated brokers.

    The timestamps of outputs are not limited by default: simulated time begins in 1970, and outputs may have real ones.
    ``producer_byte_rate``: a client quota, in bytes a second, that all producers share.
    """

    commit_validation: CommitCheck = CommitCheck.ASSIGNMENT_EPOCH
    producer_state: ProducerStateKind = ProducerStateKind.FIVE_BATCHES
    max_in_flight_sequence_number_per_connection: int = 10_000_000
    message_max_bytes: int = 1_048_588
    producer_byte_rate: float = math.inf
    log_message_timestamp_before_max_s: float = math.inf
    log_message_timestamp_after_max_s: float = math.inf
    group_min_session_timeout_s: float = 6.0
    group_max_session_timeout_s: float = 1800.0
    group_consumer_session_timeout_s: float = 45.0
    group_consumer_heartbeat_interval_s: float = 5.0
    transaction_max_timeout_s: float = 900.0
    transaction_abort_check_interval_s: float = 1.0
    transactional_id_expiration_s: float = 7 * 86_400.0
    producer_id_expiration_s: float = 86_400.0
