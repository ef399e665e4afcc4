"""Transactions: what readers see and when, and the offsets in them."""

import json

import pytest
from confluent_kafka import TopicPartition

from tests.conformance.failures import failure_of, failure_once_answered
from tests.conformance.transactions import CALL_S, Group, becomes, commit, delivered, produce

# -- what readers see ------------------------------------------------------------------------------------------------


def test_records_are_read_from_the_commit_of_their_transaction_on(backend, start):
    topic, producer = backend.topic(), start()
    producer.begin_transaction()
    delivered(producer, topic, b"1", b"2")
    assert backend.values(topic) == []
    assert backend.values(topic, isolation="read_uncommitted") == [b"1", b"2"]
    producer.commit_transaction(CALL_S)
    becomes(backend, topic, b"1", b"2")


def test_records_of_an_aborted_transaction_are_never_read(backend, start):
    topic, producer = backend.topic(), start()
    producer.begin_transaction()
    delivered(producer, topic, b"wrong")
    producer.abort_transaction(CALL_S)
    commit(producer, topic, b"right")
    becomes(backend, topic, b"right")
    assert backend.values(topic, isolation="read_uncommitted") == [b"wrong", b"right"]


def test_an_open_transaction_holds_back_all_that_was_written_after_it(backend, two):
    topic, (slow, quick), plain = backend.topic(), two, backend.producer({})
    commit(quick, topic, b"before")
    slow.begin_transaction()
    delivered(slow, topic, b"slow")
    commit(quick, topic, b"quick")
    delivered(plain, topic, b"plain")
    becomes(backend, topic, b"before")
    slow.commit_transaction(CALL_S)
    becomes(backend, topic, b"before", b"slow", b"quick", b"plain")


def test_an_open_transaction_holds_back_its_own_partitions_only(backend, two):
    topic, (slow, quick) = backend.topic(2), two
    slow.begin_transaction()
    delivered(slow, topic, b"slow", partition=0)
    commit(quick, topic, b"quick", partition=1)
    becomes(backend, topic, b"quick", partitions=2)


def test_of_two_transactions_in_one_partition_each_has_its_own_end(backend, two):
    topic, (first, second) = backend.topic(), two
    first.begin_transaction()
    second.begin_transaction()
    for number in range(3):
        delivered(first, topic, b"first %d" % number)
        delivered(second, topic, b"second %d" % number)
    first.abort_transaction(CALL_S)
    second.commit_transaction(CALL_S)
    becomes(backend, topic, b"second 0", b"second 1", b"second 2")


def test_a_readers_high_watermark_is_the_first_open_transaction(backend, start):
    topic, producer = backend.topic(), start()
    commit(producer, topic, b"1")
    producer.begin_transaction()
    delivered(producer, topic, b"2", b"3")
    committed = backend.consumer({"group.id": backend.unique("group")})
    uncommitted = backend.consumer({"group.id": backend.unique("group"), "isolation.level": "read_uncommitted"})
    place = TopicPartition(topic, 0)
    backend.until(lambda: committed.get_watermark_offsets(place, CALL_S) == (0, 2), "the first marker")
    assert uncommitted.get_watermark_offsets(place, CALL_S) == (0, 4)
    producer.commit_transaction(CALL_S)
    backend.until(lambda: committed.get_watermark_offsets(place, CALL_S) == (0, 5), "the second marker")


def test_the_cached_watermark_is_the_high_one_and_only_statistics_tell_the_last_stable_offset(backend, start):
    topic, producer = backend.topic(), start()
    commit(producer, topic, b"1")
    producer.begin_transaction()
    delivered(producer, topic, b"2", b"3")
    told = [""]
    settings = {"group.id": backend.unique("group"), "statistics.interval.ms": 100, "stats_cb": told.append}
    reader, place = backend.consumer(settings), TopicPartition(topic, 0, 0)
    reader.assign([place])

    def stable_end():
        partitions = json.loads(told[-1] or "{}").get("topics", {}).get(topic, {}).get("partitions", {})
        return partitions.get("0", {}).get("ls_offset")

    backend.until(lambda: stable_end() == 2, "the first marker in the statistics", polling=[reader])
    assert reader.get_watermark_offsets(place, cached=True) == (0, 4)


def test_markers_take_an_offset_each(backend, start):
    topic, producer = backend.topic(), start()
    commit(producer, topic, b"1", b"2")
    producer.begin_transaction()
    delivered(producer, topic, b"wrong")
    producer.abort_transaction(CALL_S)
    commit(producer, topic, b"3")
    becomes(backend, topic, b"1", b"2", b"3")
    assert [message.offset() for message in backend.read(topic)] == [0, 1, 5]


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_transaction_ends_in_all_its_partitions_alike(backend, start, outcome):
    one, other, producer = backend.topic(2), backend.topic(), start()
    producer.begin_transaction()
    produce(producer, one, b"a", partition=0)
    produce(producer, one, b"b", partition=1)
    delivered(producer, other, b"c")
    getattr(producer, f"{outcome}_transaction")(CALL_S)
    commit(producer, one, b"end", partition=0)
    commit(producer, one, b"end", partition=1)
    commit(producer, other, b"end")
    becomes(backend, one, *([b"a", b"end", b"b", b"end"] if outcome == "commit" else [b"end", b"end"]), partitions=2)
    becomes(backend, other, *([b"c", b"end"] if outcome == "commit" else [b"end"]))


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_a_transaction_whose_beginning_was_deleted_ends_with_what_is_left_of_it(backend, two, outcome):
    topic, (first, second) = backend.topic(), two
    first.begin_transaction()
    second.begin_transaction()
    delivered(first, topic, b"deleted")
    delivered(second, topic, b"deleted, too", b"left")
    backend.delete_records(topic, 0, 2)
    assert backend.values(topic, isolation="read_uncommitted") == [b"left"]
    first.commit_transaction(CALL_S)
    getattr(second, f"{outcome}_transaction")(CALL_S)
    commit(first, topic, b"end")
    becomes(backend, topic, *([b"left", b"end"] if outcome == "commit" else [b"end"]))


def test_many_transactions_in_a_row_keep_their_order_and_their_outcomes(backend, start):
    topic, producer = backend.topic(), start(retry_backoff_ms=10)
    for number in range(12):
        producer.begin_transaction()
        produce(producer, topic, b"%d" % number)
        if number % 3 == 1:
            producer.flush(CALL_S)
            producer.abort_transaction(CALL_S)
        else:
            producer.commit_transaction(CALL_S)
    becomes(backend, topic, *[b"%d" % number for number in range(12) if number % 3 != 1])


def test_a_commit_waits_for_what_is_still_queued(backend, start):
    topic, producer = backend.topic(), start(linger_ms=5000)
    reports = []
    producer.begin_transaction()
    produce(producer, topic, b"1", b"2", on_delivery=lambda error, message: reports.append((error, message.offset())))
    assert len(producer) == 2
    producer.commit_transaction(CALL_S)
    assert (len(producer), reports) == (0, [(None, 0), (None, 1)])
    becomes(backend, topic, b"1", b"2")


def test_an_abort_gives_up_what_is_still_queued_and_reports_it(backend, start):
    topic, producer = backend.topic(), start(linger_ms=30_000)
    reports = []
    producer.begin_transaction()
    produce(producer, topic, b"1", b"2", on_delivery=lambda error, message: reports.append(error.name()))
    producer.abort_transaction(CALL_S)
    assert (len(producer), reports) == (0, ["_PURGE_QUEUE", "_PURGE_QUEUE"])
    commit(producer, topic, b"3")
    becomes(backend, topic, b"3")
    assert backend.values(topic, isolation="read_uncommitted") == [b"3"]


def test_a_transaction_without_records_leaves_no_trace(backend, start):
    topic, producer = backend.topic(), start()
    for end in (producer.commit_transaction, producer.abort_transaction) * 2:
        producer.begin_transaction()
        end(CALL_S)
    commit(producer, topic, b"1")
    becomes(backend, topic, b"1")
    assert [message.offset() for message in backend.read(topic)] == [0]


# -- offsets ---------------------------------------------------------------------------------------------------------


def test_offsets_are_committed_with_the_records_of_their_transaction(backend, start, group):
    inputs, outputs, producer = backend.topic(2), backend.topic(), start()
    producer.begin_transaction()
    delivered(producer, outputs, b"output")
    offsets = [TopicPartition(inputs, 0, 7, metadata="a note"), TopicPartition(inputs, 1, 8)]
    producer.send_offsets_to_transaction(offsets, group.metadata, CALL_S)
    producer.commit_transaction(CALL_S)
    becomes(backend, outputs, b"output")
    assert (group.committed(inputs, 0), group.committed(inputs, 1)) == (7, 8)
    assert group.note(inputs) == "a note"


def test_offsets_of_an_aborted_transaction_are_dropped(backend, start, group):
    inputs, producer = backend.topic(), start()
    for offset, end in ((3, producer.commit_transaction), (7, producer.abort_transaction)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(inputs, 0, offset)], group.metadata, CALL_S)
        end(CALL_S)
    assert group.committed(inputs) == 3


def test_a_transaction_may_consist_of_offsets_alone(backend, start, group):
    inputs, producer = backend.topic(), start()
    for offset in (1, 2, 3):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(inputs, 0, offset)], group.metadata, CALL_S)
        producer.commit_transaction(CALL_S)
    assert group.committed(inputs) == 3


def test_offsets_sent_again_in_one_transaction_replace_the_earlier_ones(backend, start, group):
    inputs, producer = backend.topic(2), start()
    producer.begin_transaction()
    for offsets in ([(0, 5), (1, 6)], [(0, 2)]):
        sent = [TopicPartition(inputs, partition, offset) for partition, offset in offsets]
        producer.send_offsets_to_transaction(sent, group.metadata, CALL_S)
    producer.commit_transaction(CALL_S)
    assert (group.committed(inputs, 0), group.committed(inputs, 1)) == (2, 6)


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_offsets_of_two_groups_end_with_one_transaction(backend, start, group, outcome):
    inputs, other, producer = backend.topic(), Group(backend), start()
    producer.begin_transaction()
    for number, each in enumerate((group, other), 1):
        producer.send_offsets_to_transaction([TopicPartition(inputs, 0, number)], each.metadata, CALL_S)
    getattr(producer, f"{outcome}_transaction")(CALL_S)
    expected = (1, 2) if outcome == "commit" else (None, None)
    assert (group.committed(inputs), other.committed(inputs)) == expected


@pytest.mark.parametrize("ends_first", ["earlier", "later"])
def test_of_two_transactions_the_offsets_that_were_sent_later_remain(backend, two, group, ends_first):
    inputs, (earlier, later) = backend.topic(), two
    for offset, producer in ((5, earlier), (7, later)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(inputs, 0, offset)], group.metadata, CALL_S)
    for producer in (earlier, later) if ends_first == "earlier" else (later, earlier):
        producer.commit_transaction(CALL_S)
    assert group.committed(inputs) == 7


def test_a_plain_commit_after_offsets_were_sent_outlives_their_transaction(backend, start, group):
    inputs, producer = backend.topic(), start()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(inputs, 0, 7)], group.metadata, CALL_S)
    group.commit(inputs, 3)
    producer.commit_transaction(CALL_S)
    assert group.committed(inputs) == 3


def test_no_offsets_and_offsets_without_a_value_are_nothing_to_send(backend, start, group):
    inputs, producer = backend.topic(), start()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([], group.metadata, CALL_S)
    producer.send_offsets_to_transaction([TopicPartition(inputs, 0)], group.metadata, CALL_S)
    producer.commit_transaction(CALL_S)
    assert group.committed(inputs) is None


@pytest.mark.parametrize("exists", [True, False], ids=["no such partition", "no such topic"])
def test_offsets_of_what_does_not_exist_cannot_be_sent(backend, start, group, exists):
    inputs, outputs, producer = backend.topic(), backend.topic(), start()
    unknown = TopicPartition(inputs, 9, 7) if exists else TopicPartition(backend.unique("nowhere"), 0, 7)
    refused = ("UNKNOWN_TOPIC_OR_PART", "abort")

    def send(limit_s):
        producer.begin_transaction()
        delivered(producer, outputs, b"wrong")
        return failure_of(producer.send_offsets_to_transaction, [unknown], group.metadata, limit_s)

    assert failure_once_answered(producer, send) == refused
    assert failure_of(producer.commit_transaction, CALL_S) == refused
    producer.abort_transaction(CALL_S)
    commit(producer, outputs, b"right")
    becomes(backend, outputs, b"right")


def test_a_note_that_is_too_long_is_refused(backend, start, group):
    inputs, producer = backend.topic(), start()
    producer.begin_transaction()
    offsets = [TopicPartition(inputs, 0, 7, metadata="x" * 5000)]
    refused = ("OFFSET_METADATA_TOO_LARGE", "abort")
    assert failure_of(producer.send_offsets_to_transaction, offsets, group.metadata, CALL_S) == refused
    producer.abort_transaction(CALL_S)
    assert group.committed(inputs) is None
