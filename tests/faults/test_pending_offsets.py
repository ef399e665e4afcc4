"""A partition whose offset is pending in another's open transaction waits for it; it never starts over.

librdkafka 2.16 forgets that the committed offset is still unknown when the assignment changes while OffsetFetch answers
UNSTABLE_OFFSET_COMMIT: it then starts at auto.offset.reset, and everything is processed a second time
(rd_kafka_assignment_apply_offsets keeps OFFSET_INVALID there, where it restores OFFSET_STORED for a stale epoch).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from eos_client import EosConsumer
from tests.support.brokers import SharedBrokers
from tests.support.waiting import wait_for
from tests.verification.brokers import PATIENT_PROPERTIES, RunningBroker
from tests.verification.leaving import leave
from tests.verification.protocols import LATEST_VERSION, GroupProtocol, patient_config
from tests.verification.topics import create_topics

RECORDS = 200
COMMITTED = 100
PENDING = 150
REBALANCES = 4
CALL_TIMEOUT_S = 60.0
TRANSACTION_TIMEOUT_MS = 600_000


@pytest.fixture(scope="module")
def broker(brokers: SharedBrokers) -> RunningBroker:
    return brokers.proxied(LATEST_VERSION, properties=PATIENT_PROPERTIES, added_rtt_s=0.06)


def config(broker: RunningBroker, group: str, protocol: GroupProtocol) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        **patient_config(protocol),
    }


def serve(consumer: Any, until: Callable[[], bool], *, limit_s: float) -> list[int]:
    """Poll until the condition holds, a record comes or the time is over; the offsets of what came."""
    deadline_s = time.monotonic() + limit_s
    while not until() and time.monotonic() < deadline_s:
        message = consumer.poll(0.01)
        if message is not None and message.error() is None:
            offset: int = message.offset()
            return [offset]
    return []


def rebalance(consumer: Any, settings: dict[str, object], topic: str) -> list[int]:
    """Let a co-tenant of the group, which wants another topic, join and leave while the consumer is served."""
    tenant = Consumer(settings)
    tenant.subscribe([topic])
    seen: list[int] = []
    wait_for(
        lambda: tenant.assignment() or seen,
        "the co-tenant to have joined",
        lambda: tenant.poll(0.01),
        lambda: seen.extend(serve(consumer, lambda: False, limit_s=0.01)),
    )
    leave(tenant)
    return seen or serve(consumer, lambda: False, limit_s=0.5)


@pytest.mark.parametrize(
    "protocol", [GroupProtocol.KIP_848, pytest.param(GroupProtocol.COOPERATIVE, marks=pytest.mark.soak)]
)
def test_waits_for_a_pending_offset_through_rebalances(broker: RunningBroker, protocol: GroupProtocol) -> None:
    mine, others = f"pending-{protocol.value}", f"others-{protocol.value}"
    create_topics(broker.bootstrap, {mine: 1, others: 1})
    settings = config(broker, mine, protocol)
    producer = Producer({
        "bootstrap.servers": broker.bootstrap,
        "transactional.id": mine,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    })  # fmt: skip
    producer.init_transactions(CALL_TIMEOUT_S)
    with contextlib.closing(Consumer(settings)) as outsider:
        metadata = outsider.consumer_group_metadata()
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(mine, value=b"%d" % number, partition=0)
    producer.send_offsets_to_transaction([TopicPartition(mine, 0, COMMITTED)], metadata, CALL_TIMEOUT_S)
    producer.commit_transaction(CALL_TIMEOUT_S)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(mine, 0, PENDING)], metadata, CALL_TIMEOUT_S)

    with contextlib.closing(EosConsumer(settings)) as consumer:
        consumer.subscribe([mine])
        seen = serve(consumer, lambda: bool(consumer.assignment()), limit_s=CALL_TIMEOUT_S)
        for _ in range(REBALANCES):
            seen = seen or rebalance(consumer, settings, others)
        assert seen == [], f"started at {seen[0]} while the committed offset was still pending"

        producer.abort_transaction(CALL_TIMEOUT_S)
        assert serve(consumer, lambda: False, limit_s=CALL_TIMEOUT_S) == [COMMITTED]
