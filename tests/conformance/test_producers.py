"""Producers: delivery reports, order, partitions, headers and timestamps, what is refused when, and the end."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaException, TopicPartition

from tests.conformance.versions import TIMESTAMP_AFTER_MAX_S
from tests.support.client_settings import dotted

CALL_S = 60.0
START_S = 60.0
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "idempotent": {"enable_idempotence": True},
    "one at a time": {"enable_idempotence": True, "batch_num_messages": 1},
}


@pytest.fixture
def start(backend):
    """A function that makes a producer, connected; settings are written with underscores."""

    def start_one(**settings):
        producer = backend.producer(dotted(settings))
        producer.list_topics(timeout=START_S)  # once connected, librdkafka gets a producer id without delay
        return producer

    return start_one


class Reports(list[Any]):
    """Delivery reports, as tuples: None or the error's name, partition, offset, value. Falsy while there are none."""

    def __call__(self, error, message):
        self.append((error and error.name(), message.partition(), message.offset(), message.value()))

    @property
    def codes(self):
        return [code for code, *_ in self]


@pytest.fixture
def reports():
    return Reports()


def failure_of(call, *arguments, **options):
    """The name of the error with which the call fails."""
    with pytest.raises(KafkaException) as caught:
        call(*arguments, **options)
    error = caught.value.args[0]
    assert (error.fatal(), error.retriable(), error.txn_requires_abort()) == (False, False, False)
    return error.name()


def written(producer, topic, *values, partition=0, **options):
    for value in values:
        producer.produce(topic, value, partition=partition, **options)
    assert producer.flush(CALL_S) == 0


# -- reports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_record_is_reported_once_with_its_place(backend, start, reports, kind):
    topic, producer = backend.topic(2), start(**KINDS[kind])
    for number in range(3):
        for partition in range(2):
            producer.produce(topic, b"%d" % number, partition=partition, on_delivery=reports)
    assert producer.flush(CALL_S) == 0
    assert sorted(reports, key=lambda each: each[1:]) == [
        (None, partition, number, b"%d" % number) for partition in range(2) for number in range(3)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_keeps_the_order_in_which_records_were_produced(backend, start, reports, kind):
    topic, producer = backend.topic(), start(**KINDS[kind])
    values = [b"%d" % number for number in range(300)]
    written(producer, topic, *values, on_delivery=reports)
    assert [offset for _, _, offset, _ in reports] == list(range(300))
    assert backend.values(topic) == values


def test_a_report_tells_the_record_as_it_was_produced(backend, start):
    topic, producer, told = backend.topic(2), start(), []
    stamp_ms = 12_345
    producer.produce(topic, "value", "key", 1, on_delivery=lambda *given: told.append(given), timestamp=stamp_ms)
    assert producer.flush(CALL_S) == 0
    ((error, message),) = told
    assert error is None
    assert (message.topic(), message.partition(), message.offset()) == (topic, 1, 0)
    assert (message.key(), message.value(), message.error()) == (b"key", b"value", None)
    assert message.timestamp() == (TIMESTAMP_CREATE_TIME, stamp_ms)
    assert message.latency() >= 0


def test_reports_are_served_by_poll_and_counted_by_len(backend, start, reports):
    topic, producer = backend.topic(), start(linger_ms=20)
    for value in (b"1", b"2", b"3"):
        producer.produce(topic, value, on_delivery=reports)
    assert (len(producer), len(reports)) == (3, 0)
    backend.wait(0.5)
    assert len(producer) >= 3  # librdkafka counts the batch that waits to be reported as well
    assert reports == []
    backend.until(lambda: len(reports) == 3, "three reports", polling=[producer])
    assert len(producer) == 0
    assert producer.poll(0) == 0


def test_a_record_produced_by_a_report_is_flushed_as_well(backend, start, reports):
    topic, producer = backend.topic(), start()
    producer.produce(topic, b"1", on_delivery=lambda *_: producer.produce(topic, b"2", on_delivery=reports))
    assert producer.flush(CALL_S) == 0
    assert reports == [(None, 0, 1, b"2")]
    assert backend.values(topic) == [b"1", b"2"]


@pytest.mark.parametrize("method", ["poll", "flush"])
def test_what_a_report_raises_comes_out_of_the_call_that_serves_it(backend, start, method):
    topic, producer = backend.topic(), start()

    def fail(error, message):
        raise LookupError(message.value())

    producer.produce(topic, b"1", on_delivery=fail)
    with pytest.raises(LookupError, match="1"):
        getattr(producer, method)(CALL_S)
    written(producer, topic, b"2")
    assert backend.values(topic) == [b"1", b"2"]


def test_a_report_is_for_whom_the_record_names_else_for_the_producers_own(backend, start):
    told = []
    topic, producer = backend.topic(), start(on_delivery=lambda *_: told.append("producer"))
    producer.produce(topic, b"1")
    producer.produce(topic, b"2", on_delivery=lambda *_: told.append("on_delivery"))
    producer.produce(topic, b"3", callback=lambda *_: told.append("callback"))
    assert producer.flush(CALL_S) == 0
    assert told == ["producer", "on_delivery", "callback"]


def test_reports_of_errors_only_leave_out_the_delivered(backend, start, reports):
    topic, producer = backend.topic(), start(delivery_report_only_error=True)
    written(producer, topic, b"1", on_delivery=reports)
    assert reports == []
    assert backend.values(topic) == [b"1"]


def test_without_acknowledgement_a_report_knows_no_offset(backend, start, reports):
    topic, producer = backend.topic(), start(acks=0)
    written(producer, topic, b"1", on_delivery=reports)
    assert reports == [(None, 0, None, b"1")]
    backend.until(lambda: backend.values(topic) == [b"1"], "the record")


# -- what a record is ------------------------------------------------------------------------------------------------


def test_a_key_chooses_the_partition_by_its_crc32(backend, start, reports):
    topic, producer = backend.topic(7), start()
    keys = [b"a", b"key", b"another key", "schlüssel".encode(), bytes(range(13)), b"\xff" * 4, b"0", b"1"]
    for key in keys:
        producer.produce(topic, key, key, on_delivery=reports)
    assert producer.flush(CALL_S) == 0
    assert {value: partition for _, partition, _, value in reports} == {key: zlib.crc32(key) % 7 for key in keys}


@pytest.mark.parametrize("partitioner", ["consistent", "murmur2", "fnv1a"])
def test_records_of_one_key_stay_together_whatever_the_partitioner(backend, start, reports, partitioner):
    topic, producer = backend.topic(7), start(partitioner=partitioner)
    for number in range(20):
        producer.produce(topic, f"key {number % 4}", f"key {number % 4}", on_delivery=reports)
    assert producer.flush(CALL_S) == 0
    assert len({(value, partition) for _, partition, _, value in reports}) == 4


def test_records_without_a_key_go_to_some_partition(backend, start, reports):
    topic, producer = backend.topic(3), start()
    for number in range(30):
        producer.produce(topic, b"%d" % number, on_delivery=reports)
    assert producer.flush(CALL_S) == 0
    assert {partition for _, partition, _, _ in reports} <= {0, 1, 2}
    assert sorted(map(int, backend.values(topic, 3))) == list(range(30))


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ([("a", b"1"), ("a", "2"), ("b", None)], [("a", b"1"), ("a", b"2"), ("b", None)]),
        ({"x": "1"}, [("x", b"1")]),
        ([("empty", b"")], [("empty", b"")]),
        ([("text", "a\0b"), ("bytes", b"a\0b")], [("text", b"a"), ("bytes", b"a\0b")]),
        ([], None),
        (None, None),
    ],
    ids=["pairs", "mapping", "empty value", "a NUL", "none at all", "not given"],
)
def test_headers_are_read_as_they_were_written(backend, start, given, read):
    topic, producer = backend.topic(), start()
    written(producer, topic, b"1", headers=given)
    (message,) = backend.read(topic)
    assert message.headers() == read


def test_keys_and_values_may_be_missing_or_empty(backend, start):
    topic, producer = backend.topic(), start()
    pairs = [(None, None), (b"", b""), (b"key", None), (None, b"value"), ("klé", "välue")]
    for key, value in pairs:
        producer.produce(topic, value, key)
    assert producer.flush(CALL_S) == 0
    read = [(message.key(), message.value()) for message in backend.read(topic)]
    assert read == [*pairs[:4], ("klé".encode(), "välue".encode())]


def test_timestamps_are_the_producers(backend, start):
    topic, producer, told = backend.topic(), start(), []
    producer.produce(topic, b"1", timestamp=12_345)
    producer.produce(topic, b"2", on_delivery=lambda _, message: told.append(message.timestamp()))
    assert producer.flush(CALL_S) == 0
    first, second = [message.timestamp() for message in backend.read(topic)]
    assert first == (TIMESTAMP_CREATE_TIME, 12_345)
    assert second[0] == TIMESTAMP_CREATE_TIME
    assert told == [second]


def test_a_batch_is_produced_record_by_record(backend, start, reports):
    topic, producer = backend.topic(2), start()
    messages = [{"value": b"1"}, {"value": "2", "key": "key"}, {"value": None, "key": b"key"}]
    assert producer.produce_batch(topic, messages, 1, on_delivery=reports) == 3
    assert producer.flush(CALL_S) == 0
    read = [(message.partition(), message.key(), message.value()) for message in backend.read(topic, 2)]
    assert read == [(1, None, b"1"), (1, b"key", b"2"), (1, b"key", None)]
    assert reports.codes == [None, None, None]


# -- what is refused -------------------------------------------------------------------------------------------------


def test_a_record_above_the_producers_limit_is_refused_at_once(backend, start):
    topic, producer = backend.topic(), start(message_max_bytes=2000)
    assert failure_of(producer.produce, topic, b"x" * 3000) == "MSG_SIZE_TOO_LARGE"
    written(producer, topic, b"1")
    assert backend.values(topic) == [b"1"]


@pytest.mark.parametrize("kind", ["plain", "idempotent"])
def test_a_record_above_the_brokers_limit_is_refused_by_report(backend, start, reports, kind):
    topic, producer = backend.topic(), start(**KINDS[kind], message_max_bytes=3_000_000)
    written(producer, topic, b"x" * 2_000_000, on_delivery=reports)
    assert reports.codes == ["MSG_SIZE_TOO_LARGE"]
    written(producer, topic, b"1", on_delivery=reports)
    assert reports[1:] == [(None, 0, 0, b"1")]


@pytest.mark.parametrize(
    ("ahead_s", "codes"),
    [
        ((0, TIMESTAMP_AFTER_MAX_S - 600, 0), [None, None, None]),
        ((0, TIMESTAMP_AFTER_MAX_S + 600, 0), ["INVALID_TIMESTAMP"] * 3),
        (
            (TIMESTAMP_AFTER_MAX_S + 600, 0, TIMESTAMP_AFTER_MAX_S + 900),
            ["INVALID_RECORD", "_INVALID_DIFFERENT_RECORD", "INVALID_RECORD"],
        ),
    ],
    ids=["within the limit", "one is beyond it", "two are beyond it"],
)
def test_times_too_far_ahead_are_refused_and_told_apart_where_they_are_several(backend, start, reports, ahead_s, codes):
    topic, told = backend.topic(), []
    written(start(), topic, b"0", on_delivery=lambda _, message: told.append(message.timestamp()[1]))
    producer = start(linger_ms=500)
    for seconds in ahead_s:
        producer.produce(topic, b"x", timestamp=told[0] + seconds * 1000, on_delivery=reports)
    assert producer.flush(CALL_S) == 0
    assert reports.codes == codes
    assert len(backend.values(topic)) == 1 + codes.count(None)


def test_a_full_queue_is_a_buffer_error_until_it_has_been_served(backend, start, reports):
    topic, producer = backend.topic(), start(linger_ms=5000, queue_buffering_max_messages=2)
    producer.produce(topic, b"1", on_delivery=reports)
    producer.produce(topic, b"2", on_delivery=reports)
    for partition in (0, 9):
        with pytest.raises(BufferError):
            producer.produce(topic, b"3", partition=partition, on_delivery=reports)
    assert producer.flush(CALL_S) == 0
    written(producer, topic, b"4", on_delivery=reports)
    assert backend.values(topic) == [b"1", b"2", b"4"]
    assert reports.codes == [None, None, None]


def test_a_partition_that_does_not_exist_is_refused(backend, start, reports):
    topic, producer = backend.topic(2), start()
    written(producer, topic, b"1")
    assert failure_of(producer.produce, topic, b"2", partition=2) == "_UNKNOWN_PARTITION"
    assert producer.flush(CALL_S) == 0


def test_a_topic_that_does_not_exist_is_waited_for_and_refused_from_then_on(backend, start, reports):
    topic, producer = backend.unique("nowhere"), start(topic_metadata_propagation_max_ms=500)
    produced_s = backend.clock()
    producer.produce(topic, b"1", on_delivery=reports)
    assert producer.flush(CALL_S) == 0
    assert backend.clock() - produced_s >= 0.5
    assert reports.codes == ["UNKNOWN_TOPIC_OR_PART"]
    assert failure_of(producer.produce, topic, b"2") == "_UNKNOWN_TOPIC"


def test_the_wait_for_a_topic_begins_with_the_first_record_for_it(backend, start):
    """And not with each again: else nobody would hear of it who gives up sooner, and tries again."""
    topic, producer = backend.unique("nowhere"), start(topic_metadata_propagation_max_ms=1000)

    def try_for(seconds):
        producer.produce(topic, b"1")
        producer.flush(seconds)
        producer.purge()
        producer.flush(CALL_S)

    def try_until_refused():
        deadline_s = backend.clock() + CALL_S
        while backend.clock() < deadline_s:
            try_for(0.3)

    assert failure_of(try_until_refused) == "_UNKNOWN_TOPIC"


def test_a_topic_that_is_created_in_time_gets_the_records_that_waited(backend, start, reports):
    topic, producer = backend.unique("soon"), start()
    producer.produce(topic, b"1", on_delivery=reports)
    assert producer.flush(0.2) == 1
    backend.create_topic(topic)
    assert producer.flush(CALL_S) == 0
    assert reports == [(None, 0, 0, b"1")]


@pytest.mark.parametrize("kind", ["plain", "idempotent"])
def test_a_record_that_waits_too_long_is_given_up(backend, start, reports, kind):
    topic = backend.unique("nowhere")
    producer = start(**KINDS[kind], message_timeout_ms=500)
    producer.produce(topic, b"1", on_delivery=reports)
    assert producer.flush(CALL_S) == 0
    assert reports.codes == ["_MSG_TIMED_OUT"]


def test_a_producer_without_an_id_has_no_transactions(backend, start):
    producer = start()
    for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
        assert failure_of(call) == "_NOT_CONFIGURED"
    assert failure_of(producer.init_transactions, START_S) == "_NOT_CONFIGURED"


@pytest.mark.parametrize(
    "settings",
    [
        {"no.such.property": 1},
        {"linger.ms": "soon"},
        {"transactional.id": "id", "enable.idempotence": False},
        {"transactional.id": "id", "acks": 1},
        {"enable.idempotence": True, "acks": 0},
        {"enable.idempotence": True, "max.in.flight.requests.per.connection": 6},
        {"message.timeout.ms": 61_000, "transactional.id": "id"},
        {"on_delivery": "not callable"},
        {"partitioner": "by feeling"},
    ],
    ids=str,
)
def test_settings_that_contradict_each_other_are_refused(backend, settings):
    assert failure_of(backend.producer, settings) == "_INVALID_ARG"


# -- queues and ends -------------------------------------------------------------------------------------------------


def test_records_linger_until_their_time_or_a_flush(backend, start, reports):
    topic, patient, hasty = backend.topic(), start(linger_ms=60_000), start(linger_ms=600)
    patient.produce(topic, b"1", on_delivery=reports)
    patient.poll(0.1)
    assert reports == []
    assert patient.flush(CALL_S) == 0
    produced_s = backend.clock()
    hasty.produce(topic, b"2", on_delivery=reports)
    backend.until(lambda: len(reports) == 2, "the second report", polling=[hasty])
    assert backend.clock() - produced_s >= 0.6
    assert reports == [(None, 0, 0, b"1"), (None, 0, 1, b"2")]


PURGE_ROUNDS_MAX = 20
"""confluent_kafka's `purge()` does not wait for the client's own threads: they may purge a record of a moment later."""


def test_purged_records_are_reported_and_later_ones_go_their_way(backend, start, reports):
    topic, producer = backend.topic(), start(linger_ms=30_000, enable_idempotence=True)
    producer.produce(topic, b"1", on_delivery=reports)
    producer.produce(topic, b"2", on_delivery=reports)
    producer.purge()
    assert reports == []
    assert producer.flush(CALL_S) == 0
    assert reports.codes == ["_PURGE_QUEUE", "_PURGE_QUEUE"]
    for _ in range(PURGE_ROUNDS_MAX):
        written(producer, topic, b"3", on_delivery=reports)
        if reports.codes[-1] is None:
            break
    code, _, offset, value = reports[-1]
    assert (code, value) == (None, b"3")
    # librdkafka's threads take the purge up later: it also meets records that were produced after it, even sent ones.
    assert set(reports.codes[2:-1]) <= {"_PURGE_QUEUE", "_PURGE_INFLIGHT"}
    assert offset <= reports.codes.count("_PURGE_INFLIGHT")
    assert backend.values(topic) == [b"3"] * (offset + 1)


def test_a_closed_producer_has_delivered_what_it_had(backend, start, reports):
    topic, producer = backend.topic(), start(linger_ms=5000)
    producer.produce(topic, b"1", on_delivery=reports)
    assert producer.close() is True
    assert reports == [(None, 0, 0, b"1")]
    assert backend.values(topic) == [b"1"]
    for call in (producer.poll, producer.flush, producer.purge, producer.list_topics, producer.init_transactions):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(RuntimeError):
        producer.produce(topic, b"2")
    assert producer.close() is True
    assert len(producer) == 0


def test_a_producer_is_closed_at_the_end_of_its_block(backend, start):
    topic = backend.topic()
    with start(linger_ms=5000) as producer:
        producer.produce(topic, b"1")
    assert backend.values(topic) == [b"1"]


# -- topics ----------------------------------------------------------------------------------------------------------


def test_a_producer_lists_topics_and_their_partitions(backend, start):
    topic, missing, producer = backend.topic(3), backend.unique("nowhere"), start()
    assert sorted(producer.list_topics(topic, CALL_S).topics[topic].partitions) == [0, 1, 2]
    found = producer.list_topics(missing, CALL_S).topics[missing]
    assert (found.error.name(), found.partitions) == ("UNKNOWN_TOPIC_OR_PART", {})
    assert {topic, missing} & set(producer.list_topics(timeout=CALL_S).topics) == {topic}


@pytest.mark.parametrize("kind", ["plain", "idempotent"])
def test_deleted_records_are_gone_and_the_log_goes_on_behind_them(backend, start, reports, kind):
    topic, producer = backend.topic(), start(**KINDS[kind])
    written(producer, topic, b"0", b"1", b"2", on_delivery=reports)
    backend.delete_records(topic, 0, 2)
    reader = backend.consumer({"group.id": backend.unique("group")})
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), CALL_S) == (2, 3)
    backend.delete_records(topic, 0, 3)
    written(producer, topic, b"3", on_delivery=reports)
    assert [offset for _, _, offset, _ in reports] == [0, 1, 2, 3]
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), CALL_S) == (3, 4)
    reader.assign([TopicPartition(topic, 0, 3)])
    (message,) = reader.consume(1, CALL_S)
    assert message.value() == b"3"
