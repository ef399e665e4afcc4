"""Where a partition starts and goes on when its offset is missing, has been deleted, or lies behind the log's end.

`auto.offset.reset=latest` means the end of the log at the moment of the first assignment, and nothing else.
"""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import NewPartitions

from eos_client.core.model import InputPartition
from eos_client.errors import InputPositionError
from eos_client.observe import PartitionsStartedAtEnd
from tests.kafka.kafka_support import values
from tests.support.waiting import WAIT_S, wait_for
from tests.verification.protocols import GroupProtocol
from tests.verification.topics import await_topics


def delete_records_before(stage, offset):
    """Delete the records of partition 0 below `offset`, as retention does."""
    place = TopicPartition(stage.source, 0, offset)
    deleted = stage.admin.delete_records([place])
    assert deleted[place].result(WAIT_S).low_watermark == offset


def commit_for_the_group(stage, offset):
    """Commit for partition 0 as a member that has left since did."""
    outsider = Consumer({"bootstrap.servers": stage.bootstrap, "group.id": stage.group, "enable.auto.commit": False})
    outsider.commit(offsets=[TopicPartition(stage.source, 0, offset)], asynchronous=False)
    outsider.close()


def polled(stage, consumer, count):
    """As `stage.collect`, by `poll`."""
    got = []

    def poll():
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            got.append(message)

    wait_for(lambda: len(got) >= count, f"{count} records", poll)
    return got


def take_assignment(stage, consumer):
    wait_for(lambda: stage.assigned(consumer) == {0, 1}, "the assignment", lambda: consumer.consume(100, 0.1))


def add_partition(stage, count):
    """Add a partition with `count` records to the source, written by a producer that knows of it; returns it."""
    stage.admin.create_partitions([NewPartitions(stage.source, 3)])[stage.source].result(WAIT_S)
    await_topics(stage.admin, {stage.source: 3})
    writer = Producer({"bootstrap.servers": stage.bootstrap})
    for number in range(count):
        writer.produce(stage.source, f"2-{number}", partition=2)
    assert writer.flush(WAIT_S) == 0
    return InputPartition(stage.source, 2)


RESETS = pytest.mark.parametrize("reset", ["latest", "earliest"])


@RESETS
def test_records_behind_a_committed_offset_that_was_deleted_are_all_read(stage, reset):
    stage.load([160, 0])
    commit_for_the_group(stage, 10)
    delete_records_before(stage, 100)
    consumer = stage.subscribed(auto_offset_reset=reset)
    assert values(stage.collect(consumer, 60)) == [f"0-{n}" for n in range(100, 160)]


@RESETS
@pytest.mark.parametrize("collect", [lambda stage, *rest: stage.collect(*rest), polled], ids=["consume", "poll"])
def test_records_deleted_under_a_paused_partition_cost_none_of_the_others(stage, reset, collect):
    consumer = stage.subscribed(auto_offset_reset=reset)
    take_assignment(stage, consumer)
    stage.load([10, 0])
    collect(stage, consumer, 10)
    place = TopicPartition(stage.source, 0)
    consumer.pause([place])
    stage.load([150, 0], start=10)
    delete_records_before(stage, 100)
    consumer.resume([place])
    assert values(collect(stage, consumer, 60)) == [f"0-{n}" for n in range(100, 160)]


@RESETS
def test_a_rewind_to_a_record_that_was_deleted_meanwhile_goes_on_at_the_log_start(stage, reset):
    consumer = stage.subscribed(auto_offset_reset=reset)
    take_assignment(stage, consumer)
    stage.load([60, 0])
    stage.collect(consumer, 60)
    delete_records_before(stage, 40)
    consumer.adapter.fetching.rewind()
    assert values(stage.collect(consumer, 20)) == [f"0-{n}" for n in range(40, 60)]


@RESETS
@pytest.mark.parametrize("reads", [lambda c: c.consume(10, 0.2), lambda c: c.poll(0.2)], ids=["consume", "poll"])
def test_a_committed_offset_behind_the_end_of_the_log_is_an_error_and_stays_one(stage, reset, reads):
    stage.load([50, 0])
    commit_for_the_group(stage, 1000)
    consumer = stage.subscribed(auto_offset_reset=reset)
    got = []

    def read():
        found = reads(consumer)
        got.append(found)
        return not found

    with pytest.raises(InputPositionError, match=r"\[0\].* 1000, .*reset the group's offset"):
        wait_for(lambda: False, "the error", read)
    with pytest.raises(InputPositionError):
        wait_for(lambda: False, "the error again", read)
    assert not any(got)


def test_with_reset_error_a_missing_offset_is_an_error(stage):
    stage.load([5, 5])
    consumer = stage.subscribed(auto_offset_reset="error")
    with pytest.raises(InputPositionError, match=r"no committed offset.*Commit an offset for the group"):
        wait_for(lambda: False, "the error", lambda: consumer.consume(10, 0.2))


def test_with_reset_error_a_deleted_offset_is_an_error_that_names_it(stage):
    stage.load([60, 0])
    commit_for_the_group(stage, 10)
    commit_on_the_other_partition(stage)
    delete_records_before(stage, 40)
    consumer = stage.subscribed(auto_offset_reset="error")
    with pytest.raises(InputPositionError, match=r"\[0\].* 10 "):
        wait_for(lambda: False, "the error", lambda: consumer.poll(0.2))


def commit_on_the_other_partition(stage):
    outsider = Consumer({"bootstrap.servers": stage.bootstrap, "group.id": stage.group, "enable.auto.commit": False})
    outsider.commit(offsets=[TopicPartition(stage.source, 1, 0)], asynchronous=False)
    outsider.close()


def test_latest_means_the_end_at_the_first_assignment_also_for_a_later_owner(any_stage):
    stage = any_stage
    stage.load(3)
    first = stage.subscribed(auto_offset_reset="latest")
    take_assignment(stage, first)
    assert stage.committed() == {0: 3, 1: 3}
    written = stage.load(4, start=3)
    assert sorted(values(stage.collect(first, 8))) == sorted(written)
    first.close()
    second = stage.subscribed(auto_offset_reset="latest")
    assert sorted(values(stage.collect(second, 8))) == sorted(written)


@pytest.mark.parametrize("any_stage", [GroupProtocol.KIP_848, GroupProtocol.COOPERATIVE], indirect=True)
def test_what_lies_before_the_start_of_a_partition_that_was_added_under_latest_is_told(any_stage):
    stage = any_stage
    consumer = stage.subscribed(auto_offset_reset="latest", topic_metadata_refresh_interval_ms=1000)
    take_assignment(stage, consumer)
    added = add_partition(stage, 4)
    told = wait_for(
        lambda: [each for each in stage.events if isinstance(each, PartitionsStartedAtEnd)],
        "the event",
        lambda: consumer.consume(100, 0.1),
    )
    assert [dict(each.offsets_before) for each in told] == [{added: 4}]


def test_what_the_log_has_lost_and_a_partition_without_records_are_not_told_as_passed_over(stage):
    stage.load([5, 0])
    delete_records_before(stage, 2)
    consumer = stage.subscribed(auto_offset_reset="latest")
    wait_for(lambda: stage.committed() == {0: 5, 1: 0}, "the starts", lambda: consumer.consume(1, 0.1))
    for _ in range(3):
        consumer.consume(1, 0.1)
    told = [each for each in stage.events if isinstance(each, PartitionsStartedAtEnd)]
    assert [dict(each.offsets_before) for each in told] == [{InputPartition(stage.source, 0): 3}]


@pytest.mark.parametrize("any_stage", [GroupProtocol.KIP_848, GroupProtocol.COOPERATIVE], indirect=True)
def test_a_partition_that_is_added_after_the_change_to_earliest_starts_at_its_beginning(any_stage):
    stage = any_stage
    stage.load(3)
    first = stage.subscribed(auto_offset_reset="latest")
    take_assignment(stage, first)
    first.close()
    second = stage.subscribed(auto_offset_reset="earliest", topic_metadata_refresh_interval_ms=1000)
    take_assignment(stage, second)
    add_partition(stage, 4)
    assert values(stage.collect(second, 4)) == [f"2-{n}" for n in range(4)]


def test_beside_a_producer_the_start_is_committed_in_a_transaction_which_no_late_copy_can_undo(any_stage):
    stage = any_stage
    stage.load(3)
    producer, first = stage.producer(), stage.subscribed(auto_offset_reset="latest")

    stage.copy_until(producer, first, lambda: stage.committed() == {0: 3, 1: 3})
    reader = Consumer({"bootstrap.servers": stage.bootstrap, "group.id": stage.group})
    places = [TopicPartition(stage.source, p) for p in range(2)]
    assert all(str(place.metadata).startswith("eos-") for place in reader.committed(places, WAIT_S))
    reader.close()
    written = stage.load(4, start=3)
    first.close()
    with stage.subscribed(auto_offset_reset="latest") as second:
        stage.copy_until(producer, second, lambda: stage.committed() == {0: 7, 1: 7})
    assert sorted(stage.outputs()) == sorted(written)


def test_what_the_application_chooses_in_on_assign_wins_and_is_not_committed(stage):
    stage.load(3)

    def choose(consumer, partitions):
        consumer.incremental_assign([TopicPartition(p.topic, p.partition, 1) for p in partitions])

    consumer = stage.subscribed(auto_offset_reset="latest", callbacks={"on_assign": choose})
    assert sorted(values(stage.collect(consumer, 4))) == ["0-1", "0-2", "1-1", "1-2"]
    assert stage.committed() == {0: None, 1: None}


def test_a_manual_assignment_with_latest_starts_at_the_end(stage):
    stage.load(3)
    consumer = stage.consumer(auto_offset_reset="latest")
    consumer.assign([TopicPartition(stage.source, 0)])
    consumer.consume(10, 0.5)
    stage.load([2, 0], start=3)
    assert values(stage.collect(consumer, 2)) == ["0-3", "0-4"]
    assert stage.committed() == {0: None, 1: None}
