"""The recovery from a failed transactional request (KIP-360, KIP-447, KAFKA-17754), as one table; first match wins.

Safe always means: the input offsets stay fenced by the group's generation, and nothing is sent again unless the log
says that it was not committed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from eos_client.core.error_codes import (
    BROKER_TOO_OLD,
    FORBIDDEN,
    INTERRUPTED,
    NEVER_SENT,
    OFFSET_METADATA_TOO_LARGE,
    OFFSETS_REFUSED,
    OUTCOME_AMBIGUOUS,
    OUTPUT_WITHOUT_PLACE,
    OVERDUE,
    PRODUCER_FENCED,
    PRODUCER_FORGOTTEN,
    RECORD_REFUSED,
    TIMESTAMP_REFUSED,
    TOPIC_MISSING,
    TOPIC_UNKNOWN,
    TRANSACTION_TIMEOUT_REFUSED,
    TRANSACTION_UNKNOWN,
    UNANSWERED,
    WRONG_STATE,
)
from eos_client.core.transaction_timeout import TIMEOUT_WAY_OUT, has_timed_out


class RecoveryAction(Enum):
    """What the owner of the producer does next."""

    RETRY = "retry"
    ABORT_AND_CONTINUE = "abort_and_continue"
    REBUILD_PRODUCER = "rebuild_producer"
    RESOLVE_UNKNOWN = "resolve_unknown"
    CORRECT_CALL = "correct_call"
    CORRECT_OUTPUT = "correct_output"
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


_ENDING = frozenset({TransactionalRequest.COMMIT, TransactionalRequest.ABORT})
_STARTING = frozenset({TransactionalRequest.INIT, TransactionalRequest.BEGIN})


@dataclass(frozen=True, slots=True)
class ProducerFailure:
    """One failed request. ``code``: the error's name in Kafka; ages and timeouts in seconds.

    ``offsets_carry_fence``: the producer's transactions send offsets with a consumer group's metadata (KIP-447).
    ``topics_may_leave``: the refused offsets are of topics that a pattern has matched (`is_of_matched_topics`).
    ``is_repeated``: the same call failed with the same error before, and nothing was committed in between.
    ``init_abandoned``: an init_transactions of ours was abandoned without an answer, so it may take effect late.
    ``was_registered``: the coordinator has confirmed that partitions are in the open transaction.
    ``bump_repeated``: the client library has requested the same epoch bump more than once, and got none.
    ``clock_is_at_fault``: an output was refused for a time that this host's clock gave it.
    ``undelivered_code``: why an output of the transaction was not delivered; empty if that is not known.
    ``may_have_been_sent_twice``: a connection was lost, so the refusal may answer a second copy of the request.
    """

    request: TransactionalRequest
    code: str
    fatal: bool = False
    abortable: bool = False
    retriable: bool = False
    transaction_age_s: float = 0.0
    transaction_timeout_s: float = 60.0
    generated_id: bool = False
    transaction_open: bool = False
    offsets_carry_fence: bool = True
    topics_may_leave: bool = False
    is_repeated: bool = False
    init_abandoned: bool = False
    bump_repeated: bool = False
    was_registered: bool = False
    clock_is_at_fault: bool = False
    undelivered_code: str = ""
    may_have_been_sent_twice: bool = False

    @property
    def is_fenced(self) -> bool:
        """Whether a newer epoch than the producer's own has been given out."""
        return self.code in PRODUCER_FENCED

    @property
    def id_expired_unfenced(self) -> bool:
        """Whether the id has expired at the coordinator, so that another instance may have used it unnoticed.

        Nobody else uses a generated id, and a group's generation fences the input offsets of an older instance.
        """
        return self.code == PRODUCER_FORGOTTEN and not self.offsets_carry_fence and not self.generated_id

    @property
    def fenced_by_another(self) -> bool:
        """Whether only a newer instance can explain the fence.

        librdkafka folds "timed out" and "a newer instance has the id" into one code.
        """
        is_our_own = self.init_abandoned or self.bump_repeated
        return self.is_fenced and not (self.generated_id or self.timed_out or is_our_own)

    @property
    def transaction_is_lost(self) -> bool:
        """Whether the coordinator does not know the transaction any more of which it has confirmed partitions.

        A coordinator acts on all of its log, also on what is not replicated yet. If the next one lacks that, outputs
        and offsets that were written meanwhile have no end: the next marker of the same producer id ends them, and a
        commit makes them visible (seen with Kafka 4.3.1 whose coordinators moved every second).
        """
        return self.code == TRANSACTION_UNKNOWN and self.request in _ENDING and self.was_registered

    @property
    def finishes_handle(self) -> bool:
        """Whether the handle takes no more calls, whatever the class of the error: it can begin no transaction."""
        is_init_in_vain = self.request is TransactionalRequest.INIT and self.fatal
        return is_init_in_vain or self.transaction_is_lost

    @property
    def refuses_offsets(self) -> bool:
        """Whether the records of the transaction belong to another member or generation now."""
        return self.code in OFFSETS_REFUSED

    @property
    def refused_by_state(self) -> bool:
        """Whether librdkafka does not take the call in the state that the producer is in."""
        return self.code == WRONG_STATE

    @property
    def follows_undelivered(self) -> bool:
        """Whether an output is refused because an earlier one of its transaction was not delivered."""
        return self.refused_by_state and self.request is TransactionalRequest.PRODUCE and self.transaction_open

    @property
    def hides_the_reason(self) -> bool:
        """Whether the refusal says only that an output was not delivered, and not why."""
        return self.code == NEVER_SENT or self.follows_undelivered

    @property
    def hidden_code(self) -> str:
        """The reason behind a refusal that hides it, else nothing."""
        return self.undelivered_code if self.hides_the_reason else ""

    @property
    def is_refused(self) -> bool:
        """Whether the error is a definite refusal: of the request, or of a second copy of it."""
        return self.abortable and self.code not in OUTCOME_AMBIGUOUS

    @property
    def commit_took_no_effect(self) -> bool:
        """Whether no commit can have taken effect: none was sent, or its only copy was refused (KAFKA-17754)."""
        is_of_one_copy = not self.may_have_been_sent_twice or self.code == NEVER_SENT
        return self.request is not TransactionalRequest.COMMIT or (self.is_refused and is_of_one_copy)

    @property
    def timed_out(self) -> bool:
        """Whether the transaction is older than ``transaction.timeout.ms``."""
        return has_timed_out(self.transaction_age_s, self.transaction_timeout_s)


@dataclass(frozen=True, slots=True)
class RecoveryRule:
    """One row of the recovery table."""

    applies: Callable[[ProducerFailure], bool]
    action: RecoveryAction
    reason: str


RECOVERY_RULES: tuple[RecoveryRule, ...] = (
    RecoveryRule(
        lambda f: (
            f.request is TransactionalRequest.PRODUCE and f.code in RECORD_REFUSED and not (f.fatal or f.abortable)
        ),
        RecoveryAction.CORRECT_OUTPUT,
        "the call does not take this record, and the transaction is unharmed",
    ),
    RecoveryRule(
        lambda f: f.code == TRANSACTION_TIMEOUT_REFUSED,
        RecoveryAction.STOP_UNFIT,
        f"the brokers allow no transactions that long: {TIMEOUT_WAY_OUT}",
    ),
    RecoveryRule(
        lambda f: (
            f.request is TransactionalRequest.SEND_OFFSETS
            and f.code == TOPIC_UNKNOWN
            and f.topics_may_leave
            and not f.fatal
        ),
        RecoveryAction.ABORT_AND_CONTINUE,
        "a topic that a pattern has matched was deleted: its partitions leave with the next rebalance",
    ),
    RecoveryRule(
        lambda f: f.code in FORBIDDEN or f.hidden_code in FORBIDDEN,
        RecoveryAction.STOP_UNFIT,
        "the brokers forbid it, and no retry changes that. Repair the permissions or the name: this client lacks a "
        "permission, or the topic is one of Kafka's own, which no client may write",
    ),
    RecoveryRule(
        lambda f: f.code in OUTPUT_WITHOUT_PLACE or f.hidden_code in TOPIC_MISSING,
        RecoveryAction.STOP_UNFIT,
        "the cluster lacks the topic or its partition, and no retry changes that. Create it, or repair the name",
    ),
    RecoveryRule(
        lambda f: f.transaction_is_lost,
        RecoveryAction.STOP_UNFIT,
        "the transaction coordinator has lost this transaction, though it had confirmed its partitions: what was "
        "written in it may hang there, and the next commit under this transactional.id would make it visible. See what "
        "hangs by `eos-client txn list`, and end it by `eos-client txn abort`",
    ),
    RecoveryRule(
        lambda f: f.code in BROKER_TOO_OLD,
        RecoveryAction.STOP_UNFIT,
        "the brokers are too old, or speak too old a version: fenced offsets need Kafka 2.5 or newer (KIP-447)",
    ),
    RecoveryRule(
        lambda f: f.code == OFFSET_METADATA_TOO_LARGE,
        RecoveryAction.STOP_UNFIT,
        "the brokers refuse the metadata of an offset: eos-client stores a token of less than 64 bytes with each, to "
        "find its commit again. Raise their offset.metadata.max.bytes (4096 unless it was changed)",
    ),
    RecoveryRule(
        lambda f: f.fenced_by_another,
        RecoveryAction.STOP_FENCED,
        "a newer instance has this transactional.id. Do not start this one again while the other runs: it would take "
        "the id back",
    ),
    RecoveryRule(
        lambda f: f.id_expired_unfenced,
        RecoveryAction.STOP_FATAL,
        "the transactional.id has expired at the coordinator, and without a consumer group's fence nothing shows "
        "whether another instance has written under it since: make sure that none has (KAFKA-18019)",
    ),
    RecoveryRule(
        lambda f: f.clock_is_at_fault and (f.code == TIMESTAMP_REFUSED or f.hides_the_reason),
        RecoveryAction.STOP_UNFIT,
        "this host's clock, which gave the output its time, differs from the broker's by more than the topic's "
        "message.timestamp.before.max.ms or message.timestamp.after.max.ms allows: the broker refuses every output. "
        "Correct the clock, or the topic's limit",
    ),
    RecoveryRule(
        lambda f: f.follows_undelivered and not f.fatal,
        RecoveryAction.ABORT_AND_CONTINUE,
        "an earlier output of this transaction was not delivered: librdkafka refuses more and does not say why",
    ),
    RecoveryRule(
        lambda f: f.refused_by_state and not f.fatal,
        RecoveryAction.CORRECT_CALL,
        "the transactional calls came in an impossible order",
    ),
    RecoveryRule(
        lambda f: not f.commit_took_no_effect and not f.is_refused,
        RecoveryAction.RESOLVE_UNKNOWN,
        "a commit without a definite answer may still take effect (KAFKA-17754)",
    ),
    RecoveryRule(
        lambda f: not f.commit_took_no_effect and f.is_refused,
        RecoveryAction.RESOLVE_UNKNOWN,
        "a connection was lost meanwhile, so this may be the answer to a second copy: the first may have committed, "
        "and the coordinator may have forgotten the transactional.id since (KAFKA-18019)",
    ),
    RecoveryRule(
        lambda f: f.request is TransactionalRequest.INIT and f.retriable and not f.fatal,
        RecoveryAction.RETRY,
        "init_transactions goes on where it stopped",
    ),
    RecoveryRule(
        lambda f: f.fatal or f.code in {OVERDUE, INTERRUPTED},
        RecoveryAction.REBUILD_PRODUCER,
        "the handle is finished; init_transactions of another bumps the epoch and fences it (KIP-360)",
    ),
    RecoveryRule(
        lambda f: (
            f.request is TransactionalRequest.SEND_OFFSETS
            and f.code == PRODUCER_FORGOTTEN
            and (f.is_repeated or f.generated_id)
        ),
        RecoveryAction.REBUILD_PRODUCER,
        "an abort requests a new epoch only if outputs were written (KIP-360), so one with offsets alone fails again",
    ),
    RecoveryRule(
        lambda f: f.request is TransactionalRequest.ABORT,
        RecoveryAction.REBUILD_PRODUCER,
        "an abort that failed leaves the transaction open until init_transactions ends it",
    ),
    RecoveryRule(
        lambda f: f.request is TransactionalRequest.SEND_OFFSETS and f.code in UNANSWERED,
        RecoveryAction.REBUILD_PRODUCER,
        "offsets without a response may still arrive: at the same epoch they would count as the next "
        "transaction's (KAFKA-17754)",
    ),
    RecoveryRule(
        lambda f: f.abortable,
        RecoveryAction.ABORT_AND_CONTINUE,
        "the broker refused or lost part of the transaction: abort, bump the epoch where needed, go on (KIP-360)",
    ),
    RecoveryRule(lambda f: f.request in _STARTING, RecoveryAction.STOP_FATAL, "the producer cannot be started"),
    RecoveryRule(
        lambda _: True,
        RecoveryAction.ABORT_AND_CONTINUE,
        "nothing of an unconfirmed transaction may stay: abort, rewind, go on",
    ),
)


def is_of_matched_topics(by_pattern_alone: Mapping[str, bool], refusal: str) -> bool:
    """Whether ``refusal`` of offsets is for topics that were matched ``by_pattern_alone``, and that may be deleted.

    librdkafka's text lists the partitions that were refused; where it lists none, any of the topics may be meant.
    """
    listed = [topic for topic in by_pattern_alone if re.search(rf"(?<![\w.-]){re.escape(topic)}[(\[]", refusal)]
    return all(by_pattern_alone[topic] for topic in listed) if listed else any(by_pattern_alone.values())


_TIME_REFUSED = re.compile(rf"ProduceRequest for (\S+) \[.*\({TIMESTAMP_REFUSED}\b")


def clock_is_at_fault(failure: str, times_given: Collection[str]) -> bool:
    """Whether a transaction failed because this host's clock is wrong: the time that was refused is the clock's.

    ``failure``: the client library's line about it. ``times_given``: the topics for which the application gave outputs
    a time of its own since all before were acknowledged. The library stamps any other output with the clock of this
    host. If that time is refused, the outputs of every record are, so it is no failure of a record.
    """
    refused = _TIME_REFUSED.search(failure)
    return refused is not None and refused[1] not in times_given


def recovery_for(failure: ProducerFailure) -> RecoveryRule:
    """Return the rule that applies to ``failure``."""
    return next(rule for rule in RECOVERY_RULES if rule.applies(failure))
