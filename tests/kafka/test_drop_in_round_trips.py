"""confluent_kafka's documented usage, with the wrappers in its place, against a real broker."""

import functools
import json
import logging
import threading
import time
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    KafkaError,
    KafkaException,
    TopicPartition,
)

import eos_client
from eos_client import EosConsumer, EosProducer
from eos_client.errors import AbortableError, RebuildProducerError
from tests.kafka.kafka_support import LIMITS
from tests.support.waiting import WAIT_S, wait_for

THEIRS = (confluent_kafka.Consumer, confluent_kafka.Producer)
OURS = (eos_client.EosConsumer, functools.partial(eos_client.EosProducer, limits=LIMITS))


def in_transaction(producer, topic, **record):
    producer.begin_transaction()
    producer.produce(topic, **record)
    producer.commit_transaction(WAIT_S)


# -- producing ---------------------------------------------------------------------------------------------------


def test_headers_key_timestamp_and_partition_arrive_as_produced(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    headers = [("a", b"1"), ("a", b"2"), ("none", None)]
    in_transaction(
        producer, stage.source, value=b"v", key=b"k", partition=1, timestamp=1_600_000_000_000, headers=headers
    )
    (message,) = stage.collect(consumer, 1)
    assert (message.value(), message.key(), message.partition()) == (b"v", b"k", 1)
    assert message.timestamp() == (TIMESTAMP_CREATE_TIME, 1_600_000_000_000)
    assert message.headers() == headers


def test_txn_produce_carries_headers_key_timestamp_and_partition(stage):
    stage.load([1, 0])
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        stage.collect(consumer, 1)
        txn.produce(stage.sink, b"v", b"k", partition=0, headers={"h": b"1"}, timestamp_ms=1_600_000_000_000)
    reader = stage.consumer()
    reader.assign([TopicPartition(stage.sink, 0, 0)])
    (message,) = stage.collect(reader, 1)
    assert (message.value(), message.key(), message.headers()) == (b"v", b"k", [("h", b"1")])
    assert message.timestamp() == (TIMESTAMP_CREATE_TIME, 1_600_000_000_000)


@pytest.mark.parametrize("argument", ["callback", "on_delivery"])
def test_delivery_callbacks_name_the_message_and_run_in_the_calling_thread(stage, argument):
    producer = stage.producer()
    delivered = []
    producer.begin_transaction()
    for number in range(3):
        report = {argument: lambda error, message: delivered.append((error, message, threading.current_thread()))}
        producer.produce(stage.sink, str(number).encode(), **report)
    producer.flush(WAIT_S)
    assert [(error, message.value()) for error, message, _ in delivered] == [(None, b"0"), (None, b"1"), (None, b"2")]
    assert {thread for _, _, thread in delivered} == {threading.current_thread()}
    producer.commit_transaction(WAIT_S)


def test_delivery_callbacks_that_commit_transaction_serves_run_in_the_calling_thread(stage):
    producer = stage.producer()
    threads = []
    producer.begin_transaction()
    producer.produce(stage.sink, b"", on_delivery=lambda error, message: threads.append(threading.current_thread()))
    producer.commit_transaction(WAIT_S)
    wait_for(lambda: threads, "the delivery report", lambda: producer.poll(0.01))
    assert threads == [threading.current_thread()]


def test_a_delivery_callback_may_produce_again(stage):
    producer = stage.producer()
    producer.begin_transaction()
    producer.produce(stage.sink, b"first", on_delivery=lambda error, message: producer.produce(stage.sink, b"second"))
    assert producer.flush(WAIT_S) == 0
    producer.commit_transaction(WAIT_S)
    assert stage.outputs() == ["first", "second"]


def test_produce_batch_and_purge_work_as_theirs(stage):
    producer = stage.producer()
    producer.begin_transaction()
    assert producer.produce_batch(stage.sink, [{"value": b"1", "key": b"k"}, {"value": b"2"}]) == 2
    assert producer.flush(WAIT_S) == 0
    producer.commit_transaction(WAIT_S)
    assert stage.outputs() == ["1", "2"]
    failed = []
    producer.begin_transaction()
    producer.produce(stage.sink, b"3", on_delivery=lambda error, message: failed.append(error))
    producer.purge(in_queue=True, in_flight=True, blocking=True)
    producer.flush(WAIT_S)
    assert [error.code() for error in failed if error] in ([KafkaError._PURGE_QUEUE], [KafkaError._PURGE_INFLIGHT], [])
    producer.abort_transaction(WAIT_S)
    assert stage.outputs() == ["1", "2"]


def test_aborted_output_is_not_visible_and_the_next_transaction_goes_on(stage):
    producer = stage.producer()
    producer.begin_transaction()
    producer.produce(stage.sink, b"aborted")
    producer.abort_transaction(WAIT_S)
    in_transaction(producer, stage.sink, value=b"committed")
    assert stage.outputs() == ["committed"]


def test_metadata_calls_answer_for_both_clients(stage):
    producer, consumer = stage.producer(), stage.consumer()
    for client in (producer, consumer):
        assert stage.source in client.list_topics(timeout=WAIT_S).topics
        assert len(client.list_topics(stage.source, WAIT_S).topics[stage.source].partitions) == 2
        assert client.cluster_id(timeout=WAIT_S) == consumer.list_topics(timeout=WAIT_S).cluster_id


# -- callbacks of both -----------------------------------------------------------------------------------------


def test_error_stats_and_log_callbacks_pass_through(stage, caplog):
    stage.load(1)
    for make in (stage.producer, stage.subscribed):
        statistics: list[str] = []
        client = make(stats_cb=statistics.append, statistics_interval_ms=100)
        wait_for(statistics.copy, "statistics", functools.partial(client.poll, 0.1))
        assert json.loads(statistics[0])["type"] == ("producer" if make == stage.producer else "consumer")
    logger = logging.getLogger("eos-drop-in")
    errors: list[Any] = []
    caplog.set_level(logging.DEBUG, "eos-drop-in")
    unreachable = {"bootstrap.servers": "127.0.0.1:1", "error_cb": errors.append}
    for client in (
        EosConsumer({**unreachable, "group.id": "g"}, logger=logger),
        EosProducer({**unreachable, "logger": logger}),
    ):
        caplog.clear()
        errors.clear()
        wait_for(lambda: errors and caplog.records, "an error and a log line", functools.partial(client.poll, 0.1))
        assert all(isinstance(error, KafkaError) for error in errors)
        client.close()


# -- failures ----------------------------------------------------------------------------------------------------


def test_every_failure_of_the_library_is_a_kafka_exception_with_its_kafka_error(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    wait_for(consumer.assignment, "an assignment", lambda: consumer.poll(0.05))
    producer.begin_transaction()
    with pytest.raises(KafkaException) as wrong_state:
        producer.begin_transaction()
    assert wrong_state.value.args[0].code() == KafkaError._STATE
    with pytest.raises(KafkaException) as too_large:
        producer.produce(stage.sink, b"." * 2_000_000)
    assert too_large.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    with pytest.raises(KafkaException) as bad_place:
        consumer.seek(TopicPartition(stage.source, 99, 0))
    assert isinstance(bad_place.value.args[0], KafkaError)


def test_an_output_behind_an_undelivered_one_is_refused_with_its_reason(stage):
    """librdkafka says only that it takes no more; the report that says why waits to be served."""
    # The abort may end only when the transaction's time is over.
    producer = stage.producer(
        delivery_report_only_error=True, message_max_bytes=3_000_000, transaction_timeout_ms=10_000
    )
    producer.begin_transaction()
    producer.produce(stage.sink, b"." * 2_000_000)  # the client may send it, the broker takes half of that

    def refused():
        try:
            producer.produce(stage.sink, b"behind it")
        except AbortableError as error:
            return str(error)
        return None

    reason = wait_for(refused, "a refusal")
    assert "_STATE" in reason
    assert f"the last undelivered output, to {stage.sink}[0]: MSG_SIZE_TOO_LARGE" in reason
    producer.abort_transaction(WAIT_S)


def test_refused_anonymous_metadata_is_a_kafka_exception_that_requires_an_abort(stage):
    producer, stranger = stage.producer(), stage.consumer()
    producer.begin_transaction()
    producer.produce(stage.sink, b"never")
    offsets = [TopicPartition(stage.source, 0, 1)]
    with pytest.raises(AbortableError) as refused:
        producer.send_offsets_to_transaction(offsets, stranger.consumer_group_metadata())
    assert isinstance(refused.value, KafkaException)
    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction(WAIT_S)
    assert stage.committed() == {0: None, 1: None}


def test_fencing_by_a_newer_instance_is_a_fatal_kafka_exception(stage):
    name = f"{stage.group}-pinned"
    old = stage.producer(transactional_id=name)
    old.begin_transaction()
    old.produce(stage.sink, b"old")
    old.flush(WAIT_S)
    stage.producer(transactional_id=name)
    with pytest.raises(KafkaException) as fenced:
        old.commit_transaction(WAIT_S)
    assert fenced.value.args[0].fatal()
    assert not isinstance(fenced.value, RebuildProducerError)
    assert stage.outputs() == []


# -- the documented loop -----------------------------------------------------------------------------------------


def documented_loop(consumer_class, producer_class, stage, count):
    """The consume-transform-produce loop of confluent_kafka's own example, eos-transactions.py."""
    consumer = consumer_class(
        {
            "bootstrap.servers": stage.bootstrap,
            "group.id": stage.group,
            "auto.offset.reset": "earliest",
            # Do not advance committed offsets outside of the transaction.
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([stage.source])
    producer = producer_class({"bootstrap.servers": stage.bootstrap, "transactional.id": f"{stage.group}-loop"})
    producer.init_transactions()
    producer.begin_transaction()
    reached_end, copied, deadline_s = {}, 0, time.monotonic() + 2 * WAIT_S
    while copied < count:
        assert time.monotonic() < deadline_s
        producer.poll(0)
        message = consumer.poll(timeout=1.0)
        if message is None:
            continue
        place = message.topic(), message.partition()
        if message.error():
            if message.error().code() == KafkaError._PARTITION_EOF:
                reached_end[place] = True
                if len(reached_end) == len(consumer.assignment()):
                    producer.send_offsets_to_transaction(
                        consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
                    )
                    producer.commit_transaction()
                    producer.begin_transaction()
                    reached_end.clear()
            continue
        reached_end.pop(place, None)
        producer.produce(stage.sink, message.value(), on_delivery=lambda error, message: None)
        copied += 1
    producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata())
    producer.commit_transaction()
    consumer.close()


@pytest.mark.parametrize(("consumer_class", "producer_class"), [THEIRS, OURS], ids=["theirs", "ours"])
def test_the_documented_transactional_loop_runs_with_the_imports_changed(stage, consumer_class, producer_class):
    written = stage.load(100)
    documented_loop(consumer_class, producer_class, stage, len(written))
    assert sorted(stage.outputs()) == sorted(written)
    assert stage.committed() == stage.ends()
