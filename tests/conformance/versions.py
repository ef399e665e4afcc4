"""The brokers that the suite compares, and the times in which they forget sessions, transactions and ids."""

from __future__ import annotations

SESSION_S = 12.0  # shorter than the time after which ids are forgotten
HEARTBEAT_S = 0.1
TRANSACTIONAL_ID_EXPIRATION_S = 15.0
TIMESTAMP_AFTER_MAX_S = 3600  # Kafka's default
TRANSACTION_CHECK_S = 1.0

EXACT, ASSIGNMENT_EPOCH = "exact", "assignment_epoch"
OLDEST, NEWEST = "4.1.2", "4.3.1"
VERSIONS = {OLDEST: EXACT, NEWEST: ASSIGNMENT_EPOCH}
BROKER_PROPERTIES = {
    "auto.create.topics.enable": "false",
    "group.consumer.session.timeout.ms": str(round(SESSION_S * 1000)),
    "group.consumer.heartbeat.interval.ms": str(round(HEARTBEAT_S * 1000)),
    # Kafka 4.3 collects what changes for a second before it assigns anew
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transactional.id.expiration.ms": str(round(TRANSACTIONAL_ID_EXPIRATION_S * 1000)),
    "transaction.remove.expired.transaction.cleanup.interval.ms": str(round(TRANSACTION_CHECK_S * 1000)),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(round(TRANSACTION_CHECK_S * 1000)),
}
