"""confluent_kafka's documented consumer usage, with the wrapper in its place, against a real broker."""

from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from tests.kafka.kafka_support import values
from tests.support.waiting import WAIT_S, wait_for


def test_poll_and_consume_deliver_every_record_in_order_and_none_twice(stage):
    written = stage.load(20)
    consumer = stage.subscribed()
    got: list[Any] = []
    wait_for(lambda: len(got) >= 20, "20 records polled", lambda: got.extend(filter(None, [consumer.poll(0.1)])))
    got += stage.collect(consumer, 20)
    assert sorted(values(got)) == sorted(written)
    for partition in range(2):
        assert [m.offset() for m in got if m.partition() == partition] == list(range(20))
    assert consumer.poll(0) is None


def test_consume_of_no_messages_takes_none(stage):
    stage.load(2)
    consumer = stage.subscribed()
    stage.collect(consumer, 1)
    for _ in range(10):
        assert consumer.consume(0, 0.05) == []
    assert len(stage.collect(consumer, 3)) == 3


def test_commit_of_a_message_of_offsets_and_of_nothing_are_read_back(stage):
    stage.load(5)
    consumer = stage.subscribed()
    messages = stage.collect(consumer, 10)
    first = [next(m for m in messages if m.partition() == p) for p in range(2)]
    assert consumer.commit(message=first[0], asynchronous=False)[0].offset == 1
    assert stage.committed() == {0: 1, 1: None}
    consumer.commit(offsets=[TopicPartition(stage.source, 1, 3)], asynchronous=False)
    assert stage.committed() == {0: 1, 1: 3}
    consumer.commit(asynchronous=False)
    assert stage.committed() == {0: 5, 1: 5}
    answered = consumer.committed([TopicPartition(stage.source, p) for p in range(2)], timeout=WAIT_S)
    assert [p.offset for p in answered] == [5, 5]


def test_commit_keeps_the_metadata_of_the_offsets(stage):
    stage.load(5)
    consumer = stage.subscribed()
    stage.collect(consumer, 10)
    consumer.commit(offsets=[TopicPartition(stage.source, 0, 3, metadata="half way")], asynchronous=False)
    assert consumer.committed([TopicPartition(stage.source, 0)], WAIT_S)[0].metadata == "half way"


@pytest.mark.parametrize("call", [{}, {"message": True}, {"offsets": True}], ids=["nothing", "message", "offsets"])
def test_an_asynchronous_commit_returns_none_and_reports_to_on_commit(stage, call):
    stage.load([3, 0])
    reported = []
    consumer = stage.subscribed(on_commit=lambda error, partitions: reported.append((error, partitions)))
    last = stage.collect(consumer, 3)[-1]
    given = {"message": last} if "message" in call else {}
    if "offsets" in call:
        given = {"offsets": [TopicPartition(stage.source, 0, 3)]}
    assert consumer.commit(**given) is None
    wait_for(lambda: reported, "on_commit to be called", lambda: consumer.poll(0.05))
    error, partitions = reported[0]
    assert error is None
    assert [(p.partition, p.offset) for p in partitions if p.offset >= 0] == [(0, 3)]
    assert stage.committed()[0] == 3


def test_stored_offsets_are_what_commit_without_arguments_sends(stage):
    stage.load(5)
    consumer = stage.subscribed(enable_auto_offset_store=False)
    messages = stage.collect(consumer, 10)
    consumer.store_offsets(message=next(m for m in messages if m.partition() == 0))
    consumer.store_offsets(offsets=[TopicPartition(stage.source, 1, 2)])
    consumer.commit(asynchronous=False)
    assert stage.committed() == {0: 1, 1: 2}


def test_seek_goes_back_and_forth(stage):
    stage.load([10, 0])
    consumer = stage.subscribed()
    stage.collect(consumer, 10)
    for offset in (2, 7, 0):
        consumer.seek(TopicPartition(stage.source, 0, offset))
        assert stage.collect(consumer, 1)[0].offset() == offset
    consumer.seek(TopicPartition(stage.source, 0, OFFSET_BEGINNING))
    assert stage.collect(consumer, 1)[0].offset() == 0


def test_seek_drops_what_was_fetched_and_waits_to_be_handed_over(stage):
    stage.load([10, 0])
    consumer = stage.subscribed()
    stage.collect(consumer, 1)
    consumer.adapter.fetching.serve_callbacks()
    consumer.seek(TopicPartition(stage.source, 0, 5))
    assert [m.offset() for m in stage.collect(consumer, 5)] == [5, 6, 7, 8, 9]


def test_position_is_the_next_offset_to_be_handed_over(stage):
    stage.load([10, 0])
    consumer = stage.subscribed()
    stage.collect(consumer, 4)
    place = TopicPartition(stage.source, 0)
    assert consumer.position([place])[0].offset == 4
    for _ in range(3):
        consumer.adapter.fetching.serve_callbacks()
    assert consumer.position([place])[0].offset == 4
    stage.collect(consumer, 6)
    assert consumer.position([place])[0].offset == 10


def test_position_does_not_count_what_a_raising_callback_kept_back(stage):
    stage.load(5)

    def on_assign(consumer, partitions):
        if partitions:
            raise RuntimeError("the application's own trouble")

    consumer = stage.subscribed(callbacks={"on_assign": on_assign})

    def until_it_raises():
        consumer.consume(10, 2.0)

    with pytest.raises(RuntimeError, match="own trouble"):
        wait_for(lambda: False, "on_assign to raise", until_it_raises)
    assert {p.offset for p in consumer.position(consumer.assignment())} <= {-1001, 0}
    assert len(stage.collect(consumer, 10)) == 10


def test_a_paused_partition_is_silent_until_resumed(stage):
    stage.load([1, 1])
    consumer = stage.subscribed()
    stage.collect(consumer, 2)
    consumer.pause([TopicPartition(stage.source, 0)])
    stage.load([3, 3], start=1)
    assert {m.partition() for m in stage.collect(consumer, 3)} == {1}
    assert consumer.consume(10, 0.3) == []
    consumer.resume([TopicPartition(stage.source, 0)])
    assert [m.offset() for m in stage.collect(consumer, 3)] == [1, 2, 3]


def test_offsets_for_times_and_watermarks(stage):
    stage.load([5, 0])
    consumer = stage.subscribed()
    at = stage.collect(consumer, 5)[2].timestamp()[1]
    (found,) = consumer.offsets_for_times([TopicPartition(stage.source, 0, at)], timeout=WAIT_S)
    assert 0 <= found.offset <= 2
    assert consumer.get_watermark_offsets(TopicPartition(stage.source, 0), timeout=WAIT_S) == (0, 5)
    wait_for(
        lambda: consumer.get_watermark_offsets(TopicPartition(stage.source, 0), cached=True) == (0, 5),
        "the cached watermarks",
        lambda: consumer.poll(0.05),
    )


def test_a_manual_assignment_consumes_seeks_and_commits_as_theirs(stage):
    stage.load(5)
    consumer = stage.consumer()
    consumer.assign([TopicPartition(stage.source, 0, 2)])
    assert [m.offset() for m in stage.collect(consumer, 3)] == [2, 3, 4]
    consumer.commit(asynchronous=False)
    assert stage.committed() == {0: 5, 1: None}
    consumer.incremental_assign([TopicPartition(stage.source, 1, 4)])
    assert stage.assigned(consumer) == {0, 1}
    assert [m.offset() for m in stage.collect(consumer, 1)] == [4]
    consumer.incremental_unassign([TopicPartition(stage.source, 0)])
    assert stage.assigned(consumer) == {1}
    consumer.unassign()
    assert consumer.assignment() == []


def test_on_assign_may_choose_the_offsets(stage):
    stage.load(5)

    def from_the_third(consumer, partitions):
        for partition in partitions:
            partition.offset = 3
        consumer.incremental_assign(partitions)

    consumer = stage.subscribed(callbacks={"on_assign": from_the_third})
    assert sorted(m.offset() for m in stage.collect(consumer, 4)) == [3, 3, 4, 4]


def test_memberid_and_group_metadata_are_those_of_the_member(stage):
    consumer = stage.subscribed()
    wait_for(consumer.assignment, "an assignment", lambda: consumer.poll(0.05))
    assert [m.member_id for m in stage.members()] == [consumer.memberid()]
    assert consumer.memberid().encode() in consumer.consumer_group_metadata()


def test_close_leaves_the_group_and_the_context_manager_does_too(stage):
    with stage.subscribed() as consumer:
        wait_for(consumer.assignment, "an assignment", lambda: consumer.poll(0.05))
    wait_for(lambda: not stage.members(), "the member to have left")
