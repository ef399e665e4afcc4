"""The meaning of Kafka error codes: sets of codes, each with its reason.

Codes are named as ``KafkaError.name()`` names them; those that begin with an underscore are librdkafka's own.
"""

from __future__ import annotations

# -- the cluster -----------------------------------------------------------------------------------------------------

READING_FORBIDDEN = frozenset({"TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"})
"""An access control list denies reading the topic or the group."""

WRITING_FORBIDDEN = frozenset({"TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"})
"""An access control list denies writing to the topic."""

TOPIC_MISSING = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"})
"""The topic does not exist, said by a broker or by librdkafka's metadata."""

GROUP_NOT_ADMITTED = frozenset(
    {
        "GROUP_MAX_SIZE_REACHED",
        "INCONSISTENT_GROUP_PROTOCOL",
        "INVALID_GROUP_ID",
        "INVALID_REGULAR_EXPRESSION",
        "INVALID_SESSION_TIMEOUT",
    }
)
"""The group refuses the consumer as it is configured: joining again changes nothing."""

REFUSED_BY_GROUP = GROUP_NOT_ADMITTED | {"GROUP_AUTHORIZATION_FAILED"}
"""The group's coordinator refuses the consumer: what a KIP-848 member's refused heartbeat may say."""

INSTANCE_ID_TAKEN = frozenset({"FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID"})
"""Another member of the group has, or has taken over, this consumer's ``group.instance.id`` (KIP-345)."""

NOT_AUTHENTICATED = frozenset({"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL"})
"""A connection was closed, with its requests unanswered, because of the user's credentials or either's certificate."""

WRITING_IMPOSSIBLE = (
    READING_FORBIDDEN
    | TOPIC_MISSING
    | {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "_UNKNOWN_PARTITION"}
)
"""A transactional request needs a permission, a topic or a partition that the cluster does not have."""

BROKER_TOO_OLD = frozenset({"_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION"})
"""The brokers do not know a request, or the version of it, that fenced offsets need (KIP-447)."""

LEDGER_READ_REFUSED = READING_FORBIDDEN | {"UNKNOWN_TOPIC_OR_PART"}
"""Reading the committed offsets of a Spark sink's ledger again would fail again."""

UNREACHABLE = frozenset({"_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN"})
"""No broker answered an administrative request."""

ALL_BROKERS_DOWN = "_ALL_BROKERS_DOWN"
"""Follows the errors of the single connections, which say why."""

COORDINATOR_OR_LEADER_MOVING = frozenset(
    {
        "NOT_COORDINATOR",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_LEADER_FOR_PARTITION",
        "LEADER_NOT_AVAILABLE",
    }
)
"""A coordinator or leader is being elected or moved: the same request is answered a moment later."""

# -- the group -------------------------------------------------------------------------------------------------------

GENERATION_REFUSED = frozenset({"ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH"})
"""Offsets came with another generation than the group's, or with another epoch than the member's."""

MEMBER_UNKNOWN = "UNKNOWN_MEMBER_ID"
"""The group has no such member; of a transaction's offsets, also a broken producer mapping (KAFKA-14370)."""

OFFSETS_REFUSED = GENERATION_REFUSED | {MEMBER_UNKNOWN, "REBALANCE_IN_PROGRESS"}
"""The group's coordinator refuses offsets of another generation or member: their records belong to someone else."""

LEASE_SUPERSEDED = "FENCED_INSTANCE_ID"
"""A newer driver has joined with the same ``group.instance.id``. A plain commit often says only ``_FATAL`` then."""

LEASE_REFUSED = GENERATION_REFUSED | {MEMBER_UNKNOWN, "_FENCED"}
"""The group refuses the driver's own commit: its membership is over, for whatever reason."""

RUN_FENCED = GENERATION_REFUSED | {LEASE_SUPERSEDED, "GROUP_ID_NOT_FOUND"}
"""The group refuses a task's offsets under the driver's membership: the driver's run is over."""

# -- the producer ----------------------------------------------------------------------------------------------------

PRODUCER_FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
"""A newer epoch of the transactional.id exists. Older request versions say INVALID_PRODUCER_EPOCH."""

PRODUCER_FORGOTTEN = "INVALID_PRODUCER_ID_MAPPING"
"""The coordinator has no record of the transactional.id any more: it has expired."""

OUTCOME_AMBIGUOUS = NOT_AUTHENTICATED | {"REQUEST_TIMED_OUT", "UNKNOWN"}
"""Answers that do not say whether the request took effect, though librdkafka calls them abortable."""

NEVER_SENT = "_INCONSISTENT"
"""librdkafka's own refusal of a commit whose outputs were not all delivered: it sends no EndTxn then."""

UNANSWERED = NOT_AUTHENTICATED | {"_TIMED_OUT", "_TRANSPORT"}
"""No broker has answered the request: it may still arrive."""

OVERDUE = "_OVERDUE"
"""Our own code: the call did not return within the budget that this package gives it."""

FATAL_UNNAMED = "_FATAL"
"""The handle has met a fatal error, which librdkafka names to transactional calls only."""

# -- one output ------------------------------------------------------------------------------------------------------

RECORD_REFUSED = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_MSG", "_INVALID_ARG", "_UNKNOWN_PARTITION"})
"""``produce()`` raises these for the record it was given; the transaction is unharmed."""

DELIVERY_REFUSED = frozenset(
    {
        "INVALID_MSG",
        "INVALID_RECORD",
        "INVALID_TIMESTAMP",
        "MSG_SIZE_TOO_LARGE",
        "POLICY_VIOLATION",
        "RECORD_LIST_TOO_LARGE",
        "TOPIC_EXCEPTION",
        "_UNKNOWN_PARTITION",
    }
)
"""A delivery report says these of an output that will never be written; of others of its batch it may say the same."""

REFUSED_WITH_ANOTHER = "_INVALID_DIFFERENT_RECORD"
"""The broker refused the output because of another one in the same batch."""
