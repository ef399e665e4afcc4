"""Records that the transform or the producer does not take: stop, skip or dead letter, never half of a record."""

import re
import time
from contextlib import closing, contextmanager
from typing import Any
from unittest import mock

import pytest
from confluent_kafka.serialization import IntegerSerializer, StringDeserializer, StringSerializer
from kafka import KafkaProducer

from eos_client import EosConsumer, EosProducer, OutputRecord
from eos_client.errors import ClusterUnfitError, InputUnreadableError, OutputRefusedError, TransformError
from eos_client.observe import RecordDeadLettered, RecordSkipped, TransactionAborted
from tests.kafka.loop_support import Job
from tests.support.waiting import WAIT_S, wait_for

BAD = b"7"
TOO_LARGE = b"x" * 2_000_000


class UnreadableError(Exception):
    """What the application's transform raises."""


def refuse_bad(record):
    if record.value() == BAD:
        raise UnreadableError("no such customer")
    return [record.value()]


PLACE = b"test_loop_failed_records.py:%d in refuse_bad" % (refuse_bad.__code__.co_firstlineno + 2)


def all_but_bad(count):
    return [b"%d" % n for n in range(count) if b"%d" % n != BAD]


def test_stop_ends_the_loop_with_the_record_named_and_nothing_of_its_transaction_visible(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(20)
        seen = []

        def transform(record):
            seen.append(record)
            if record.value() == BAD:
                wait_for(job.written, "an output of the open transaction is in the log")
            return refuse_bad(record)

        running = job.start(transform, commit_interval_s=60)
        error = running.ended()
        assert running.events.of(TransactionAborted), "told to the coordinator, not left to its time-out"
        (bad,) = [m for m in seen if m.value() == BAD]
        assert type(error) is TransformError
        assert (error.topic, error.partition, error.offset) == (job.source, bad.partition(), bad.offset())
        assert isinstance(error.__cause__, UnreadableError)
        assert f"{job.source}[{bad.partition()}]@{bad.offset()}" in str(error)
        assert "UnreadableError: no such customer" in str(error)
        assert 'on_error="skip"' in str(error)
        assert job.values() == []
        assert job.committed() == 0


def test_what_was_committed_before_the_failure_stays_and_a_corrected_transform_goes_on_exactly_there(kafka_broker):
    with Job(kafka_broker, partitions=1) as job:
        job.load(20)
        error = job.start(refuse_bad, commit_interval_s=60, max_records=5).ended()
        assert (type(error), error.offset) == (TransformError, 7)
        assert job.committed() == 5
        assert job.values() == [b"%d" % n for n in range(5)]
        corrected = job.start()
        wait_for(lambda: job.committed() == 20, "all inputs committed")
        corrected.stop()
        job.assert_exactly_once()


def test_skip_passes_over_the_record_and_says_so(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(20)
        running = job.start(refuse_bad, on_error="skip")
        job.await_committed()
        running.stop()
        assert job.values() == all_but_bad(20)
        (skipped,) = running.events.of(RecordSkipped)
        assert skipped.error == "UnreadableError: no such customer"
        assert (skipped.topic, skipped.partition, skipped.offset) == (job.source, 3, 1)
        assert running.loop.counters.records_failed == 1


def test_a_dead_letter_is_the_record_unchanged_with_its_origin_and_the_error_in_headers(kafka_broker):
    with Job(kafka_broker) as job:
        dead = job.more_topics("dead")
        job.load(20, headers=[("trace", b"abc")])
        running = job.start(refuse_bad, on_error="dead_letter", dead_letter_topic=dead)
        job.await_committed()
        running.stop()
        assert job.values() == all_but_bad(20)
        (letter,) = job.messages(dead)
        assert (letter.value(), letter.key()) == (BAD, b"key-" + BAD)
        headers = letter.headers()
        place, trace = headers.pop(2), headers.pop(2)
        assert place == ("eos.error.place", PLACE)
        assert trace[0] == "eos.error.traceback"
        assert trace[1].endswith(b'raise UnreadableError("no such customer")\nUnreadableError: no such customer')
        assert headers[-2:] == [("eos.timestamp", mock.ANY), ("eos.attempts", b"1")]
        assert int(headers[-2][1]) > 1_700_000_000_000
        assert headers[:-2] == [
            ("trace", b"abc"),
            ("eos.error", b"UnreadableError: no such customer"),
            ("eos.topic", job.source.encode()),
            ("eos.partition", b"3"),
            ("eos.offset", b"1"),
        ]
        (event,) = running.events.of(RecordDeadLettered)
        assert event.dead_letter_topic == dead


class NotUtf8(str):
    """The name of a header as only a foreign producer writes it."""

    __slots__ = ()

    def encode(self, *_arguments):
        return b"\xff\xfe"


@pytest.mark.soak
def test_a_header_whose_name_is_no_utf8_costs_no_record_and_no_process(kafka_broker):
    headers = [("a", b"1"), (NotUtf8(), b"2"), ("b", b"3")]
    repaired = [("a", b"1"), ("\N{REPLACEMENT CHARACTER}", b"2"), ("b", b"3")]
    with Job(kafka_broker) as job, closing(KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers)) as foreign:
        dead = job.more_topics("dead")
        for value in (b"to be written", BAD):
            foreign.send(job.source, value, headers=headers, partition=0).get(WAIT_S)
        seen = []

        def transform(record):
            seen.append(record.headers())
            return refuse_bad(record)

        running = job.start(transform, on_error="dead_letter", dead_letter_topic=dead)
        running.events.wait_for(RecordDeadLettered)  # of the second record; it follows the commit
        running.stop()
        assert [headers for headers in seen if headers != repaired] == []
        assert job.values() == [b"to be written"]
        (letter,) = job.messages(dead)
        assert letter.headers()[:3] == repaired


def test_records_are_deserialised_and_one_that_cannot_be_is_dead_lettered_with_its_bytes(kafka_broker):
    with Job(kafka_broker) as job:
        dead = job.more_topics("dead")
        job.load(5)
        job.load_value(b"\xff")
        running = job.start(
            lambda record: [OutputRecord(value=int(record.value()), key=record.key())],
            on_error="dead_letter",
            dead_letter_topic=dead,
            key_deserializer=StringDeserializer(),
            value_deserializer=StringDeserializer(),
            key_serializer=StringSerializer(),
            value_serializer=IntegerSerializer(),
        )
        job.await_committed()
        running.stop()
        outputs = {message.key(): message.value() for message in job.messages()}
        assert outputs == {b"key-%d" % n: n.to_bytes(4, "big") for n in range(5)}
        (letter,) = job.messages(dead)
        assert (letter.value(), letter.key()) == (b"\xff", b"key")
        assert b"StringDeserializer" in dict(letter.headers())["eos.error"]


def test_a_block_deserialises_dead_letters_and_serialises(kafka_broker):
    with Job(kafka_broker, partitions=1) as job:
        dead = job.more_topics("dead")
        job.load(2)
        job.load_value(b"\xff")
        shared = {"bootstrap.servers": job.bootstrap, "log_level": 0}
        reading = {"group.id": job.group, "value.deserializer": StringDeserializer()}
        with (
            EosConsumer(shared | reading) as consumer,
            EosProducer(shared | {"value.serializer": IntegerSerializer()}, generate_id=True) as producer,
        ):
            producer.init_transactions(WAIT_S)
            consumer.subscribe([job.source])

            def one_block():
                with producer.transaction(consumer) as txn:
                    for message in consumer.consume(10, 0.2):
                        try:
                            producer.produce(job.sink, value=int(message.value()), key=message.raw.key())
                        except InputUnreadableError as error:  # noqa: PERF203  # as an application does
                            txn.dead_letter(message, error, topic=dead)

            wait_for(lambda: job.committed() == 3, "all inputs committed", one_block)
        assert sorted(message.value() for message in job.messages()) == [bytes(4), b"\0\0\0\1"]
        assert [message.value() for message in job.messages(dead)] == [b"\xff"]


LONG_ERROR = ValueError("no price" * 100)


@contextmanager
def blocks_of_letters(broker, limit_bytes, **settings):
    """A job of three records, the second of 3,000 bytes, and a function that writes a letter of each in a block."""
    with Job(broker, partitions=1) as job:
        dead = job.more_topics("dead", **{"max.message.bytes": str(limit_bytes)}, **settings)
        job.load(1)
        job.load_value(b"x" * 3000)
        job.load(1)
        shared = {"bootstrap.servers": job.bootstrap, "log_level": 0}
        with (
            EosConsumer(shared | {"group.id": job.group}) as consumer,
            EosProducer(shared | {"linger.ms": 100}, generate_id=True) as producer,
        ):
            producer.init_transactions(WAIT_S)
            consumer.subscribe([job.source])

            def one_block():
                with producer.transaction(consumer) as txn:
                    for message in consumer.consume(3, 0.5):
                        txn.dead_letter(message, LONG_ERROR, topic=dead)

            yield job, dead, one_block


@pytest.mark.parametrize(
    ("limit_bytes", "error_characters"), [pytest.param(1500, 812, marks=pytest.mark.soak), (700, 100)]
)
def test_a_letter_of_a_block_that_the_broker_finds_too_large_is_smaller_in_a_later_block(
    kafka_broker, limit_bytes, error_characters
):
    """What the broker has refused only because it was in the same batch is written whole."""
    with blocks_of_letters(kafka_broker, limit_bytes) as (job, dead, one_block):
        wait_for(lambda: job.committed() == 3, "all inputs committed", one_block)
        first, large, last = job.messages(dead)
    assert [each.value() for each in (first, large, last)] == [b"0", b"", b"2"]
    headers = [dict(each.headers()) for each in (first, large, last)]
    assert [each.get("eos.omitted") for each in headers] == [None, b"value", None]
    assert [len(each["eos.error"]) for each in headers] == [error_characters, 100, error_characters]


def test_a_letter_of_a_block_that_fits_in_no_form_is_refused_by_name(kafka_broker):
    with (
        blocks_of_letters(kafka_broker, 200) as (job, _, one_block),
        pytest.raises(
            OutputRefusedError, match=r"the smallest dead letter of .*\[0\]@0, .* is too large for its topic"
        ),
    ):
        wait_for(lambda: job.committed() == 3, "all inputs committed", one_block)


NO_KEY = "INVALID_RECORD: .*no key, and a topic with cleanup.policy=compact"


def test_a_letter_of_a_block_that_a_compacted_topic_refuses_is_named_with_the_brokers_reason(kafka_broker):
    with blocks_of_letters(kafka_broker, 1_000_000, **{"cleanup.policy": "compact"}) as (job, _, one_block):
        job.load_value(BAD, key=None)
        with pytest.raises(OutputRefusedError, match=NO_KEY) as refused:
            wait_for(lambda: job.committed() == 4, "a refusal", one_block)
        assert refused.value.__cause__ is not None
        assert refused.value.__cause__.args[0].name() == "INVALID_RECORD"
        assert job.committed() < 4


def test_a_letter_of_a_loop_that_a_compacted_topic_refuses_ends_it_with_the_brokers_reason(kafka_broker):
    with Job(kafka_broker, partitions=1) as job:
        dead = job.more_topics("dead", **{"cleanup.policy": "compact"})
        job.load_value(BAD, key=None)
        running = job.start(refuse_bad, on_error="dead_letter", dead_letter_topic=dead)
        error = running.ended()
        assert re.search(f"and its dead letter with .*{NO_KEY}", str(error))
        assert type(error) is TransformError
        assert error.__cause__ is not None
        assert error.__cause__.args[0].name() == "INVALID_RECORD"
        assert len(running.events.of(TransactionAborted)) <= 3, "no smaller letter is tried"


def test_a_dead_letter_is_in_the_same_transaction_as_everything_else(kafka_broker):
    with Job(kafka_broker, partitions=1) as job:
        dead = job.more_topics("dead")
        job.load(12)

        def transform(record):
            if record.value() == b"12":
                raise SystemExit("the process ends here")  # no Exception: nobody's record failure
            return refuse_bad(record)

        ending = job.start(transform, on_error="dead_letter", dead_letter_topic=dead, commit_interval_s=60)
        wait_for(lambda: job.written(dead) and job.written() >= 11, "the outputs before are in the log")
        job.load(8)
        assert isinstance(ending.ended(), SystemExit)
        assert job.values(dead, isolation="read_uncommitted") == [BAD]
        assert job.values(isolation="read_uncommitted") == all_but_bad(12)
        assert job.values(dead) == []
        assert job.values() == []
        running = job.start(refuse_bad, on_error="dead_letter", dead_letter_topic=dead)
        wait_for(lambda: job.committed() == 20, "all inputs committed")
        running.stop()
        assert job.values(dead) == [BAD]
        assert job.values() == all_but_bad(20)


@pytest.mark.parametrize(
    ("size", "settings"),
    [(999_900, {}), (5_000, {"max_message_bytes": 3_000})],
    ids=["too large for the client with its headers", "too large for the topic"],
)
def test_a_record_that_is_too_large_to_be_dead_lettered_leaves_its_origin_and_the_loop_goes_on(
    kafka_broker, size, settings
):
    large = b"x" * size
    with Job(kafka_broker) as job:
        dead = job.more_topics("dead", **settings)
        job.load(3, first_partition=1)
        job.load_value(large)

        def transform(record):
            if record.value() == large:
                raise UnreadableError("no such customer")
            return [record.value()]

        running = job.start(transform, on_error="dead_letter", dead_letter_topic=dead)
        job.await_committed()
        running.stop()
        (letter,) = job.messages(dead)
        assert (letter.value(), letter.key()) == (b"", b"key")
        assert dict(letter.headers()) == {
            "eos.error": b"UnreadableError: no such customer",
            "eos.error.place": mock.ANY,
            "eos.topic": job.source.encode(),
            "eos.partition": b"0",
            "eos.offset": b"0",
            "eos.timestamp": mock.ANY,
            "eos.attempts": b"1",
            "eos.omitted": b"value",
            "eos.value.bytes": b"%d" % size,
        }
        assert job.values() == [b"0", b"1", b"2"]


def test_a_record_that_fits_into_a_letter_without_its_traceback_keeps_its_value(kafka_broker):
    with Job(kafka_broker) as job:
        dead = job.more_topics("dead", max_message_bytes=3_000)
        large = b"x" * 2_600
        job.load_value(large)

        def raises(depth):
            if depth:
                raises(depth - 1)
            raise UnreadableError("no such customer")

        running = job.start(lambda record: raises(20), on_error="dead_letter", dead_letter_topic=dead)
        job.await_committed()
        running.stop()
        (letter,) = job.messages(dead)
        assert (letter.value(), letter.key()) == (large, b"key")
        assert not {"eos.error.place", "eos.error.traceback"} & dict(letter.headers()).keys()
        (event,) = running.events.of(RecordDeadLettered)
        assert event.place.endswith(" in raises")
        assert len(event.traceback) > 600


def test_an_output_too_large_takes_the_earlier_outputs_of_its_record_with_it(kafka_broker):
    with Job(kafka_broker) as job:
        dead = job.more_topics("dead")

        def transform(record):
            yield record.value()
            if record.value() == BAD:
                yield TOO_LARGE

        job.load(20)
        running = job.start(transform, on_error="dead_letter", dead_letter_topic=dead)
        job.await_committed()
        running.stop()
        assert job.values() == all_but_bad(20)
        assert job.values(dead) == [BAD]
        assert running.loop.counters.records_failed == 1


NO_SUCH_TIME_MS = 2**62
REFUSED_BY_BROKERS: dict[str, tuple[dict[str, Any], OutputRecord, str]] = {
    "too large": ({"max_message_bytes": 3000}, OutputRecord(value=b"y" * 5000, key=b"k"), "MSG_SIZE_TOO_LARGE"),
    "null key": ({"cleanup_policy": "compact"}, OutputRecord(value=b"y"), "INVALID_RECORD"),
    "timestamp": ({}, OutputRecord(value=b"y", key=b"k", timestamp_ms=NO_SUCH_TIME_MS), "INVALID_TIMESTAMP"),
}


def keyed_copy(output, bad):
    """Copy with keys, but give `output` for the values in `bad`."""
    return lambda record: [output if record.value() in bad else OutputRecord(value=record.value(), key=record.key())]


@pytest.mark.parametrize(
    "refusal",
    [pytest.param(each, marks=[pytest.mark.soak] if each == "timestamp" else []) for each in REFUSED_BY_BROKERS],
)
def test_an_output_that_the_broker_refuses_is_its_own_records_failure(kafka_broker, refusal):
    settings, output, code = REFUSED_BY_BROKERS[refusal]
    bad = {BAD, b"60"}
    with Job(kafka_broker) as job:
        sink, dead = job.more_topics("sink", **settings), job.more_topics("dead")
        job.load(100)
        letters = {"on_error": "dead_letter", "dead_letter_topic": dead}
        running = job.start(keyed_copy(output, bad), output_topic=sink, **letters)
        job.await_committed()
        running.stop()
        assert job.values(sink) == [b"%d" % n for n in range(100) if b"%d" % n not in bad]
        assert set(job.values(dead)) == bad
        told = running.events.of(RecordDeadLettered)
        assert len({(event.partition, event.offset) for event in told}) == len(bad)
        assert [event.error for event in told if code not in event.error] == []
        # Of a refused batch the broker knows nothing: the next transaction's numbers do not follow.
        reasons = [event.reason for event in running.events.of(TransactionAborted)]
        assert [why for why in reasons if code not in why and "OUT_OF_ORDER_SEQUENCE_NUMBER" not in why] == []


def test_outputs_of_a_record_that_are_too_large_only_as_a_batch_are_no_failure_of_the_record(kafka_broker):
    with Job(kafka_broker, partitions=1) as job:
        dead, limited = job.more_topics("dead"), job.more_topics("limited", **{"max.message.bytes": "3000"})
        contents = [value.ljust(700, b".") for value in job.load(20)]
        contents[13] = b"y" * 5000  # too large by itself
        running = job.start(
            lambda record: [OutputRecord(limited, value=contents[int(record.value())])] * 10,
            on_error="dead_letter",
            dead_letter_topic=dead,
        )
        wait_for(lambda: job.committed() == 20, "all inputs committed")
        running.stop()
        assert job.values(dead) == [b"13"]
        assert job.values(limited) == sorted(each for each in contents if len(each) == 700 for _ in range(10))
        reasons = [each.reason for each in running.events.of(TransactionAborted)]
        assert any("the 10 outputs of" in each and "set batch.size below the topic's" in each for each in reasons)


def test_an_output_that_the_broker_refuses_stops_the_loop_by_default_and_names_its_record(kafka_broker):
    settings, output, code = REFUSED_BY_BROKERS["too large"]
    with Job(kafka_broker) as job:
        sink = job.more_topics("sink", **settings)
        job.load(60)
        error = job.start(keyed_copy(output, {BAD}), output_topic=sink).ended()
        assert type(error) is TransformError
        assert (error.partition, error.offset) == (3, 1)
        assert isinstance(error.__cause__, OutputRefusedError)
        assert code in str(error)
        assert BAD not in job.values(sink)


ONLY_THE_PRESENT = {"message_timestamp_before_max_ms": 1000}
"""Topics to which the clock of a host is behind whose outputs wait for their batch as long as these do.

The marker of an abort is younger: one that a broker refuses for its time is never written, and the id stays unusable.
"""
WAITS_LONGER: dict[str, Any] = {"linger.ms": 1500}


@pytest.mark.parametrize(
    ("on_error", "outputs"),
    [
        *[("skip", 1), ("dead_letter", 2)],
        *(pytest.param(*case, marks=pytest.mark.soak) for case in [("stop", 1), ("stop", 2), ("skip", 2)]),
        pytest.param("dead_letter", 1, marks=pytest.mark.soak),
    ],
)
def test_a_time_that_the_hosts_clock_gave_is_no_failure_of_a_record(kafka_broker, on_error, outputs):
    """Of two outputs in one batch the delivery reports say INVALID_RECORD."""
    with Job(kafka_broker, partitions=1) as job:
        sink, dead = job.more_topics("sink", "dead", **ONLY_THE_PRESENT)
        job.load(20)
        policy = {"on_error": on_error} | ({"dead_letter_topic": dead} if on_error == "dead_letter" else {})
        options = {"producer": WAITS_LONGER, "commit_interval_s": 2.0, **policy}
        running = job.start(lambda record: [record.value()] * outputs, output_topic=sink, **options)
        error = running.ended()
        assert isinstance(error, ClusterUnfitError)
        assert "INVALID_TIMESTAMP" in str(error)
        assert "this host's clock" in str(error)
        assert (job.committed(), job.values(sink), job.values(dead)) == (0, [], [])
        assert running.events.of(RecordSkipped) + running.events.of(RecordDeadLettered) == []


@pytest.mark.parametrize("only_error", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_block_that_the_hosts_clock_has_spoiled_ends_with_its_name(kafka_broker, only_error):
    with Job(kafka_broker, partitions=1) as job:
        sink = job.more_topics("sink", **ONLY_THE_PRESENT)
        job.load(3)
        shared = {"bootstrap.servers": job.bootstrap, "log_level": 0}
        writing = {**WAITS_LONGER, "delivery.report.only.error": only_error}
        with (
            EosConsumer(shared | {"group.id": job.group}) as consumer,
            EosProducer(shared | writing, generate_id=True) as producer,
        ):
            producer.init_transactions(WAIT_S)
            consumer.subscribe([job.source])

            def ends():
                try:
                    with producer.transaction(consumer) as txn:
                        for message in consumer.consume(3, 0.5):
                            txn.produce(sink, message.value())
                            time.sleep(2.0)  # the next output is refused because this one was
                except ClusterUnfitError as error:
                    return str(error)
                return None

            for _ in range(2):
                assert "this host's clock" in wait_for(ends, "the error")
        assert (job.committed(), job.values(sink)) == (0, [])
