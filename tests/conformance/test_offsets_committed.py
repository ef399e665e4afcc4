"""Which offsets a group has: committed plainly, automatically or in a transaction, and what can be asked."""

import pytest
from confluent_kafka import OFFSET_END, OFFSET_INVALID, TopicPartition

from tests.conformance.backends import LIMIT_S
from tests.conformance.failures import failure_of, failure_once_answered
from tests.conformance.test_offsets import Bench, error_of
from tests.support.protocols import PROTOCOLS, settings_of


@pytest.fixture
def bench(backend):
    return Bench(backend)


def test_what_was_never_committed_is_no_offset(bench):
    consumer = bench.consumer()
    found = consumer.committed([bench.place(), bench.place(partition=1)], LIMIT_S)
    assert [(place.partition, place.offset, place.error) for place in found] == [
        (0, OFFSET_INVALID, None),
        (1, OFFSET_INVALID, None),
    ]


def test_committed_of_a_partition_or_topic_that_is_not_there_is_no_offset_either(bench):
    consumer = bench.consumer()
    places = [bench.place(partition=9), TopicPartition(bench.backend.unique("nowhere"), 0)]
    found = consumer.committed(places, LIMIT_S)
    assert [(place.partition, place.offset, place.error) for place in found] == [
        (9, OFFSET_INVALID, None),
        (0, OFFSET_INVALID, None),
    ]


@pytest.mark.parametrize("order", [[0, 9], [9, 0]])
def test_a_commit_that_names_a_partition_that_is_not_there_raises(bench, order):
    offsets = [bench.place(3, partition=number) for number in order]
    assert error_of(lambda: bench.consumer().commit(offsets=offsets, asynchronous=False)) == "UNKNOWN_TOPIC_OR_PART"


def test_a_commit_of_nothing_but_unknown_partitions_raises(bench):
    consumer = bench.consumer()
    assert error_of(lambda: consumer.commit(offsets=[bench.place(3, partition=9)], asynchronous=False)) == (
        "UNKNOWN_TOPIC_OR_PART"
    )


def test_a_commit_returns_what_was_committed_and_others_see_it(bench):
    consumer = bench.consumer()
    found = consumer.commit(offsets=[bench.place(3), bench.place(4, partition=1)], asynchronous=False)
    assert [(p.partition, p.offset, p.error) for p in found] == [(0, 3, None), (1, 4, None)]
    assert (bench.stored(), bench.stored(partition=1)) == (3, 4)


def test_a_commit_by_message_is_of_the_offset_behind_it(bench):
    consumer = bench.at()
    message = bench.take(consumer, 3)[-1]
    consumer.commit(message=message, asynchronous=False)
    assert bench.stored() == 3


def test_a_commit_without_arguments_is_of_what_was_handed_over(bench):
    consumer = bench.at()
    bench.take(consumer, 5)
    found = consumer.commit(asynchronous=False)
    assert [(p.partition, p.offset) for p in found] == [(0, 5)]
    assert bench.stored() == 5
    assert error_of(lambda: consumer.commit(asynchronous=False)) == "_NO_OFFSET"


def test_a_commit_without_arguments_sends_nothing_that_an_explicit_one_has_passed(bench):
    consumer = bench.at()
    bench.take(consumer, 5)
    consumer.commit(offsets=[bench.place(8)], asynchronous=False)
    assert error_of(lambda: consumer.commit(asynchronous=False)) == "_NO_OFFSET"
    assert bench.stored() == 8


def test_a_commit_without_arguments_sends_what_was_handed_over_after_an_explicit_one_went_back(bench):
    consumer = bench.at()
    bench.take(consumer, 5)
    consumer.commit(offsets=[bench.place(2)], asynchronous=False)
    consumer.commit(asynchronous=False)
    assert bench.stored() == 5


def test_what_is_handed_over_again_after_a_seek_is_not_committed_until_it_passes_the_commit(bench):
    consumer = bench.at()
    bench.take(consumer, 5)
    consumer.commit(asynchronous=False)
    consumer.seek(bench.place(1))
    bench.take(consumer, 2)
    assert error_of(lambda: consumer.commit(asynchronous=False)) == "_NO_OFFSET"
    bench.take(consumer, 3)
    consumer.commit(asynchronous=False)
    assert bench.stored() == 6


def test_a_commit_may_go_backwards(bench):
    consumer = bench.consumer()
    consumer.commit(offsets=[bench.place(8)], asynchronous=False)
    consumer.commit(offsets=[bench.place(2)], asynchronous=False)
    assert bench.stored() == 2


def test_the_metadata_of_a_commit_is_kept(bench):
    consumer = bench.consumer()
    consumer.commit(offsets=[TopicPartition(bench.topic, 0, 3, metadata="from here on")], asynchronous=False)
    (found,) = consumer.committed([bench.place()], LIMIT_S)
    assert (found.offset, found.metadata) == (3, "from here on")


def test_metadata_above_the_brokers_limit_is_refused(bench):
    offsets = [TopicPartition(bench.topic, 0, 3, metadata="x" * 4097)]
    assert error_of(lambda: bench.consumer().commit(offsets=offsets, asynchronous=False)) == "OFFSET_METADATA_TOO_LARGE"
    assert bench.stored() == OFFSET_INVALID


def test_an_asynchronous_commit_that_fails_is_reported_with_its_error(bench):
    reports = []
    consumer = bench.consumer(
        on_commit=lambda error, places: reports.append((error.name(), [place.error.name() for place in places]))
    )
    consumer.commit(offsets=[bench.place(3, partition=9)], asynchronous=True)
    bench.backend.until(lambda: reports, polling=[consumer])
    assert reports == [("UNKNOWN_TOPIC_OR_PART", ["UNKNOWN_TOPIC_OR_PART"])]


def test_an_asynchronous_commit_is_reported_to_on_commit_in_a_later_poll(bench):
    reports = []
    consumer = bench.at(on_commit=lambda error, places: reports.append((error, [place.offset for place in places])))
    assert consumer.commit(offsets=[bench.place(2)], asynchronous=True) is None
    assert reports == []
    bench.backend.until(lambda: reports, polling=[consumer])
    assert reports == [(None, [2])]
    assert bench.stored() == 2


def test_stored_offsets_are_committed_when_asked(bench):
    consumer = bench.at(enable_auto_offset_store=False)
    bench.take(consumer, 5)
    assert error_of(lambda: consumer.commit(asynchronous=False)) == "_NO_OFFSET"
    consumer.store_offsets(offsets=[bench.place(4)])
    consumer.commit(asynchronous=False)
    assert bench.stored() == 4


def test_auto_commit_commits_what_was_handed_over_at_close(bench):
    consumer = bench.at(enable_auto_commit=True)
    bench.take(consumer, 5)
    consumer.close()
    assert bench.stored() == 5


def test_without_auto_commit_close_commits_nothing(bench):
    consumer = bench.at()
    bench.take(consumer, 5)
    consumer.close()
    assert bench.stored() == OFFSET_INVALID


def test_auto_commit_commits_now_and_then(bench):
    consumer = bench.at(enable_auto_commit=True, auto_commit_interval_ms=200)
    bench.take(consumer, 5)
    bench.backend.until(lambda: bench.stored() == 5)
    bench.take(consumer, 1)
    bench.backend.until(lambda: bench.stored() == 6)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_auto_commit_commits_before_a_member_gives_its_partitions_up(bench, protocol):
    consumer = bench.consumer(enable_auto_commit=True, auto_commit_interval_ms=600_000, **settings_of(protocol))
    consumer.subscribe([bench.topic])
    bench.take(consumer, 15)
    consumer.unsubscribe()
    bench.backend.until(lambda: not consumer.assignment(), polling=[consumer])
    bench.backend.until(lambda: (bench.stored(), bench.stored(partition=1)) == (10, 5))


# -- offsets in transactions -----------------------------------------------------------------------------------------


def test_offsets_of_a_transaction_count_when_it_commits(bench):
    producer = bench.producer()
    producer.begin_transaction()
    bench.sent(producer, 6)
    assert bench.stored(isolation_level="read_uncommitted") == OFFSET_INVALID
    producer.commit_transaction(LIMIT_S)
    assert bench.stored() == 6


def test_offsets_of_an_aborted_transaction_never_count(bench):
    producer = bench.producer()
    bench.consumer().commit(offsets=[bench.place(2)], asynchronous=False)
    producer.begin_transaction()
    bench.sent(producer, 6)
    producer.abort_transaction(LIMIT_S)
    assert bench.stored() == 2


def test_while_offsets_are_pending_committed_waits_unless_uncommitted_offsets_are_read(bench):
    producer = bench.producer()
    bench.consumer().commit(offsets=[bench.place(2), bench.place(1, partition=1)], asynchronous=False)
    producer.begin_transaction()
    bench.sent(producer, 6)
    reader = bench.consumer()
    assert [p.offset for p in reader.committed([bench.place(partition=1)], LIMIT_S)] == [1]
    assert error_of(lambda: reader.committed([bench.place()], 1.0)) == "_TIMED_OUT"
    assert bench.stored(isolation_level="read_uncommitted") == 2
    producer.commit_transaction(LIMIT_S)
    assert [p.offset for p in reader.committed([bench.place()], LIMIT_S)] == [6]


def test_a_consumer_that_is_assigned_pending_offsets_starts_when_they_are_decided(bench):
    producer = bench.producer()
    producer.begin_transaction()
    bench.sent(producer, 6)
    consumer = bench.at(OFFSET_INVALID)
    assert consumer.consume(1, 1.0) == []
    producer.commit_transaction(LIMIT_S)
    assert bench.offsets(consumer, 1) == [6]


def test_with_read_uncommitted_it_does_not_wait_and_reads_again_what_is_about_to_be_done(bench):
    producer = bench.producer()
    producer.begin_transaction()
    bench.sent(producer, 6)
    consumer = bench.at(OFFSET_INVALID, isolation_level="read_uncommitted")
    assert bench.offsets(consumer, 1) == [0]
    producer.abort_transaction(LIMIT_S)


@pytest.mark.parametrize("commit", [True, False])
def test_a_plain_commit_beside_pending_offsets(bench, commit):
    producer = bench.producer()
    producer.begin_transaction()
    bench.sent(producer, 6)
    bench.consumer().commit(offsets=[bench.place(3)], asynchronous=False)
    (producer.commit_transaction if commit else producer.abort_transaction)(LIMIT_S)
    assert bench.stored() == 3


def test_the_last_offset_sent_in_a_transaction_wins(bench):
    producer = bench.producer()
    producer.begin_transaction()
    bench.sent(producer, 6)
    bench.sent(producer, 4)
    producer.commit_transaction(LIMIT_S)
    assert bench.stored() == 4


# -- what is there ---------------------------------------------------------------------------------------------------


def test_topics_are_listed_with_their_partitions(bench):
    listed = bench.consumer().list_topics(bench.topic, LIMIT_S)
    assert list(listed.topics) == [bench.topic]
    assert sorted(listed.topics[bench.topic].partitions) == [0, 1]
    assert listed.topics[bench.topic].error is None
    assert bench.topic in bench.consumer().list_topics(timeout=LIMIT_S).topics


def test_a_topic_that_is_not_there_is_listed_with_an_error(bench):
    missing = bench.backend.unique("missing")
    listed = bench.consumer(allow_auto_create_topics=False).list_topics(missing, LIMIT_S)
    assert listed.topics[missing].error.name() == "UNKNOWN_TOPIC_OR_PART"
    assert listed.topics[missing].partitions == {}


def test_watermarks_are_the_ends_of_the_log(bench):
    consumer = bench.consumer()
    assert consumer.get_watermark_offsets(bench.place(), LIMIT_S) == (0, 10)
    bench.backend.delete_records(bench.topic, 0, 4)
    assert consumer.get_watermark_offsets(bench.place(), LIMIT_S) == (4, 10)


def test_offsets_for_times_finds_the_first_record_from_then_on(bench):
    producer = bench.backend.producer({})
    topic = bench.backend.topic()
    for seconds in (1, 2, 3):
        producer.produce(topic, b"x", partition=0, timestamp=seconds * 1000)
    producer.flush(LIMIT_S)
    consumer = bench.consumer()
    found = [
        consumer.offsets_for_times([TopicPartition(topic, 0, at)], LIMIT_S)[0].offset for at in (0, 2000, 2500, 3001)
    ]
    assert found == [0, 1, 2, OFFSET_END]


def test_what_cannot_be_asked_of_a_partition_that_is_not_there_is_an_error(bench):
    consumer = bench.consumer(allow_auto_create_topics=False)
    consumer.list_topics(timeout=LIMIT_S)  # it is connected: the questions' time is for the answers
    for missing in (bench.place(0, partition=9), TopicPartition(bench.backend.unique("nowhere"), 0, 0)):
        for ask in (
            lambda place=missing: consumer.get_watermark_offsets(place, 2.0),
            lambda place=missing: consumer.offsets_for_times([place], 2.0),
        ):
            assert error_of(ask) == "_UNKNOWN_PARTITION"


def test_a_deleted_topic_soon_has_no_log_end(bench):
    """Kafka takes some time, in which it may still answer where the old log ends."""
    consumer = bench.at()
    bench.take(consumer, 10)
    bench.backend.delete_topic(bench.topic)
    gone = "_UNKNOWN_PARTITION"
    bench.backend.until(
        lambda: error_of(lambda: consumer.get_watermark_offsets(bench.place(), 2.0)) == gone, "the deletion"
    )


def test_offsets_for_times_tells_of_each_partition_whether_it_is_there(bench):
    found = bench.consumer().offsets_for_times([bench.place(0), bench.place(0, partition=9)], LIMIT_S)
    assert [(p.partition, p.offset, p.error and p.error.name()) for p in found] == [
        (0, 0, None),
        (9, 0, "_UNKNOWN_PARTITION"),
    ]


def test_watermarks_from_the_cache_are_those_of_the_last_fetch(bench):
    consumer = bench.at()
    bench.take(consumer, 10)
    assert consumer.get_watermark_offsets(bench.place(), cached=True) == (0, 10)


def test_an_offset_that_its_partition_lost_to_delete_records_is_reset_for_a_group_too(bench):
    bench.consumer().commit(offsets=[bench.place(2)], asynchronous=False)
    bench.backend.delete_records(bench.topic, 0, 5)
    assert bench.offsets(bench.at(OFFSET_INVALID), 1) == [5]
    assert bench.stored() == 2


def test_an_offset_sent_for_a_partition_that_is_not_there_aborts_the_transaction(bench):
    producer = bench.producer()
    offsets, metadata = [bench.place(3, partition=9)], bench.consumer().consumer_group_metadata()

    def send(limit_s):
        producer.begin_transaction()
        return failure_of(producer.send_offsets_to_transaction, offsets, metadata, limit_s)

    assert failure_once_answered(producer, send) == ("UNKNOWN_TOPIC_OR_PART", "abort")
    producer.abort_transaction(LIMIT_S)
