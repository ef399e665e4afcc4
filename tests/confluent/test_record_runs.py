"""Batches and fetched records: runs end where the partition changes, error events carry no work but stay."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st

from eos_client.confluent.consumer.fetched_records import Batch, FetchedRecords, RecordRun, last_good, runs
from eos_client.core.model import InputPartition


@dataclass(frozen=True)
class Message:
    """What a run looks at in confluent_kafka's Message."""

    number: int | None
    at: int
    failed: KafkaError | None = None
    name: str | None = "orders"
    epoch: int | None = None

    def topic(self) -> str | None:
        return self.name

    def partition(self) -> int | None:
        return self.number

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return self.failed

    def leader_epoch(self) -> int | None:
        return self.epoch


EOF = KafkaError(KafkaError._PARTITION_EOF)
TRANSPORT, ALL_DOWN, FATAL, MISSING = map(
    KafkaError,
    (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._FATAL, KafkaError.UNKNOWN_TOPIC_OR_PART),
)
ZERO, ONE = InputPartition("orders", 0), InputPartition("orders", 1)
NONE: frozenset[InputPartition] = frozenset()


def found(batch: Iterable[Message]) -> list[RecordRun]:
    return list(runs(list(batch)))


def places(messages: Iterable[Message]) -> list[tuple[int | None, int]]:
    return [(message.number, message.at) for message in messages]


def run(number, start, stop, first, following, *, name="orders", is_error=False):
    return RecordRun(InputPartition(name, number), start, stop, first, following, is_error)


def test_an_event_without_a_topic_before_the_records_of_the_only_topic_does_not_name_them():
    exceeded = Message(0, -1001, KafkaError(KafkaError._MAX_POLL_EXCEEDED), name=None)
    batch = [exceeded, Message(0, 5), Message(0, 6)]
    event = run(0, 0, 1, -1, -1, name=None, is_error=True)
    assert list(runs(batch, one_topic=True)) == [event, run(0, 1, 3, 5, 7)]
    assert list(runs([exceeded], one_topic=True)) == [run(0, 0, 1, -1, -1, name=None, is_error=True)]


def test_an_empty_batch_has_no_runs():
    assert found([]) == []


def test_records_of_one_partition_are_one_run_from_the_first_to_behind_the_last():
    assert found([Message(0, 7), Message(0, 8), Message(0, 9)]) == [run(0, 0, 3, 7, 10)]


def test_gaps_in_the_offsets_do_not_end_a_run():
    assert found([Message(0, 7), Message(0, 9), Message(0, 40)]) == [run(0, 0, 3, 7, 41)]


def test_a_run_ends_where_the_partition_changes_and_may_come_back():
    batch = [Message(0, 7), Message(1, 3), Message(1, 4), Message(0, 8)]
    assert found(batch) == [run(0, 0, 1, 7, 8), run(1, 1, 3, 3, 5), run(0, 3, 4, 8, 9)]


def test_the_same_number_in_another_topic_is_another_partition():
    batch = [Message(0, 7), Message(0, 1, name="refunds"), Message(0, 8)]
    assert found(batch) == [run(0, 0, 1, 7, 8), run(0, 1, 2, 1, 2, name="refunds"), run(0, 2, 3, 8, 9)]


def test_an_error_event_inside_a_run_is_no_record_but_does_not_end_it():
    assert found([Message(0, 7), Message(0, 8, EOF), Message(0, 8)]) == [run(0, 0, 3, 7, 9)]


def test_the_end_of_a_partition_behind_a_record_does_not_move_the_position():
    batch = [Message(0, 7), Message(0, 8, EOF)]
    (only,) = found(batch)
    assert only == run(0, 0, 2, 7, 8)
    assert last_good(batch, only.start, only.stop) is batch[0]


def test_an_error_event_before_the_first_record_is_a_run_of_its_own():
    assert found([Message(0, -1, TRANSPORT), Message(0, 7)]) == [
        run(0, 0, 1, -1, -1, is_error=True),
        run(0, 1, 2, 7, 8),
    ]


def test_a_run_of_errors_only_carries_no_work():
    assert found([Message(0, 8, EOF), Message(1, 3, EOF)]) == [
        run(0, 0, 1, -1, -1, is_error=True),
        run(1, 1, 2, -1, -1, is_error=True),
    ]


def test_an_error_of_the_whole_client_belongs_to_no_partition_and_ends_a_run():
    of_the_client = Message(None, -1, ALL_DOWN, None)
    alone = run(None, 0, 1, -1, -1, name=None, is_error=True)
    assert found([of_the_client]) == [alone]
    assert found([of_the_client, Message(0, 7)]) == [alone, run(0, 1, 2, 7, 8)]
    assert found([Message(0, 7), of_the_client])[0] == run(0, 0, 1, 7, 8)


def test_the_last_record_of_each_run_is_its_own():
    batch = [Message(0, 7), Message(0, 8), Message(0, 9, EOF), Message(1, 3), Message(1, 4, EOF)]
    assert [last_good(batch, each.start, each.stop) for each in found(batch)] == [batch[1], batch[3]]


MESSAGES = st.lists(
    st.builds(
        Message,
        st.integers(0, 2),
        st.integers(0, 9),
        st.sampled_from([None, None, EOF]),
        st.sampled_from(["orders", "refunds"]),
    ),
    max_size=12,
)


@settings(derandomize=True, database=None, deadline=None, max_examples=200)
@given(MESSAGES)
def test_runs_cover_every_batch_once_in_order_and_name_its_records(batch):
    split = found(batch)
    assert [i for each in split for i in range(each.start, each.stop)] == list(range(len(batch)))
    for before, after in itertools.pairwise(split):
        assert before.partition != after.partition or (before.is_error and not after.is_error)
    for each in split:
        part = batch[each.start : each.stop]
        assert {(m.name, m.number) for m in part} == {tuple(each.partition)}
        good = [m for m in part if m.failed is None]
        assert each.is_error is (not good)
        if good:
            assert part[0] is good[0]
            assert (each.first_offset, each.next_offset) == (good[0].at, good[-1].at + 1)
            assert last_good(batch, each.start, each.stop) is good[-1]


# -- batches -----------------------------------------------------------------------------------------------------------


def test_a_batch_without_some_partitions_has_the_runs_of_the_others_where_they_are_then():
    batch = Batch([Message(0, 7), Message(0, 8), Message(1, 3), Message(0, 9)])
    kept = batch.without(frozenset({ONE}))
    assert places(kept.messages) == [(0, 7), (0, 8), (0, 9)]
    assert [(run.start, run.stop, run.first_offset, run.next_offset) for run in kept.runs] == [
        (0, 2, 7, 9),
        (2, 3, 9, 10),
    ]
    assert places(batch.only(frozenset({ONE})).messages) == [(1, 3)]


def test_a_batch_of_which_nothing_is_dropped_stays_the_very_batch():
    batch = Batch([Message(0, 7)])
    assert batch.without(frozenset({ONE})) is batch


# -- fetched records ---------------------------------------------------------------------------------------------------


def test_records_are_taken_in_the_order_in_which_they_wait():
    records = FetchedRecords()
    records.add([Message(0, 7), Message(1, 3)])
    records.put_first([Message(0, 6)])
    assert places(records.take(2, NONE)) == [(0, 6), (0, 7)]
    assert places(records.take(2, NONE)) == [(1, 3)]
    assert records.take(2, NONE) == []


def test_records_of_paused_partitions_wait_for_their_turn():
    records = FetchedRecords()
    records.add([Message(0, 7), Message(1, 3), Message(0, 8)])
    assert places(records.take(5, frozenset({ZERO}))) == [(1, 3)]
    assert places(records.take(5, NONE)) == [(0, 7), (0, 8)]


def test_an_error_event_outlives_the_records_that_are_fetched_again():
    records = FetchedRecords()
    records.add([Message(0, 7), Message(0, 8, FATAL)])
    assert records.spans() == {ZERO: (7, 8)}
    records.drop_records()
    assert places(records.take(5, NONE)) == [(0, 8)]


def test_records_leave_with_their_partition():
    records = FetchedRecords()
    records.add([Message(0, 7), Message(1, 3), Message(1, 4)])
    assert records.spans() == {ZERO: (7, 8), ONE: (3, 5)}
    records.drop_of(frozenset({ZERO}))
    assert records.spans() == {ONE: (3, 5)}


NEWS = Message(0, -1, MISSING)
"""librdkafka reports a missing topic of the subscription as an event of its partition 0, once."""


def test_an_event_stays_where_its_partition_is_left_out_but_for_the_end_of_that_partition():
    batch = Batch([Message(0, 7), NEWS, Message(0, 8, EOF), Message(1, 3)])
    left = batch.without(frozenset({ZERO}))
    assert left.messages == [Message(1, 3), NEWS]
    assert [found.partition for found in left.runs] == [ONE, ZERO]
    assert batch.only(frozenset({ZERO})).messages == [Message(0, 7), Message(0, 8, EOF)]


def test_an_event_that_waits_stays_when_its_partition_leaves():
    records = FetchedRecords()
    records.add([Message(0, 7), NEWS, Message(0, 8, EOF)])
    records.drop_of(frozenset({ZERO}))
    assert records.take(10, NONE) == [NEWS]
