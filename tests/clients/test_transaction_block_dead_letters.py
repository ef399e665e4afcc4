"""`txn.dead_letter`: a record that an application cannot process is written with its block, or not at all."""

import pytest
from confluent_kafka import TopicPartition

from eos_client import Outcome
from eos_client.clients.transaction_outputs import TransactionOutputs
from eos_client.errors import TransactionStateError
from eos_client.observe import RecordDeadLettered
from tests.clients.simulated_stage import SINK, SOURCE, SimulatedStage

DEAD = "orders.dead"
CAUSE = ValueError("no price")


@pytest.fixture
def stage():
    made = SimulatedStage(partitions=1)
    made.cluster.create_topic(DEAD)
    return made


def letters(stage):
    reader = stage.consumer(group_id="reader")
    reader.subscribe([DEAD])
    return stage.collect(reader, len(stage.cluster.values(DEAD)))


def test_a_letter_holds_the_record_and_where_it_stood_and_its_record_counts_as_processed(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        first, second = stage.collect(consumer, 2)
        txn.dead_letter(first, CAUSE, topic=DEAD, attempts=3)
        txn.produce(SINK, second.value())
    assert txn.outcome is Outcome.COMMITTED
    (letter,) = letters(stage)
    assert (letter.value(), letter.key()) == (first.value(), first.key())
    assert letter.headers() == [
        ("eos.error", b"ValueError: no price"),
        ("eos.topic", SOURCE.encode()),
        ("eos.partition", b"0"),
        ("eos.offset", b"0"),
        ("eos.timestamp", str(first.timestamp()[1]).encode()),
        ("eos.attempts", b"3"),
    ]
    assert stage.cluster.values(SINK) == [second.value()]
    (committed,) = consumer.committed([TopicPartition(SOURCE, 0)])
    assert committed.offset == 2


def test_a_block_that_aborts_leaves_no_letter_and_its_records_come_again(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)

    def fails():
        with txn:
            first, second = stage.collect(consumer, 2)
            txn.dead_letter(first, CAUSE, topic=DEAD)
            raise KeyError(second.value())

    with pytest.raises(KeyError):
        fails()
    assert txn.outcome is Outcome.ABORTED
    assert stage.cluster.values(DEAD) == []
    assert [message.offset() for message in stage.collect(consumer, 2)] == [0, 1]


def test_a_record_that_is_too_large_for_a_letter_leaves_its_origin(stage):
    stage.cluster.write(SOURCE, [b"x" * 900])
    producer, consumer = stage.producer(message_max_bytes=1000), stage.subscribed()
    with producer.transaction(consumer) as txn:
        *_others, large = stage.collect(consumer, 3)
        txn.dead_letter(large, CAUSE, topic=DEAD)
    assert txn.outcome is Outcome.COMMITTED
    (letter,) = letters(stage)
    assert letter.value() == b""
    assert dict(letter.headers())["eos.omitted"] == b"value"
    assert dict(letter.headers())["eos.value.bytes"] == b"900"


def raised_by_price(message):
    try:
        price(message)
    except ValueError as error:
        return error


def price(message):
    raise ValueError("no price")


PLACE = f"test_transaction_block_dead_letters.py:{price.__code__.co_firstlineno + 1} in price"


def test_a_letter_and_its_event_have_the_place_and_the_traceback_of_an_error_that_was_raised(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        first, _second = stage.collect(consumer, 2)
        txn.dead_letter(first, raised_by_price(first), topic=DEAD)
    (letter,) = letters(stage)
    (event,) = told(stage)
    assert event.place == dict(letter.headers())["eos.error.place"].decode() == PLACE
    assert event.traceback == dict(letter.headers())["eos.error.traceback"].decode()
    assert event.traceback.endswith(' in price\n    raise ValueError("no price")\nValueError: no price')


@pytest.mark.parametrize(("size", "kept"), [(400, "value"), (900, "place")])
def test_a_traceback_that_does_not_fit_costs_a_letter_neither_its_value_nor_itself(stage, size, kept):
    stage.cluster.write(SOURCE, [b"x" * size])
    producer, consumer = stage.producer(message_max_bytes=1000), stage.subscribed()
    with producer.transaction(consumer) as txn:
        *_others, large = stage.collect(consumer, 3)
        error = raised_by_price(large).with_traceback(deep(40).__traceback__)
        txn.dead_letter(large, error, topic=DEAD)
    assert txn.outcome is Outcome.COMMITTED
    (letter,) = letters(stage)
    headers = dict(letter.headers())
    assert "eos.error.traceback" not in headers
    assert ("eos.error.place" in headers) == (kept == "place")
    assert letter.value() == (b"x" * size if kept == "value" else b"")
    (event,) = told(stage)
    assert len(event.traceback) > 600


def deep(depth):
    try:
        return recurses(depth)
    except ValueError as error:
        return error


def recurses(depth):
    if depth:
        return recurses(depth - 1)
    raise ValueError("at the bottom")


def told(stage):
    return [event for event in stage.events if isinstance(event, RecordDeadLettered)]


def test_a_letter_is_counted_and_told_when_its_block_is_committed(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        first, _second = stage.collect(consumer, 2)
        txn.dead_letter(first, CAUSE, topic=DEAD)
        assert (producer.counters.records_failed, told(stage)) == (0, []), "not before it is committed"
    assert producer.counters.records_failed == 1
    assert told(stage) == [
        RecordDeadLettered(topic=SOURCE, partition=0, offset=0, error="ValueError: no price", dead_letter_topic=DEAD)
    ]
    with producer.transaction(consumer) as txn:
        txn.produce(SINK, b"more")
    assert (producer.counters.records_failed, len(told(stage))) == (1, 1), "once"


def test_a_letter_of_a_block_that_aborts_is_neither_counted_nor_told(stage):
    producer, consumer = stage.producer(), stage.subscribed()

    def fails():
        with producer.transaction(consumer) as txn:
            txn.dead_letter(stage.collect(consumer, 2)[0], CAUSE, topic=DEAD)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    with producer.transaction(consumer) as txn:
        txn.produce(SINK, stage.collect(consumer, 2)[0].value())
    assert (producer.counters.records_failed, told(stage)) == (0, [])


def test_a_letter_outside_its_block_is_refused(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        first, _second = stage.collect(consumer, 2)
    with pytest.raises(TransactionStateError, match="after the block"):
        txn.dead_letter(first, CAUSE, topic=DEAD)
    assert stage.cluster.values(DEAD) == []


@pytest.mark.parametrize("taken", [b"0-0", None, SINK])
def test_what_is_no_consumed_record_is_refused_by_name(stage, taken):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        first, _second = stage.collect(consumer, 2)
        with pytest.raises(TypeError, match=f"takes a record that was consumed, not {type(taken).__name__}"):
            txn.dead_letter(taken, CAUSE, topic=DEAD)
        txn.dead_letter(first, CAUSE, topic=DEAD)
    assert txn.outcome is Outcome.COMMITTED
    assert stage.cluster.values(DEAD) == [first.value()]


@pytest.mark.parametrize("writes", ["an output", "a letter"])
def test_a_block_is_not_ended_inside_a_write_of_its_own(stage, monkeypatch, writes):
    producer, consumer = stage.producer(), stage.subscribed()
    enqueue = TransactionOutputs.enqueue

    def ended_meanwhile(*arguments):
        with pytest.raises(TransactionStateError, match="a call of the same consumer or producer is running"):
            txn.__exit__(None, None, None)
        enqueue(*arguments)

    monkeypatch.setattr(TransactionOutputs, "enqueue", ended_meanwhile)
    with producer.transaction(consumer) as txn:
        first, _second = stage.collect(consumer, 2)
        if writes == "a letter":
            txn.dead_letter(first, CAUSE, topic=DEAD)
        else:
            txn.produce(SINK, first.value())
    assert txn.outcome is Outcome.COMMITTED
    assert stage.cluster.values(DEAD if writes == "a letter" else SINK) == [first.value()]


def test_the_callback_that_an_application_has_set_for_all_outputs_gets_the_reports_of_letters(stage):
    reported = []
    theirs = {"on_delivery": lambda error, message: reported.append((error, message.topic()))}
    producer = stage.producer(callbacks=theirs)
    consumer = stage.subscribed()
    with producer.transaction(consumer) as txn:
        first, second = stage.collect(consumer, 2)
        txn.dead_letter(first, CAUSE, topic=DEAD)
        txn.produce(SINK, second.value())
    assert txn.outcome is Outcome.COMMITTED
    assert sorted(topic for error, topic in reported if error is None) == sorted([DEAD, SINK])
