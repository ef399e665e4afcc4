"""What to do when a transactional request fails (KIP-360, KIP-447, KAFKA-17754), as one table, first match wins.

Safe always means: the input offsets stay fenced by the group's generation, and nothing is sent again unless the log
says that it was not committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class RecoveryAction(Enum):
    """What the owner of the producer does next."""

    RETRY = "retry"
    ABORT_AND_CONTINUE = "abort_and_continue"
    REBUILD_PRODUCER = "rebuild_producer"
    RESOLVE_UNKNOWN = "resolve_unknown"
    CORRECT_CALL = "correct_call"
    STOP_FENCED = "stop_fenced"
    STOP_UNFIT = "stop_unfit"
    STOP_FATAL = "stop_fatal"


class TransactionalRequest(Enum):
    """The call that failed."""

    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    PRODUCE = "produce"
    FLUSH = "flush"
    SEND_OFFSETS = "send_offsets_to_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"


OVERDUE = "_OVERDUE"
"""Our own code: the call did not return within the budget that is imposed from outside."""

_FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_UNFIT = frozenset(
    {
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "_AUTHENTICATION",
        "_UNSUPPORTED_FEATURE",
        "UNSUPPORTED_VERSION",
        "INVALID_TRANSACTION_TIMEOUT",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
    }
)
_STARTING = frozenset({TransactionalRequest.INIT, TransactionalRequest.BEGIN})


@dataclass(frozen=True, slots=True)
class ProducerFailure:
    """One failed request. ``code``: the error's name in Kafka; ages and timeouts in seconds."""

    request: TransactionalRequest
    code: str
    fatal: bool = False
    abortable: bool = False
    retriable: bool = False
    transaction_age_s: float = 0.0
    transaction_timeout_s: float = 60.0
    generated_id: bool = False
    transaction_open: bool = False

    @property
    def fenced_by_another(self) -> bool:
        """Whether only a newer instance can explain the fence.

        librdkafka folds "timed out" and "a newer instance has the id" into one code.
        """
        explained = self.generated_id or self.transaction_age_s >= self.transaction_timeout_s
        return self.code in _FENCED and not explained


@dataclass(frozen=True, slots=True)
class RecoveryRule:
    """One row of the recovery table."""

    applies: Callable[[ProducerFailure], bool]
    action: RecoveryAction
    reason: str


RECOVERY_RULES: tuple[RecoveryRule, ...] = (
    RecoveryRule(
        lambda f: f.code in _UNFIT,
        RecoveryAction.STOP_UNFIT,
        "the cluster lacks or forbids something that no retry brings",
    ),
    RecoveryRule(
        lambda f: f.fenced_by_another,
        RecoveryAction.STOP_FENCED,
        "a newer instance has this transactional.id; two instances must never take turns",
    ),
    RecoveryRule(
        lambda f: (
            f.code == "_STATE" and f.request is TransactionalRequest.PRODUCE and f.transaction_open and not f.fatal
        ),
        RecoveryAction.ABORT_AND_CONTINUE,
        "an earlier output of this transaction was not delivered: librdkafka takes no more, and says only that",
    ),
    RecoveryRule(
        lambda f: f.code == "_STATE" and not f.fatal,
        RecoveryAction.CORRECT_CALL,
        "the transactional calls came in an impossible order",
    ),
    RecoveryRule(
        lambda f: f.request is TransactionalRequest.COMMIT and not f.abortable,
        RecoveryAction.RESOLVE_UNKNOWN,
        "a commit without a definite answer may still take effect (KAFKA-17754)",
    ),
    RecoveryRule(
        lambda f: f.request is TransactionalRequest.INIT and f.retriable and not f.fatal,
        RecoveryAction.RETRY,
        "init_transactions is resumable: call it again",
    ),
    RecoveryRule(
        lambda f: f.fatal or f.code == OVERDUE,
        RecoveryAction.REBUILD_PRODUCER,
        "the handle is finished; init_transactions of another bumps the epoch and fences it (KIP-360)",
    ),
    RecoveryRule(
        lambda f: f.request is TransactionalRequest.SEND_OFFSETS and f.code == "INVALID_PRODUCER_ID_MAPPING",
        RecoveryAction.REBUILD_PRODUCER,
        "librdkafka does not bump the epoch here: a transaction that starts with offsets would fail for ever",
    ),
    RecoveryRule(
        lambda f: f.request is TransactionalRequest.ABORT and not f.abortable,
        RecoveryAction.REBUILD_PRODUCER,
        "an abort that failed leaves the transaction open until init_transactions ends it",
    ),
    RecoveryRule(
        lambda f: f.abortable,
        RecoveryAction.ABORT_AND_CONTINUE,
        "the broker refused or lost part of the transaction: abort, bump the epoch where needed, go on (KIP-360)",
    ),
    RecoveryRule(
        lambda f: f.request in _STARTING,
        RecoveryAction.STOP_FATAL,
        "the producer cannot be started",
    ),
    RecoveryRule(
        lambda _: True,
        RecoveryAction.ABORT_AND_CONTINUE,
        "nothing of an unconfirmed transaction may stay: abort, rewind, go on",
    ),
)


def recovery_for(failure: ProducerFailure) -> RecoveryRule:
    """Return the row that applies to ``failure``."""
    return next(rule for rule in RECOVERY_RULES if rule.applies(failure))
