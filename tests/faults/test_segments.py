"""What the log's own markers say, read from a real broker's disk, against what a reader is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.brokers import SharedBrokers
from tests.support.waiting import wait_for
from tests.verification.brokers import RunningBroker
from tests.verification.checker import Rule, Status, check
from tests.verification.protocols import STRICT_VERSION
from tests.verification.segments import Fates, fates
from tests.verification.topics import Loader, Watcher, create_topics, read_all, read_history

TIMEOUT_S = 60.0
TOPIC = "fates"


@pytest.fixture(scope="module")
def broker(brokers: SharedBrokers) -> RunningBroker:
    return brokers.direct(STRICT_VERSION)


def write(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value=value, partition=partition)
    producer.flush(TIMEOUT_S)


def settled(broker: RunningBroker, *, open_records: int) -> Fates:
    """Markers are written a moment after the producer has its answer."""
    wait_for(lambda: len(fates(broker.directory, TOPIC).unfinished) == open_records, f"{open_records} open records")
    return fates(broker.directory, TOPIC)


def test_tells_committed_aborted_and_unfinished_records_apart(broker: RunningBroker) -> None:
    create_topics(broker.bootstrap, {TOPIC: 2, f"{TOPIC}-2": 1})
    one = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "one"})
    other = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "other"})
    for producer in (one, other):
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
    write(one, TOPIC, b"kept-0", b"kept-1")
    write(other, TOPIC, b"dropped-2")
    write(one, TOPIC, b"kept-3")
    write(other, TOPIC, b"dropped-p1", partition=1)
    one.commit_transaction(TIMEOUT_S)
    other.abort_transaction(TIMEOUT_S)
    settled(broker, open_records=0)
    for producer in (one, other):
        producer.begin_transaction()
    write(one, TOPIC, b"open-6")
    write(other, TOPIC, b"kept-7")
    other.commit_transaction(TIMEOUT_S)

    assert settled(broker, open_records=1) == Fates(
        committed={(0, 0), (0, 1), (0, 3), (0, 7)}, aborted={(0, 2), (1, 0)}, unfinished={(0, 6)}
    )
    one.abort_transaction(TIMEOUT_S)
    found = settled(broker, open_records=0)
    assert {(record.partition, record.offset) for record in read_all(broker.bootstrap, TOPIC, 2)} == found.committed


def test_a_verifier_that_reads_uncommitted_is_itself_caught(broker: RunningBroker) -> None:
    source, sink, group = "caught-in", "caught-out", "caught"
    create_topics(broker.bootstrap, {source: 1, sink: 1})
    loader = Loader(broker.bootstrap, source, 1, rate_per_s=500, run_id="r")
    watcher = Watcher(broker.bootstrap, sink, 1)
    watcher.start()
    loader.start()
    wait_for(lambda: loader.loaded >= 100, "100 inputs")
    count = loader.stop()
    copy_in_order(broker, source, sink, group, count)
    history = read_history(broker, group=group, source=source, sink=sink, partitions=1, watched=watcher.stop())

    assert check(history).status is Status.HOLDS, str(check(history))
    dirty = replace(history, outputs=read_all(broker.bootstrap, sink, 1, isolation="read_uncommitted"))
    assert check(dirty).count(Rule.ABORTED_VISIBLE) == 1
    assert check(dirty).count(Rule.DOUBLED) == 1


def copy_in_order(broker: RunningBroker, source: str, sink: str, group: str, count: int) -> None:
    """Copy the input, the first record once in vain."""
    settings = {"bootstrap.servers": broker.bootstrap}
    producer = Producer({**settings, "transactional.id": group})
    producer.init_transactions(TIMEOUT_S)
    records = read_all(broker.bootstrap, source, 1)
    producer.begin_transaction()
    write(producer, sink, records[0].record_id)
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    write(producer, sink, *[record.record_id for record in records])
    consumer = Consumer({**settings, "group.id": group})
    end = [TopicPartition(source, 0, count)]
    producer.send_offsets_to_transaction(end, consumer.consumer_group_metadata(), TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)
    consumer.close()
