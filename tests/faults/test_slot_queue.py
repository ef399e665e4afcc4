"""A slot of a Spark sink whose brokers have stopped taking records: what it keeps in memory has a limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from eos_client.confluent.ledger.slot_producer import SlotProducer
from tests.kafka.kafka_support import LIMITS, Stage
from tests.support.waiting import WAIT_S
from tests.verification.late_end_txn import sent_by
from tests.verification.proxy import KafkaProxy
from tests.verification.wire import Api

MIB = 1 << 20


@contextmanager
def stalled_slot(proxy: KafkaProxy, **settings: Any) -> Iterator[tuple[SlotProducer, str]]:
    """The producer of a slot in a transaction, none of whose records arrive before the block ends; and a topic."""
    with Stage(f"127.0.0.1:{proxy.port}", partitions=1) as stage:
        shared = {"bootstrap.servers": stage.bootstrap, "log_level": 0, **settings}
        producer = SlotProducer(shared, f"slot-{stage.group}", limits=LIMITS)
        producer.init_transactions()
        held = proxy.hold_next(Api.PRODUCE, sent_by(producer.library.transactional_id))
        producer.begin_transaction()
        try:
            producer.produce(stage.sink, b"first")
            held.wait_until_caught()
            yield producer, stage.sink
        finally:
            held.deliver()
            producer.abort_transaction(WAIT_S)
            producer.close()


def queued_until_full(producer: SlotProducer, topic: str, *, at_most: int) -> int:
    """Queue records of 100 kB until there is no room, or ``at_most`` bytes; returns how many bytes found room."""
    queued, value = 0, b"x" * 100_000
    while queued < at_most:
        try:
            producer.produce(topic, value)
        except BufferError:
            break
        queued += len(value)
    return queued


def test_no_more_than_64_mib_wait_for_a_broker(proxy: KafkaProxy) -> None:
    with stalled_slot(proxy) as (producer, topic):
        assert 60 * MIB < queued_until_full(producer, topic, at_most=128 * MIB) <= 64 * MIB


def test_the_users_limit_holds(proxy: KafkaProxy) -> None:
    with stalled_slot(proxy, **{"queue.buffering.max.kbytes": 8 * 1024}) as (producer, topic):
        assert 7 * MIB < queued_until_full(producer, topic, at_most=128 * MIB) <= 8 * MIB


@pytest.mark.parametrize("largest", [100 * MIB, str(100 * MIB)], ids=["a number", "text"])
def test_two_of_the_largest_records_that_the_user_allows_find_room(proxy: KafkaProxy, largest: Any) -> None:
    with stalled_slot(proxy, **{"message.max.bytes": largest}) as (producer, topic):
        value = b"x" * (99 * MIB)
        producer.produce(topic, value)
        producer.produce(topic, value)
        with pytest.raises(BufferError):
            producer.produce(topic, value)
