"""The meaning of Kafka error codes: codes and sets of them, each with its reason. No other module spells one.

Codes are named as ``KafkaError.name()`` names them; those that begin with an underscore are librdkafka's own.
"""

from __future__ import annotations

# -- the cluster -----------------------------------------------------------------------------------------------------

TOPIC_FORBIDDEN = "TOPIC_AUTHORIZATION_FAILED"
"""An access control list denies a request about the topic."""

GROUP_FORBIDDEN = "GROUP_AUTHORIZATION_FAILED"
"""An access control list denies a request about the consumer group, joining it included."""

CLUSTER_FORBIDDEN = "CLUSTER_AUTHORIZATION_FAILED"
"""An access control list denies a request about the cluster, its brokers or idempotent writing."""

TRANSACTIONAL_ID_FORBIDDEN = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
"""An access control list denies transactions under the transactional.id."""

READING_FORBIDDEN = frozenset({TOPIC_FORBIDDEN, GROUP_FORBIDDEN})
"""An access control list denies reading the topic or the group."""

FORBIDDEN = READING_FORBIDDEN | {CLUSTER_FORBIDDEN, TRANSACTIONAL_ID_FORBIDDEN, "DELEGATION_TOKEN_AUTHORIZATION_FAILED"}
"""An access control list denies the request."""

WRITING_FORBIDDEN = frozenset({TOPIC_FORBIDDEN, CLUSTER_FORBIDDEN})
"""An access control list denies writing to the topic."""

TOPIC_UNKNOWN = "UNKNOWN_TOPIC_OR_PART"
"""The brokers know no such topic, or no such partition of it."""

TOPIC_MISSING = frozenset({TOPIC_UNKNOWN, "_UNKNOWN_TOPIC"})
"""The topic does not exist, said by a broker or by librdkafka's metadata."""

TOPIC_NAME_REFUSED = "TOPIC_EXCEPTION"
"""No topic may have this name."""

TOPIC_UNREADABLE = TOPIC_MISSING | {TOPIC_FORBIDDEN, TOPIC_NAME_REFUSED}
"""The topic does not exist, may not be seen, or has a name that no topic may have."""

PARTITION_UNKNOWN = "_UNKNOWN_PARTITION"
"""The topic has no such partition, said by librdkafka's metadata, which may be some minutes old."""

GROUP_FULL = "GROUP_MAX_SIZE_REACHED"
"""The group has as many members as the brokers' ``group.max.size`` or ``group.consumer.max.size`` allows."""

GROUP_PROTOCOL_DIFFERS = "INCONSISTENT_GROUP_PROTOCOL"
"""No ``partition.assignment.strategy`` or ``group.protocol`` is common to the consumer and the group's members."""

SESSION_TIMEOUT_REFUSED = "INVALID_SESSION_TIMEOUT"
"""``session.timeout.ms`` is outside of the brokers' bounds."""

ASSIGNOR_REFUSED = "UNSUPPORTED_ASSIGNOR"
"""The brokers have no assignor of the name that ``group.remote.assignor`` gives (KIP-848)."""

PATTERN_REFUSED = "INVALID_REGULAR_EXPRESSION"
"""RE2/J, with which brokers match the patterns of KIP-848 members, does not take a pattern of the subscription."""

GROUP_NOT_ADMITTED = frozenset(
    {
        ASSIGNOR_REFUSED,
        GROUP_FULL,
        GROUP_PROTOCOL_DIFFERS,
        SESSION_TIMEOUT_REFUSED,
        "INVALID_GROUP_ID",
        PATTERN_REFUSED,
    }
)
"""The group refuses the consumer as it is configured: joining again changes nothing."""

REFUSED_BY_GROUP = GROUP_NOT_ADMITTED | {GROUP_FORBIDDEN}
"""The group's coordinator refuses the consumer: what a KIP-848 member's refused heartbeat may say."""

INSTANCE_FENCED = "FENCED_INSTANCE_ID"
"""A newer member has joined with the same ``group.instance.id``. A plain commit often says only ``_FATAL`` then."""

INSTANCE_ID_TAKEN = frozenset({INSTANCE_FENCED, "UNRELEASED_INSTANCE_ID"})
"""Another member of the group has, or has taken over, this consumer's ``group.instance.id`` (KIP-345)."""

NOT_AUTHENTICATED = frozenset({"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL"})
"""A connection was closed, with its requests unanswered: the credentials or one side's certificate were refused."""

TRANSACTION_UNKNOWN = "INVALID_TXN_STATE"
"""The transaction coordinator has no open transaction of this producer, or the partition is not in it."""

OUTPUT_WITHOUT_PLACE = TOPIC_MISSING | {PARTITION_UNKNOWN}
"""A transactional request needs a topic or a partition that the cluster does not have."""

BROKER_TOO_OLD = frozenset({"_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION"})
"""The brokers do not know a request, or the version of it, that fenced offsets need (KIP-447)."""

LEDGER_READ_REFUSED = READING_FORBIDDEN | {TOPIC_UNKNOWN}
"""Reading the committed offsets of a Spark sink's ledger again would fail again."""

ALL_BROKERS_DOWN = "_ALL_BROKERS_DOWN"
"""Reported after the errors of the individual connections, which contain the reason."""

UNREACHABLE = frozenset({"_TRANSPORT", "_TIMED_OUT", ALL_BROKERS_DOWN})
"""No broker answered an administrative request."""

COORDINATOR_MOVING = frozenset({"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"})
"""A coordinator is being elected or moved: the same request is answered a moment later."""

END_UNKNOWN = frozenset({"NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE", "_NOENT"})
"""No leader could say where its partition ends: it is being elected or moved, or is new and does not know it yet
(KIP-207). ``_NOENT`` is librdkafka's "No leaders found", which it says of any topic after a lost connection."""

PARTITION_END = "_PARTITION_EOF"
"""No failure: a partition was read to its end, which ``enable.partition.eof`` has librdkafka say."""

RESET_FORBIDDEN = "_AUTO_OFFSET_RESET"
"""There is no offset to go on at, or the log does not reach it, and ``auto.offset.reset=error`` allows no other."""

# -- the group -------------------------------------------------------------------------------------------------------

GENERATION_REFUSED = frozenset({"ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH"})
"""Offsets came with another generation than the group's, or with another epoch than the member's."""

MEMBER_UNKNOWN = "UNKNOWN_MEMBER_ID"
"""The group has no such member; of a transaction's offsets, also a broken producer mapping (KAFKA-14370)."""

OFFSETS_REFUSED = GENERATION_REFUSED | {MEMBER_UNKNOWN, "REBALANCE_IN_PROGRESS"}
"""The group's coordinator refuses offsets of another generation or member: their records belong to someone else."""

GROUP_UNKNOWN = "GROUP_ID_NOT_FOUND"
"""The coordinator knows no such group. It answers a plain commit by this if the group was deleted, and the offsets of a
transaction by ILLEGAL_GENERATION."""

RUN_FENCED = GENERATION_REFUSED | {INSTANCE_FENCED, GROUP_UNKNOWN}
"""The group refuses a task's offsets under the driver's membership: the driver's run is over."""

LEASE_REFUSED = RUN_FENCED | {MEMBER_UNKNOWN, "_FENCED"}
"""The group refuses the driver's own commit: its membership is over, for whatever reason."""

# -- the producer ----------------------------------------------------------------------------------------------------

PRODUCER_FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
"""A newer epoch of the transactional.id exists. Older request versions say INVALID_PRODUCER_EPOCH."""

PRODUCER_FORGOTTEN = "INVALID_PRODUCER_ID_MAPPING"
"""The coordinator has no record of the transactional.id any more: it has expired."""

TRANSACTION_TIMEOUT_REFUSED = "INVALID_TRANSACTION_TIMEOUT"
"""``transaction.timeout.ms`` is above the brokers' limit. They look at the permission for the id first."""

OFFSET_METADATA_TOO_LARGE = "OFFSET_METADATA_TOO_LARGE"
"""The text beside an offset is longer than the brokers' ``offset.metadata.max.bytes``."""

WRONG_STATE = "_STATE"
"""The call is invalid in the producer's state. ``produce`` also gets it after an earlier output failed."""

OUTCOME_AMBIGUOUS = NOT_AUTHENTICATED | {"REQUEST_TIMED_OUT", "UNKNOWN"}
"""Answers that do not say whether the request took effect, though librdkafka calls them abortable."""

NEVER_SENT = "_INCONSISTENT"
"""librdkafka's own refusal of a commit whose outputs were not all delivered: it sends no EndTxn then."""

UNANSWERED = NOT_AUTHENTICATED | {"_TIMED_OUT", "_TRANSPORT"}
"""No broker has answered the request: it may still arrive."""

OVERDUE = "_OVERDUE"
"""Our own code: the call did not return within the budget that this package gives it."""

INTERRUPTED = "_INTR"
"""An asynchronous exception has struck before the outcome of the call was recorded: it may have been made or not."""

FATAL_UNNAMED = "_FATAL"
"""The handle has met a fatal error, which librdkafka names to transactional calls only."""

# -- one output ------------------------------------------------------------------------------------------------------

OUTPUT_TOO_LARGE = "MSG_SIZE_TOO_LARGE"
"""The output, or its batch, is above the topic's limit. librdkafka says the same of its own limit for an output."""

REFUSED_FOR_SIZE = frozenset({OUTPUT_TOO_LARGE, "RECORD_LIST_TOO_LARGE"})
"""A smaller output, or one in a smaller batch, may be taken."""

RECORD_INVALID = "INVALID_RECORD"
"""The broker's checks refuse the output, or another one of its batch: a compacted topic takes none without a key."""

ARGUMENT_REFUSED = "_INVALID_ARG"
"""librdkafka does not take an argument of the call, which need not be ``produce()``."""

RECORD_REFUSED = frozenset({OUTPUT_TOO_LARGE, ARGUMENT_REFUSED, "INVALID_MSG", PARTITION_UNKNOWN})
"""``produce()`` raises these for the record it was given; the transaction is unharmed."""

PURGED = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})
"""The client itself has dropped the output: no broker refused it."""

TIMESTAMP_REFUSED = "INVALID_TIMESTAMP"
"""An output's time is too far from the broker's clock for its topic (KIP-937).

If one output of a batch is wrong, the reports carry this code; if several are, INVALID_RECORD. The transaction's error
carries it in both cases. None contains the refused time.
"""

DELIVERY_REFUSED = frozenset(
    {
        "INVALID_MSG",
        "INVALID_RECORD",
        TIMESTAMP_REFUSED,
        OUTPUT_TOO_LARGE,
        "POLICY_VIOLATION",
        "RECORD_LIST_TOO_LARGE",
        TOPIC_NAME_REFUSED,
        PARTITION_UNKNOWN,
    }
)
"""Delivery reports carry these for an output that will never be written, and sometimes for others in its batch."""

REFUSED_WITH_ANOTHER = "_INVALID_DIFFERENT_RECORD"
"""The broker refused the output because of another one in the same batch."""
