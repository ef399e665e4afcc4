"""The same calls on the simulated producer and, with librdkafka's mock cluster, on confluent_kafka's: same answers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from eos_client.testing.simulator import SimulatedCluster
from tests.recovery.mock_application import SILENT
from tests.recovery.mock_cluster import mock_cluster

METADATA = b"CGMDv2:" + struct.pack("=i", -1) + b"group\0\0\1"  # anonymous: neither coordinator judges it
PARTITIONS = 7
KEYS = [None, b"", b"a", b"key", b"a-little-bit-longer-string", bytes(range(13)), b"\xff" * 4]
Script = Callable[[Any, "Outcomes"], None]


class Outcomes(list[object]):
    """What each call gave: its value, or its error's kind, code and flags."""

    def of(self, call: Callable[..., object], *arguments: Any, **options: Any) -> None:
        try:
            self.append(call(*arguments, **options))
        except KafkaException as exception:
            error = exception.args[0]
            self.append((error.name(), error.fatal(), error.retriable(), error.txn_requires_abort()))
        except Exception as exception:  # noqa: BLE001  # its kind is the outcome
            self.append(type(exception))

    def report(self, error: KafkaError | None, message: Any) -> None:
        self.append((error and error.name(), message.topic(), message.partition(), message.offset(), message.value()))


@contextmanager
def real(**settings: Any) -> Iterator[Any]:
    with mock_cluster() as cluster:
        cluster.create_topic("outputs", PARTITIONS)
        cluster.create_topic("inputs")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "logger": SILENT, **settings})
        producer.list_topics(timeout=5)
        yield producer
        producer.close()


@contextmanager
def simulated(**settings: Any) -> Iterator[Any]:
    cluster = SimulatedCluster()
    cluster.create_topic("outputs", PARTITIONS)
    cluster.create_topic("inputs")
    producer = cluster.producer({"bootstrap.servers": "simulated", **settings})
    yield producer
    producer.close()


def both(script: Script, **settings: Any) -> tuple[Outcomes, Outcomes]:
    outcomes = Outcomes(), Outcomes()
    for flavour, found in zip((real, simulated), outcomes, strict=True):
        with flavour(**settings) as producer:
            script(producer, found)
    return outcomes


def calls_before_init(producer: Any, outcomes: Outcomes) -> None:
    outcomes.of(producer.begin_transaction)
    outcomes.of(producer.commit_transaction)
    outcomes.of(producer.abort_transaction)
    outcomes.of(producer.produce, "outputs", b"too early")
    outcomes.of(producer.send_offsets_to_transaction, [TopicPartition("inputs", 0, 7)], METADATA)
    outcomes.of(producer.send_offsets_to_transaction, [], METADATA)
    outcomes.of(producer.init_transactions, 5)
    outcomes.of(producer.init_transactions, 5)


def calls_between_transactions(producer: Any, outcomes: Outcomes) -> None:
    producer.init_transactions(5)
    outcomes.of(producer.produce, "outputs", b"outside")
    outcomes.of(producer.commit_transaction)
    outcomes.of(producer.abort_transaction)
    outcomes.of(producer.begin_transaction)
    outcomes.of(producer.begin_transaction)
    outcomes.of(producer.commit_transaction, 5)
    outcomes.of(producer.commit_transaction, 5)


def arguments_that_are_refused(producer: Any, outcomes: Outcomes) -> None:
    producer.init_transactions(5)
    producer.begin_transaction()
    outcomes.of(producer.send_offsets_to_transaction, [TopicPartition("inputs", 0, 7)], b"junk")
    outcomes.of(producer.send_offsets_to_transaction, [TopicPartition("inputs", 0, 7)], object())
    outcomes.of(producer.send_offsets_to_transaction, [], METADATA, timeout=1)
    outcomes.of(producer.commit_transaction, timeout=1)
    outcomes.of(producer.produce, "outputs", b"x" * 3000)
    outcomes.of(producer.produce, "outputs", b"x", partition=PARTITIONS)
    outcomes.of(producer.produce, "outputs", 5)
    outcomes.of(producer.produce, None)
    outcomes.of(producer.produce, "outputs", headers=[("name", 5)])
    outcomes.of(producer.produce_batch, "outputs", {})
    outcomes.of(producer.produce_batch, "outputs", [{"timestamp": 5}])
    outcomes.of(producer.abort_transaction, 5)


def a_transaction_and_its_reports(producer: Any, outcomes: Outcomes) -> None:
    producer.init_transactions(5)
    producer.begin_transaction()
    for number in range(3):
        producer.produce("outputs", str(number), partition=1, on_delivery=outcomes.report)
    outcomes.of(producer.flush, 5)
    outcomes.of(producer.poll, 0)
    outcomes.of(producer.send_offsets_to_transaction, [TopicPartition("inputs", 0, 7)], METADATA, 5)
    outcomes.of(producer.send_offsets_to_transaction, [TopicPartition("inputs", 0, -1001)], METADATA, 5)
    outcomes.of(producer.commit_transaction, 5)
    outcomes.of(len, producer)
    outcomes.of(producer.begin_transaction)


def offsets_of_an_unknown_topic(producer: Any, outcomes: Outcomes) -> None:
    producer.init_transactions(5)
    producer.begin_transaction()
    outcomes.of(producer.send_offsets_to_transaction, [TopicPartition("no such topic", 0, 7)], METADATA, 0.2)
    outcomes.of(producer.send_offsets_to_transaction, [TopicPartition("inputs", 0, 7)], METADATA, 5)
    outcomes.of(producer.commit_transaction, 5)
    outcomes.of(producer.abort_transaction, 5)


def an_abort_purges_what_was_not_sent(producer: Any, outcomes: Outcomes) -> None:
    producer.init_transactions(5)
    producer.begin_transaction()
    producer.produce("outputs", b"never sent", partition=1, on_delivery=outcomes.report)
    outcomes.of(len, producer)
    outcomes.of(producer.abort_transaction, 5)
    producer.begin_transaction()
    producer.produce("outputs", b"sent", partition=1, on_delivery=outcomes.report)
    outcomes.of(producer.commit_transaction, 5)


def purged_records_make_the_transaction_abortable(producer: Any, outcomes: Outcomes) -> None:
    producer.init_transactions(5)
    producer.begin_transaction()
    producer.produce("outputs", b"purged", partition=1, on_delivery=outcomes.report)
    producer.purge()
    outcomes.of(producer.poll, 0.1)
    outcomes.of(producer.commit_transaction, 5)
    outcomes.of(producer.produce, "outputs", b"no more")
    outcomes.of(producer.begin_transaction)
    outcomes.of(producer.send_offsets_to_transaction, [TopicPartition("inputs", 0, 7)], METADATA, 5)
    outcomes.of(producer.abort_transaction, 5)
    outcomes.of(producer.begin_transaction)


def a_closed_handle(producer: Any, outcomes: Outcomes) -> None:
    outcomes.of(producer.close)
    for name in ("close", "poll", "flush", "purge", "list_topics", "cluster_id", "init_transactions"):
        outcomes.of(getattr(producer, name))
    outcomes.of(producer.produce, "outputs")
    outcomes.of(producer.produce_batch, "outputs", [{}])
    outcomes.of(producer.set_sasl_credentials, "name", "secret")
    outcomes.of(len, producer)
    outcomes.of(bool, producer)


TRANSACTIONAL_SCRIPTS = [
    calls_before_init,
    calls_between_transactions,
    arguments_that_are_refused,
    a_transaction_and_its_reports,
    offsets_of_an_unknown_topic,
    an_abort_purges_what_was_not_sent,
    purged_records_make_the_transaction_abortable,
    a_closed_handle,
]


@pytest.mark.filterwarnings("ignore:Producer abort_transaction failed during close:RuntimeWarning")
@pytest.mark.parametrize("script", TRANSACTIONAL_SCRIPTS, ids=lambda script: script.__name__)
def test_a_transactional_producer_answers_as_the_real_one(script):
    found, simulated_found = both(script, **{"transactional.id": "id", "linger.ms": 5000, "message.max.bytes": 2000})
    assert simulated_found == found


def test_a_producer_without_transactions_answers_as_the_real_one():
    def script(producer: Any, outcomes: Outcomes) -> None:
        outcomes.of(producer.begin_transaction)
        outcomes.of(producer.init_transactions)
        producer.produce("outputs", b"first", partition=1, callback=outcomes.report)
        outcomes.of(producer.produce, "outputs", b"one too many", partition=1)
        messages = [{"value": "one too many, too"}]
        outcomes.of(producer.produce_batch, "outputs", messages)
        outcomes.append(messages[0]["_error"].name())  # type: ignore[attr-defined]
        outcomes.of(producer.flush, 5)
        outcomes.of(producer.produce_batch, "outputs", [{"value": "x", "callback": outcomes.report}], 1)
        outcomes.of(producer.flush, 5)
        a_closed_handle(producer, outcomes)

    found, simulated_found = both(script, **{"queue.buffering.max.messages": 1})
    assert simulated_found == found


@pytest.mark.parametrize(
    "partitioner", ["consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"]
)
def test_a_key_goes_to_the_partition_that_the_real_producer_chooses(partitioner):
    def script(producer: Any, outcomes: Outcomes) -> None:
        for key in KEYS:
            if not (partitioner.endswith("_random") and not key):
                producer.produce(
                    "outputs", str(key), key, on_delivery=lambda _, m: outcomes.append((m.key(), m.partition()))
                )
        producer.flush(5)

    found, simulated_found = both(script, partitioner=partitioner)
    assert sorted(simulated_found, key=str) == sorted(found, key=str)


@pytest.mark.parametrize(
    "settings",
    [
        {"no.such.property": 1},
        {"linger.ms": "soon"},
        {"transactional.id": "id", "enable.idempotence": False},
        {"transactional.id": "id", "acks": 1},
        {"enable.idempotence": True, "max.in.flight.requests.per.connection": 6},
        {"on_delivery": "not callable"},
    ],
    ids=str,
)
def test_settings_that_the_real_producer_refuses_are_refused_with_its_error(settings):
    outcomes = Outcomes()
    outcomes.of(Producer, settings)
    outcomes.of(SimulatedCluster().producer, settings)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == "_INVALID_ARG"  # type: ignore[index]


HEADERS: tuple[list[tuple[str, bytes | None]], ...] = (
    [],
    [("a", b"")],
    [("a", None)],
    [("name", b"value"), ("other", b"")],
    [("n" * 200, b"v" * 300)],
)


@pytest.mark.parametrize("headers", HEADERS, ids=len)
@pytest.mark.parametrize("key", [None, b"", b"key"])
def test_the_largest_record_that_is_taken_is_as_large_as_the_real_ones(key, headers):
    """Headers count, and so does what the protocol adds to each record."""

    def script(producer: Any, outcomes: Outcomes) -> None:
        smallest = 2000 - 36 - sum(len(name) + len(value or b"") + 8 for name, value in headers)
        for size in range(smallest - len(key or b"") - 1, smallest + 20):
            outcomes.of(producer.produce, "outputs", b"x" * size, key, headers=headers)

    found, simulated_found = both(script, **{"message.max.bytes": 2000, "linger.ms": 5000})
    assert simulated_found == found
    assert {None, ("MSG_SIZE_TOO_LARGE", False, False, False)} == set(found)
