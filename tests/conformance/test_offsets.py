"""Where consumers start, where they are, and what they step over."""

from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tests.conformance.backends import LIMIT_S
from tests.support.client_settings import dotted
from tests.support.protocols import CONSUMER, EAGER, settings_of

WAIT_S = 0.5
SHORT_S = 0.1
EVENT_S = 2.0


class Bench:
    """A topic of two partitions, 0-0 to 0-9 in the first, 1-0 to 1-4 in the second, and consumers without a group."""

    def __init__(self, backend):
        self.backend = backend
        self.topic = backend.topic(2)
        self.group = backend.unique("group")
        backend.fill(self.topic, {0: 10, 1: 5})

    def place(self, offset=OFFSET_INVALID, partition=0):
        return TopicPartition(self.topic, partition, offset)

    def consumer(self, **settings):
        given = {"group.id": self.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        return self.backend.consumer(given | dotted(settings))

    def at(self, offset=0, **settings):
        """A consumer that reads partition 0 from `offset`."""
        consumer = self.consumer(**settings)
        consumer.assign([self.place(offset)])
        return consumer

    def take(self, consumer, count, limit_s=LIMIT_S):
        """The next `count` messages, errors included."""
        taken: list[Any] = []

        def more():
            taken.extend(consumer.consume(count - len(taken), 0.1))
            return len(taken) >= count

        self.backend.until(more, f"{count} messages", limit_s=limit_s)
        return taken

    def offsets(self, consumer, count):
        return [message.offset() for message in self.take(consumer, count)]

    def take_end(self, consumer, offset):
        """The next message is the end of partition 0, at `offset`: from here on, the consumer waits for more there."""
        (end,) = self.take(consumer, 1)
        assert end.error().code() == KafkaError._PARTITION_EOF
        assert (end.partition(), end.offset()) == (0, offset)

    def await_end(self, offset):
        """Wait until partition 0 ends there for read_committed: an answered transaction may precede its marker."""
        reader = self.consumer()
        self.backend.until(
            lambda: reader.get_watermark_offsets(self.place(), LIMIT_S) == (0, offset), f"the end at {offset}"
        )
        reader.close()

    def position(self, consumer, partition=0):
        (found,) = consumer.position([self.place(partition=partition)])
        return found.offset

    def stored(self, partition=0, **settings):
        """The group's offset as somebody else sees it."""
        reader = self.consumer(**settings)
        (found,) = reader.committed([self.place(partition=partition)], LIMIT_S)
        reader.close()
        return found.offset

    def producer(self):
        """A transactional producer, ready."""
        producer = self.backend.producer({"transactional.id": self.backend.unique("producer")})
        producer.init_transactions(LIMIT_S)
        return producer

    def sent(self, producer, offset, partition=0):
        """Send one offset in the running transaction, as a member of nothing."""
        outsider = self.consumer()
        places = [self.place(offset, partition)]
        producer.send_offsets_to_transaction(places, outsider.consumer_group_metadata(), LIMIT_S)
        outsider.close()


@pytest.fixture
def bench(backend):
    return Bench(backend)


def error_of(call):
    with pytest.raises(KafkaException) as refused:
        call()
    return refused.value.args[0].name()


# -- where a consumer starts -----------------------------------------------------------------------------------------


def test_without_an_offset_the_earliest_record_comes_first(bench):
    consumer = bench.at(OFFSET_INVALID)
    assert bench.offsets(consumer, 10) == list(range(10))


def test_without_an_offset_latest_waits_for_what_comes(bench):
    consumer = bench.at(OFFSET_INVALID, auto_offset_reset="latest", enable_partition_eof=True)
    bench.take_end(consumer, 10)
    assert consumer.consume(1, WAIT_S) == []
    bench.backend.fill(bench.topic, 1, start=10)
    assert bench.offsets(consumer, 1) == [10]


def test_without_an_offset_error_is_an_error_event(bench):
    consumer = bench.at(OFFSET_INVALID, auto_offset_reset="error")
    (message,) = bench.take(consumer, 1)
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    assert (message.topic(), message.partition()) == (bench.topic, 0)


def test_a_committed_offset_is_where_it_starts(bench):
    bench.consumer().commit(offsets=[bench.place(7)], asynchronous=False)
    assert bench.offsets(bench.at(OFFSET_INVALID), 3) == [7, 8, 9]


@pytest.mark.parametrize(("offset", "first"), [(4, 4), (OFFSET_BEGINNING, 0), (0, 0)])
def test_an_offset_given_with_the_assignment_wins_over_the_committed_one(bench, offset, first):
    bench.consumer().commit(offsets=[bench.place(7)], asynchronous=False)
    assert bench.offsets(bench.at(offset), 1) == [first]


def test_the_end_can_be_asked_for(bench):
    consumer = bench.at(OFFSET_END, enable_partition_eof=True)
    bench.take_end(consumer, 10)
    assert consumer.consume(1, WAIT_S) == []
    bench.backend.fill(bench.topic, 1, start=10)
    assert bench.offsets(consumer, 1) == [10]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 3), ("error", "_AUTO_OFFSET_RESET")])
def test_an_offset_whose_record_was_deleted_is_reset(bench, reset, expected):
    bench.backend.delete_records(bench.topic, 0, 3)
    consumer = bench.at(1, auto_offset_reset=reset)
    (message,) = bench.take(consumer, 1)
    assert (message.error().name() if message.error() else message.offset()) == expected


@pytest.mark.parametrize("offset", [OFFSET_INVALID, 1])
def test_the_error_event_of_a_reset_outlives_pauses(bench, offset):
    bench.backend.delete_records(bench.topic, 0, 3)
    consumer = bench.at(offset, auto_offset_reset="error")
    for _ in range(15):
        bench.backend.wait(SHORT_S)
        consumer.pause([bench.place()])
        bench.backend.wait(SHORT_S)
        consumer.resume([bench.place()])
    (message,) = bench.take(consumer, 1)
    assert message.error().name() == "_AUTO_OFFSET_RESET"
    assert consumer.consume(1, WAIT_S) == []


def test_the_error_event_of_a_reset_outlives_the_assignment(bench):
    bench.backend.delete_records(bench.topic, 0, 3)
    consumer = bench.at(1, auto_offset_reset="error")
    bench.backend.wait(EVENT_S)
    consumer.unassign()
    bench.backend.wait(SHORT_S)
    consumer.assign([bench.place(5)])
    event, *records = bench.take(consumer, 6)
    assert (event.error().name(), event.offset()) == ("_AUTO_OFFSET_RESET", 1)
    assert [message.offset() for message in records] == list(range(5, 10))


def test_an_offset_beyond_the_end_is_reset(bench):
    assert bench.offsets(bench.at(50), 1) == [0]


# -- where it is -----------------------------------------------------------------------------------------------------


def test_the_position_is_behind_the_last_record_that_was_handed_over(bench):
    consumer = bench.at()
    assert bench.position(consumer) == OFFSET_INVALID
    bench.take(consumer, 4)
    assert bench.position(consumer) == 4
    assert bench.position(consumer, partition=1) == OFFSET_INVALID


def test_seek_goes_back_and_on(bench):
    consumer = bench.at()
    bench.take(consumer, 6)
    consumer.seek(bench.place(2))
    assert bench.offsets(consumer, 2) == [2, 3]
    consumer.seek(bench.place(8))
    assert bench.offsets(consumer, 2) == [8, 9]
    assert bench.position(consumer) == 10


def test_the_end_is_told_again_after_a_seek(bench):
    consumer = bench.at(enable_partition_eof=True)
    bench.take(consumer, 10)
    bench.take_end(consumer, 10)
    consumer.seek(bench.place(8))
    assert bench.offsets(consumer, 2) == [8, 9]
    bench.take_end(consumer, 10)


def test_seek_of_what_is_not_assigned_is_refused(bench):
    consumer = bench.at()
    bench.take(consumer, 1)
    assert error_of(lambda: consumer.seek(bench.place(0, partition=1))) == "_STATE"


def test_a_seek_takes_the_position_away_until_a_record_comes(bench):
    consumer = bench.at()
    bench.take(consumer, 6)
    consumer.pause([bench.place()])
    consumer.seek(bench.place(2))
    consumer.poll(WAIT_S)
    assert bench.position(consumer) == OFFSET_INVALID
    consumer.resume([bench.place()])
    assert bench.offsets(consumer, 1) == [2]
    assert bench.position(consumer) == 3


def test_a_seek_before_the_first_poll_is_heeded(bench):
    consumer = bench.at(2)
    consumer.seek(bench.place(6))
    assert bench.offsets(consumer, 1) == [6]


@pytest.mark.parametrize("offset", [OFFSET_BEGINNING, OFFSET_INVALID])
def test_a_seek_to_the_beginning_or_to_no_offset_begins_again(bench, offset):
    """Of OFFSET_INVALID, ``auto.offset.reset`` says where that is, even if the group has an offset."""
    bench.consumer().commit(offsets=[bench.place(7)], asynchronous=False)
    consumer = bench.at()
    bench.take(consumer, 6)
    consumer.seek(bench.place(offset))
    assert bench.offsets(consumer, 4) == [0, 1, 2, 3]


def test_a_seek_to_the_end_waits_for_what_comes(bench):
    consumer = bench.at(enable_partition_eof=True)
    bench.take(consumer, 6)
    consumer.seek(bench.place(OFFSET_END))
    bench.take_end(consumer, 10)
    bench.backend.fill(bench.topic, 1, start=10)
    assert bench.offsets(consumer, 1) == [10]


def test_a_seek_to_the_stored_offset_is_refused_and_stops_reading(bench):
    consumer = bench.at()
    bench.take(consumer, 6)
    assert error_of(lambda: consumer.seek(bench.place(OFFSET_STORED))) == "_INVALID_ARG"
    bench.backend.fill(bench.topic, 1, start=10)
    assert consumer.consume(1, WAIT_S) == []
    consumer.seek(bench.place(2))
    assert bench.offsets(consumer, 2) == [2, 3]


def test_a_seek_inside_a_callback_drops_what_its_call_has_collected(bench):
    """Ten records wait before the callback of the statistics, and one of another partition after it."""
    seeks: list[Any] = []

    def on_statistics(_):
        if seeks:
            seeks.pop()()

    consumer = bench.consumer(stats_cb=on_statistics, statistics_interval_ms=500)
    consumer.assign([bench.place(0), bench.place(5, partition=1)])
    bench.backend.wait(0.75)
    bench.backend.fill(bench.topic, {1: 1}, start=5)
    bench.backend.wait(WAIT_S)
    seeks.append(lambda: consumer.seek(bench.place(2)))
    messages = consumer.consume(11, EVENT_S)
    messages += bench.take(consumer, max(0, 9 - len(messages)))
    assert [m.offset() for m in messages if m.partition() == 0] == list(range(2, 10))


def test_records_that_wait_are_void_after_a_pause_and_handed_over_after_it(bench):
    consumer = bench.at()
    bench.take(consumer, 1)
    bench.backend.wait(WAIT_S)
    for _ in range(3):
        consumer.pause([bench.place()])
        assert consumer.consume(1, 0.1) == []
        consumer.resume([bench.place()])
    assert bench.offsets(consumer, 9) == list(range(1, 10))


def test_a_paused_partition_hands_over_nothing_and_goes_on_where_it_was(bench):
    consumer = bench.at()
    bench.take(consumer, 3)
    consumer.pause([bench.place()])
    assert consumer.consume(5, WAIT_S) == []
    consumer.resume([bench.place()])
    assert bench.offsets(consumer, 3) == [3, 4, 5]


def test_a_pause_before_the_first_assignment_of_its_topic_has_no_effect(bench):
    consumer = bench.consumer()
    consumer.pause([bench.place()])
    consumer.assign([bench.place(0)])
    assert bench.offsets(consumer, 10) == list(range(10))


def test_a_pause_of_one_partition_leaves_the_other(bench):
    consumer = bench.consumer()
    consumer.assign([bench.place(0), bench.place(0, partition=1)])
    consumer.pause([bench.place()])
    assert {message.partition() for message in bench.take(consumer, 5)} == {1}


def test_assigned_again_it_starts_from_the_committed_offset_not_from_its_position(bench):
    consumer = bench.at()
    bench.take(consumer, 6)
    consumer.unassign()
    consumer.assign([bench.place()])
    assert bench.offsets(consumer, 1) == [0]


def test_the_end_of_a_partition_is_told_once_until_more_comes(bench):
    consumer = bench.at(8, enable_partition_eof=True)
    *_, end = bench.take(consumer, 3)
    assert end.error().code() == KafkaError._PARTITION_EOF
    assert (end.partition(), end.offset()) == (0, 10)
    assert consumer.consume(1, WAIT_S) == []
    bench.backend.fill(bench.topic, 1, start=10)
    record, end = bench.take(consumer, 2)
    assert (record.offset(), end.offset()) == (10, 11)


def test_a_partition_that_is_not_there_hands_over_nothing(bench):
    consumer = bench.consumer()
    consumer.assign([bench.place(0, partition=7), bench.place(8)])
    assert [(m.partition(), m.offset()) for m in bench.take(consumer, 2)] == [(0, 8), (0, 9)]
    assert consumer.consume(1, WAIT_S) == []


# -- a topic that is deleted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [EAGER, CONSUMER])
def test_a_member_of_a_deleted_topic_is_left_without_partitions(bench, protocol):
    """A classic member is told in an event."""
    consumer = bench.consumer(topic_metadata_refresh_interval_ms=500, **settings_of(protocol))
    consumer.subscribe([bench.topic])
    bench.take(consumer, 15)
    bench.backend.delete_topic(bench.topic)
    told: list[Any] = []

    def is_left():
        told.extend((m.topic(), m.error().name()) for m in consumer.consume(1, SHORT_S))
        return not consumer.assignment() and (told or protocol == CONSUMER)

    bench.backend.until(is_left, "no partitions")
    assert told == ([] if protocol == CONSUMER else [(bench.topic, "UNKNOWN_TOPIC_OR_PART")])


def test_what_is_committed_for_a_deleted_topic_goes_with_it(bench):
    bench.consumer().commit(offsets=[bench.place(7)], asynchronous=False)
    bench.backend.delete_topic(bench.topic)
    bench.backend.until(lambda: bench.stored() == OFFSET_INVALID, "the offset to be gone")
    committer = bench.consumer()
    assert error_of(lambda: committer.commit(offsets=[bench.place(7)], asynchronous=False)) == "UNKNOWN_TOPIC_OR_PART"
    bench.backend.create_topic(bench.topic, 2)
    assert bench.stored() == OFFSET_INVALID


# -- transactions in the log -----------------------------------------------------------------------------------------


def test_a_marker_takes_an_offset_that_no_reader_gets(bench):
    producer = bench.producer()
    for _ in range(2):
        producer.begin_transaction()
        producer.produce(bench.topic, b"committed", partition=0)
        producer.commit_transaction(LIMIT_S)
    bench.await_end(14)
    consumer = bench.at(8, enable_partition_eof=True)
    assert bench.offsets(consumer, 5) == [8, 9, 10, 12, 14]
    assert bench.position(consumer) == 14


def marker_at_11(bench):
    """A producer whose committed transaction has one record, at 10; its marker is at 11, the last offset."""
    producer = bench.producer()
    producer.begin_transaction()
    producer.produce(bench.topic, b"committed", partition=0)
    producer.commit_transaction(LIMIT_S)
    bench.await_end(12)
    return producer


def await_position(bench, consumer, offset):
    bench.backend.until(lambda: bench.position(consumer) == offset, f"the position {offset}", polling=[consumer])


def test_without_end_of_partition_events_the_position_steps_over_a_marker_all_the_same(bench):
    marker_at_11(bench)
    consumer = bench.at(8)
    assert bench.offsets(consumer, 3) == [8, 9, 10]
    await_position(bench, consumer, 12)
    consumer.commit(asynchronous=False)
    assert bench.stored() == 12


def test_the_position_steps_over_markers_before_any_record_came(bench):
    marker_at_11(bench)
    bench.consumer().commit(offsets=[bench.place(11)], asynchronous=False)
    consumer = bench.at(OFFSET_INVALID)
    await_position(bench, consumer, 12)
    bench.backend.fill(bench.topic, 1, start=12)
    assert bench.offsets(consumer, 1) == [12]


def test_nothing_but_markers_and_aborted_records_is_no_record_and_a_position(bench):
    producer = bench.producer()
    producer.begin_transaction()
    producer.produce(bench.topic, b"aborted", partition=0)
    producer.flush(LIMIT_S)
    producer.abort_transaction(LIMIT_S)
    bench.await_end(12)
    consumer = bench.at(10)
    await_position(bench, consumer, 12)
    assert consumer.consume(1, WAIT_S) == []


def test_the_position_has_the_leader_epoch_of_what_it_has_passed(bench):
    marker_at_11(bench)
    consumer = bench.at(9)
    assert bench.offsets(consumer, 2) == [9, 10]
    await_position(bench, consumer, 12)
    (found,) = consumer.position([bench.place()])
    assert found.leader_epoch == 0


def test_a_partition_without_anything_new_has_no_position(bench):
    consumer = bench.at(10)
    assert consumer.consume(1, WAIT_S) == []
    assert bench.position(consumer) == OFFSET_INVALID


def test_a_seek_back_over_markers_alone_brings_the_position_back(bench):
    marker_at_11(bench)
    consumer = bench.at(11)
    await_position(bench, consumer, 12)
    consumer.seek(bench.place(11))
    await_position(bench, consumer, 12)
    assert consumer.consume(1, SHORT_S) == []


def test_the_position_stops_where_an_open_transaction_begins(bench):
    producer = marker_at_11(bench)
    producer.begin_transaction()
    producer.produce(bench.topic, b"open", partition=0)
    producer.flush(LIMIT_S)
    consumer = bench.at(9)
    assert bench.offsets(consumer, 2) == [9, 10]
    await_position(bench, consumer, 12)
    assert consumer.consume(1, WAIT_S) == []
    assert bench.position(consumer) == 12
    producer.commit_transaction(LIMIT_S)
    assert bench.offsets(consumer, 1) == [12]
    await_position(bench, consumer, 14)


def test_aborted_records_are_stepped_over(bench):
    producer = bench.producer()
    producer.begin_transaction()
    producer.produce(bench.topic, b"aborted", partition=0)
    producer.flush(LIMIT_S)
    producer.abort_transaction(LIMIT_S)
    bench.await_end(12)
    bench.backend.fill(bench.topic, 1, start=12)
    assert bench.offsets(bench.at(9), 2) == [9, 12]
    assert bench.offsets(bench.at(9, isolation_level="read_uncommitted"), 3) == [9, 10, 12]


def test_an_open_transaction_is_the_end_for_read_committed_only(bench):
    producer = bench.producer()
    producer.begin_transaction()
    producer.produce(bench.topic, b"open", partition=0)
    producer.flush(LIMIT_S)
    bench.backend.fill(bench.topic, 1, start=11)
    committed = bench.at(9, enable_partition_eof=True)
    uncommitted = bench.at(9, enable_partition_eof=True, isolation_level="read_uncommitted")
    assert bench.offsets(committed, 2) == [9, 10]
    assert bench.offsets(uncommitted, 4) == [9, 10, 11, 12]
    assert committed.get_watermark_offsets(bench.place(), LIMIT_S) == (0, 10)
    assert uncommitted.get_watermark_offsets(bench.place(), LIMIT_S) == (0, 12)
    producer.commit_transaction(LIMIT_S)
    assert bench.offsets(committed, 3) == [10, 11, 13]
