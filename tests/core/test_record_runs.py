"""Fetched messages in runs: records of one partition, or events, which carry no work."""

from __future__ import annotations

import itertools

import pytest
from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st

from eos_client.core.model import InputPartition
from eos_client.core.record_runs import Run, message_count, messages_of, runs, take
from tests.core.fetched_messages import EOF, ONE, ZERO, Message, places

TRANSPORT, ALL_DOWN, TOO_LATE, NO_RESET = map(
    KafkaError,
    (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._AUTO_OFFSET_RESET,
    ),
)
NONE: frozenset[InputPartition] = frozenset()


def spans(*messages):
    """The partition of each run, and its first and next offset; None: it has events."""
    return [(run.partition, None if run.is_error else (run.first_offset, run.next_offset)) for run in runs(messages)]


# -- where a run ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one_topic", [False, True])
def test_no_messages_have_no_runs(one_topic):
    assert runs([], one_topic=one_topic) == []


def test_records_of_one_partition_are_one_run():
    assert spans(Message(0, 7), Message(0, 8), Message(0, 9)) == [(ZERO, (7, 10))]


def test_gaps_in_the_offsets_do_not_end_a_run():
    assert spans(Message(0, 7), Message(0, 9), Message(0, 40)) == [(ZERO, (7, 41))]


@pytest.mark.parametrize("offsets", [(12, 5, 6), (12, 5, 30), (12, 12), (5, 6, 7, 5, 6, 7, 8)])
def test_a_run_ends_where_offsets_go_back(offsets):
    found = runs([Message(0, offset) for offset in offsets])
    assert [message.at for message in messages_of(found)] == list(offsets)
    assert len(found) == 2
    assert found[1].first_offset < found[0].next_offset


def test_a_run_ends_where_the_partition_changes():
    found = spans(Message(0, 7), Message(1, 3), Message(1, 4), Message(0, 8))
    assert found == [(ZERO, (7, 8)), (ONE, (3, 5)), (ZERO, (8, 9))]


def test_the_same_number_in_another_topic_is_another_partition():
    refunds = InputPartition("refunds", 0)
    found = spans(Message(0, 7), Message(0, 1, name="refunds"), Message(0, 8))
    assert found == [(ZERO, (7, 8)), (refunds, (1, 2)), (ZERO, (8, 9))]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_event_is_a_run_of_its_own(at):
    messages = [Message(0, 7), Message(0, 8)]
    messages.insert(at, Message(0, 8, EOF))
    found = runs(messages)
    assert messages_of(found) == messages
    assert [len(run.messages) for run in found if run.is_error] == [1]
    assert sum(len(run.messages) for run in found if not run.is_error) == 2


def test_an_event_moves_no_position():
    (event,) = runs([Message(0, 8, EOF)])
    assert (event.first_offset, event.next_offset, event.epochs, event.gaps) == (-1, -1, (), ())


def test_events_of_one_kind_are_one_run():
    assert [len(run.messages) for run in runs([Message(0, 8, EOF), Message(0, 8, EOF), Message(0, 8, TRANSPORT)])] == [
        2,
        1,
    ]


def test_an_event_of_the_client_belongs_to_no_partition():
    of_the_client = Message(None, -1, ALL_DOWN, None)
    assert spans(of_the_client, Message(0, 7)) == [((None, None), None), (ZERO, (7, 8))]
    assert spans(Message(0, 7), of_the_client) == [(ZERO, (7, 8)), ((None, None), None)]


@pytest.mark.parametrize("one_topic", [False, True])
def test_an_event_without_a_topic_does_not_name_the_records(one_topic):
    messages = [Message(0, -1001, TOO_LATE, name=None), Message(0, 5), Message(0, 6)]
    event, records = runs(messages, one_topic=one_topic)
    assert event.is_error
    assert tuple(event.partition) == (None, 0)
    assert (records.partition, records.first_offset, records.next_offset) == (ZERO, 5, 7)


@pytest.mark.parametrize(("error", "leaves"), [(EOF, True), (TRANSPORT, False), (None, True)])
def test_records_and_the_end_leave_with_their_partition(error, leaves):
    (run,) = runs([Message(0, 7, error)])
    assert run.leaves_with_partition is leaves


@pytest.mark.parametrize(("error", "forbids"), [(NO_RESET, True), (EOF, False), (TRANSPORT, False), (None, False)])
def test_an_event_without_an_allowed_offset_forbids_a_reset(error, forbids):
    (run,) = runs([Message(0, 7, error)])
    assert run.forbids_reset is forbids


# -- what a run says ---------------------------------------------------------------------------------------------------


def test_offsets_between_the_records_are_gaps():
    (run,) = runs([Message(0, 7), Message(0, 8), Message(0, 11), Message(0, 13)])
    assert run.gaps == ((9, 11), (12, 13))


def test_records_without_gaps_have_none():
    (run,) = runs([Message(0, 7), Message(0, 8)])
    assert run.gaps == ()


def test_a_run_has_the_offsets_where_its_epoch_changes():
    (run,) = runs([Message(0, 7, epoch=3), Message(0, 8, epoch=3), Message(0, 9, epoch=4), Message(0, 12, epoch=6)])
    assert run.epochs == ((7, 3), (9, 4), (12, 6))
    assert run.leader_epoch == 6


@pytest.mark.parametrize("epoch", [None, 3])
def test_a_run_of_one_epoch_has_one_change(epoch):
    (run,) = runs([Message(0, 7, epoch=epoch), Message(0, 8, epoch=epoch)])
    assert (run.epochs, run.leader_epoch) == (((7, epoch),), epoch)


def test_events_have_no_leader_epoch():
    (run,) = runs([Message(0, 8, EOF)])
    assert run.leader_epoch is None


def test_both_parts_of_a_split_run_are_runs():
    records = [Message(0, 7, epoch=1), Message(0, 9, epoch=2), Message(0, 10, epoch=2)]
    (run,) = runs(records)
    assert run.split(1) == (*runs(records[:1]), *runs(records[1:]))


def test_both_parts_of_split_events_are_events():
    events = [Message(0, 8, TRANSPORT)] * 3
    (run,) = runs(events)
    assert run.split(1) == (*runs(events[:1]), *runs(events[1:]))


MESSAGES = st.lists(
    st.builds(
        Message,
        st.integers(0, 2),
        st.integers(0, 9),
        st.sampled_from([None, None, EOF, TRANSPORT]),
        st.sampled_from(["orders", "refunds"]),
    ),
    max_size=12,
)


@settings(derandomize=True, database=None, deadline=None, max_examples=200)
@given(MESSAGES)
def test_runs_cover_all_messages_once_and_in_order(messages):
    found = runs(messages)
    assert messages_of(found) == messages
    for before, after in itertools.pairwise(found):
        goes_back = after.first_offset < before.next_offset
        assert before.partition != after.partition or before.is_error or after.is_error or goes_back
    for run in found:
        assert {(m.name, m.number) for m in run.messages} == {tuple(run.partition)}
        assert {m.failed is not None for m in run.messages} == {run.is_error}
        if not run.is_error:
            assert (run.first_offset, run.next_offset) == (run.messages[0].at, run.messages[-1].at + 1)


# -- taking what waits -------------------------------------------------------------------------------------------------

WAITING = tuple(runs([Message(0, 7), Message(0, 8), Message(1, 3), Message(0, 9, EOF)]))


@pytest.mark.parametrize("count", range(6))
def test_messages_are_taken_in_the_order_in_which_they_wait(count):
    taken, left = take(WAITING, count, NONE)
    assert messages_of(taken) == messages_of(WAITING)[:count]
    assert messages_of((*taken, *left)) == messages_of(WAITING)


def test_a_run_that_is_taken_whole_stays_as_it_was():
    taken, left = take(WAITING, 2, NONE)
    assert taken[0] is WAITING[0]
    assert left[0] is WAITING[1]


def test_a_negative_count_takes_nothing():
    assert take(WAITING, -1, NONE) == ((), WAITING)


def test_messages_of_withheld_partitions_wait_for_their_turn():
    taken, left = take(WAITING, 5, frozenset({ZERO}))
    assert places(taken) == [(1, 3)]
    assert places(left) == [(0, 7), (0, 8), (0, 9)]


def test_the_messages_of_runs_are_counted():
    assert message_count(WAITING) == 4
    assert message_count([Run(ZERO, (), 7, 9)]) == 0
