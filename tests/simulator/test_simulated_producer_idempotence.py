"""Batches of a simulated producer that are lost, late, refused or repeated, and how they are numbered (P3, P5)."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException

from eos_client.confluent.client_log import ClientLog
from eos_client.testing.simulator import SimulatedCluster
from eos_client.testing.simulator.brokers.model import PartitionKey
from eos_client.testing.simulator.brokers.settings import BrokerSettings, ProducerStateKind
from tests.simulator.delivery_reports import IDEMPOTENT, TOPIC, Reports, refused_with, running, served

# -- what the network does -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ProducerStateKind)
@pytest.mark.parametrize("lose", [SimulatedCluster.lose_reply, SimulatedCluster.lose_request])
def test_an_idempotent_producer_repeats_an_unanswered_batch_and_it_is_written_once(lose, kind):
    cluster, reports = SimulatedCluster(settings=BrokerSettings(producer_state=kind)), Reports()
    cluster.create_topic(TOPIC)
    producer = cluster.producer({**IDEMPOTENT, "on_delivery": reports, "socket.timeout.ms": 2000})
    lose(cluster, "Produce")
    producer.produce(TOPIC, b"once")
    producer.flush()
    assert cluster.values(TOPIC) == [b"once"]
    assert reports == [(None, b"once", 0)]
    assert cluster.clock() == pytest.approx(2.0, abs=0.1)


def test_without_idempotence_a_lost_reply_doubles_the_batch():
    cluster, producer, _ = running(**{"socket.timeout.ms": 2000})
    cluster.lose_reply("Produce")
    producer.produce(TOPIC, b"twice")
    producer.flush()
    assert cluster.values(TOPIC) == [b"twice", b"twice"]


def test_a_batch_that_is_late_is_neither_doubled_nor_overtaken():
    cluster, producer, _ = running(**IDEMPOTENT, **{"socket.timeout.ms": 2000, "batch.num.messages": 1})
    cluster.delay("Produce", 5)
    for value in (b"a", b"b", b"c"):
        producer.produce(TOPIC, value)
    producer.flush()
    cluster.advance(10)
    assert cluster.values(TOPIC) == [b"a", b"b", b"c"]
    assert served(cluster, "Produce") == ["ok"] * 4


def test_only_the_log_tells_that_a_request_was_repeated():
    watch = ClientLog({"log_level": 3})
    cluster, producer, _ = running(**IDEMPOTENT, **{"socket.timeout.ms": 2000, "logger": watch})
    producer.produce(TOPIC, b"a")
    producer.flush()
    assert watch.losses == 0
    cluster.lose_reply("Produce")
    producer.produce(TOPIC, b"b")
    producer.flush()
    producer.poll(0)
    assert watch.losses > 0


def test_a_repeated_loss_is_told_by_the_brokers_state_alone():
    lines: list[tuple[str, str]] = []

    class Logger:
        def log(self, *line: Any) -> None:
            lines.append((line[2], line[-1]))

    heard = {"socket.timeout.ms": 2000, "debug": "broker", "logger": Logger()}
    cluster, producer, _ = running(**IDEMPOTENT, **heard)
    for value in (b"a", b"b", b"c"):
        cluster.lose_reply("Produce")
        producer.produce(TOPIC, value)
        producer.flush()
    producer.poll(0)
    public = [line for facility, line in lines if facility == "FAIL"]
    assert [", 1 identical error(s) suppressed)" in line for line in public] == [False, True]
    assert [facility for facility, line in lines if line.endswith("UP -> DOWN")] == ["STATE"] * 3


def test_a_log_line_comes_as_confluent_kafka_gives_it():
    lines: list[tuple[Any, ...]] = []

    class Logger:
        def log(self, *line: Any) -> None:
            lines.append(line)

    cluster, producer, _ = running(**IDEMPOTENT, **{"socket.timeout.ms": 2000, "client.id": "me", "logger": Logger()})
    cluster.lose_reply("Produce")
    producer.produce(TOPIC, b"a")
    producer.flush()
    producer.poll(0)
    level, text, facility, name, line = lines[0]
    assert (level, text, facility, name) == (30, "%s [%s] %s", "REQTMOUT", "me#producer-1")
    assert line == "[thrd:main]: Timed out ProduceRequest in flight (after 2000ms, timeout #0)"


def test_a_record_that_is_not_written_in_time_fails_and_the_next_ones_are_written():
    cluster, producer, reports = running(
        **IDEMPOTENT, **{"message.timeout.ms": 3000, "socket.timeout.ms": 2000, "batch.num.messages": 1}
    )
    cluster.lose_request("Produce")
    cluster.lose_request("Produce")
    producer.produce(TOPIC, b"late")
    cluster.advance(3.5)
    producer.produce(TOPIC, b"next")
    producer.flush()
    assert reports == [("_MSG_TIMED_OUT", b"late", None), (None, b"next", 0)]


@pytest.mark.parametrize("code", ["NOT_ENOUGH_REPLICAS", "NOT_LEADER_FOR_PARTITION", "REQUEST_TIMED_OUT"])
def test_a_refusal_that_passes_is_tried_again_inside(code):
    cluster, producer, reports = running(**IDEMPOTENT)
    cluster.refuse("Produce", code)
    producer.produce(TOPIC, b"value")
    producer.flush()
    assert reports == [(None, b"value", 0)]


def test_a_refusal_that_stays_is_reported():
    cluster, producer, reports = running()
    cluster.refuse("Produce", "TOPIC_AUTHORIZATION_FAILED")
    producer.produce(TOPIC, b"value")
    producer.flush()
    assert reports == [("TOPIC_AUTHORIZATION_FAILED", b"value", None)]


# -- idempotence -----------------------------------------------------------------------------------------------------


def test_an_unknown_producer_id_has_the_records_numbered_anew_under_the_next_epoch():
    """P3: a non-transactional idempotent producer bumps its epoch locally and re-numbers."""
    cluster, producer, reports = running(**IDEMPOTENT, **{"batch.num.messages": 1})
    producer.produce(TOPIC, b"a")
    producer.flush()
    cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
    producer.produce(TOPIC, b"b")
    producer.produce(TOPIC, b"c")
    producer.flush()
    assert [error for error, _, _ in reports] == [None] * 3
    numbers = [(r.value, r.producer_epoch, r.sequence) for r in cluster.read(TOPIC)]
    assert numbers == [(b"a", 0, 0), (b"b", 1, 0), (b"c", 1, 1)]
    assert served(cluster, "InitProducerId") == ["ok"]


def test_other_partitions_wait_for_the_epoch_bump_until_nothing_of_the_old_one_is_on_its_way():
    cluster, producer, _ = running(partitions=2, **IDEMPOTENT, **{"batch.num.messages": 1})
    for partition in (0, 1):
        producer.produce(TOPIC, b"first", partition=partition)
    producer.flush()
    cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
    cluster.delay("Produce", 0.5)
    for partition in (0, 1):
        producer.produce(TOPIC, b"second", partition=partition)
    producer.flush()
    by_partition = [(r.producer_epoch, r.sequence) for r in cluster.read(TOPIC)]
    assert by_partition == [(0, 0), (1, 0), (0, 0), (0, 1)]
    assert served(cluster, "Produce") == ["ok", "ok", "UNKNOWN_PRODUCER_ID", "ok", "ok"]


def test_an_unknown_producer_id_after_a_lost_reply_is_fatal_as_nobody_knows_what_was_written():
    cluster, producer, _ = running(**IDEMPOTENT, **{"socket.timeout.ms": 1000})
    cluster.lose_reply("Produce")
    producer.produce(TOPIC, b"a")
    cluster.after(0.5, lambda: cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID"))
    with pytest.raises(KafkaException) as raised:
        producer.flush()
    assert raised.value.args[0].fatal()
    assert raised.value.args[0].name() == "UNKNOWN_PRODUCER_ID"


def test_a_gap_that_nothing_explains_is_fatal_once_and_for_all():
    cluster, producer, reports = running(**IDEMPOTENT)
    producer.produce(TOPIC, b"fine")
    producer.flush()
    cluster.refuse("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER")
    producer.produce(TOPIC, b"a")
    with pytest.raises(KafkaException) as raised:
        producer.flush()
    assert raised.value.args[0].fatal()
    assert producer.poll(0) == 0
    assert refused_with(producer.produce, TOPIC, b"b") == "_FATAL"
    assert reports == [(None, b"fine", 0), ("OUT_OF_ORDER_SEQUENCE_NUMBER", b"a", None)]


def test_a_failed_batch_leaves_a_gap_and_the_next_records_get_the_next_epoch():
    cluster, producer, reports = running(**IDEMPOTENT)
    cluster.refuse("Produce", "INVALID_RECORD")
    producer.produce(TOPIC, b"bad")
    producer.flush()
    producer.produce(TOPIC, b"good")
    producer.flush()
    assert [error for error, _, _ in reports] == ["INVALID_RECORD", None]
    assert [(r.producer_epoch, r.sequence) for r in cluster.read(TOPIC)] == [(1, 0)]


def test_sequences_go_on_at_zero_behind_the_largest_one():
    """P5: next expected = last + 1, wrapping from 2^31-1 to 0."""
    cluster, producer, reports = running(partitions=2, **IDEMPOTENT)
    producer.produce(TOPIC, b"", partition=0)
    producer.flush()
    queue = producer._sender.accumulator.queue(PartitionKey(TOPIC, 1))
    queue.identity, queue.next_sequence, queue.next_acknowledged = producer._sender.identity, 2**31 - 2, 2**31 - 2
    for _ in range(2):
        producer.produce(TOPIC, b"", partition=1)
        producer.produce(TOPIC, b"", partition=1)
        producer.flush()
    assert [error for error, _, _ in reports] == [None] * 5
    assert [record.sequence for record in cluster.read(TOPIC)][1:] == [2**31 - 2, 2**31 - 1, 0, 1]
    cluster.refuse("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER")
    producer.produce(TOPIC, b"", partition=1)
    assert refused_with(producer.flush) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


@pytest.mark.parametrize("kind", ProducerStateKind)
def test_a_duplicate_counts_as_delivered_at_no_known_offset(kind):
    """P5: DUPLICATE_SEQUENCE_NUMBER: the client drops the batch and moves on."""
    cluster, reports = SimulatedCluster(settings=BrokerSettings(producer_state=kind)), Reports()
    cluster.create_topic(TOPIC)
    producer = cluster.producer({**IDEMPOTENT, "on_delivery": reports})
    cluster.refuse("Produce", "DUPLICATE_SEQUENCE_NUMBER")
    producer.produce(TOPIC, b"written before")
    producer.flush()
    assert reports == [(None, b"written before", None)]
