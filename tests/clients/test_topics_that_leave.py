"""A topic is deleted: one that only a pattern has matched may go. One that is created again is another topic."""

from unittest import mock

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from eos_client import Outcome
from eos_client.confluent.consumer import fetching
from eos_client.errors import ClusterUnfitError, InputPositionError
from eos_client.testing.simulator.brokers.model import PartitionKey
from tests.clients.simulated_stage import GROUP, SINK, SOURCE, SimulatedStage
from tests.interruption import BrokenOffError
from tests.support.interception import Intercepted, close_the_gate
from tests.support.protocols import PROTOCOLS

PATTERN = f"^{SOURCE}.*"
OLD, NEW = 2, 3


@pytest.fixture(params=PROTOCOLS)
def stage(request):
    return SimulatedStage(request.param, records=OLD)


def subscribed(stage, topic):
    consumer = stage.consumer(topic_metadata_refresh_interval_ms=1000)
    consumer.subscribe([topic])
    return consumer


def replace(stage, topic=SOURCE, partitions=2, records=NEW):
    """Delete the topic and create it again, with so many records in its first partition."""
    stage.cluster.delete_topic(topic)
    stage.cluster.create_topic(topic, partitions)
    stage.cluster.write(topic, [b"new-%d" % n for n in range(records)])


def logs_the_change(consumer, topic=SOURCE):
    """The lines of librdkafka's log that tell of it."""
    for before, after in (("A" * 22, "a" * 22), ("a" * 22, "b" * 22)):
        line = f"[thrd:main]: Topic {topic} changed id from {before} to {after}"
        consumer.adapter.library.topics.log(7, "%s", line)


EITHER_WAY = pytest.mark.parametrize("topic", [SOURCE, PATTERN], ids=["by name", "by pattern"])
REPLACED = r"was deleted and created again: .*set the group's offsets"


@EITHER_WAY
@pytest.mark.parametrize("partitions", [1, 2], ids=["fewer partitions", "as many"])
def test_a_topic_that_was_replaced_ends_blocks_however_it_was_subscribed(stage, topic, partitions):
    producer, consumer = stage.producer(), subscribed(stage, topic)
    stage.copy_the_rest(producer, consumer)
    replace(stage, partitions=partitions)
    logs_the_change(consumer)
    for _ in range(2):
        with pytest.raises(InputPositionError, match=REPLACED) as raised:
            stage.read_in_blocks(producer, consumer)
        assert (raised.value.topic, raised.value.partition) == (SOURCE, None)
    with pytest.raises(InputPositionError, match=REPLACED):
        consumer.poll(0.1)
    assert stage.outputs == stage.inputs


@EITHER_WAY
def test_records_in_hand_of_a_topic_that_was_replaced_are_not_committed_for_the_new_one(stage, topic):
    producer, consumer = stage.producer(), subscribed(stage, topic)

    def block():
        with producer.transaction(consumer) as txn:
            for record in stage.collect(consumer, 2 * OLD):
                txn.produce(SINK, record.value())
            replace(stage)
            logs_the_change(consumer)
            consumer.consume(1, 0.1)

    with pytest.raises(InputPositionError, match=REPLACED):
        block()
    assert consumer.adapter.positions == {}
    assert stage.cluster.committed(GROUP) == {}
    assert stage.outputs == []


@EITHER_WAY
def test_a_topic_that_was_replaced_while_a_block_ends_aborts_it(stage, topic):
    producer, consumer = stage.producer(), subscribed(stage, topic)
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 2 * OLD):
            txn.produce(SINK, record.value())
        replace(stage)
        logs_the_change(consumer)
    assert (txn.outcome, txn.reason) == (Outcome.ABORTED, f"the input topic '{SOURCE}' was deleted and created again")
    assert (stage.cluster.committed(GROUP), stage.outputs) == ({}, [])
    with pytest.raises(InputPositionError, match=REPLACED):
        consumer.poll(0.1)


def test_a_matched_topic_that_was_replaced_after_its_partitions_left_is_an_error_too(stage):
    producer, consumer = stage.producer(), subscribed(stage, PATTERN)
    stage.copy_the_rest(producer, consumer)
    stage.cluster.revoke((SOURCE, 0), (SOURCE, 1))
    stage.wait_for(lambda: not consumer.assignment(), lambda: consumer.consume(10, 0.1))
    replace(stage)
    logs_the_change(consumer)
    stage.cluster.give_back()
    with pytest.raises(InputPositionError, match=REPLACED):
        stage.read_in_blocks(producer, consumer)
    assert stage.outputs == stage.inputs


def test_a_call_that_would_wait_for_records_is_told_at_once_that_none_may_come(stage):
    consumer = subscribed(stage, SOURCE)
    stage.collect(consumer, 2 * OLD)
    replace(stage, records=0)
    logs_the_change(consumer)
    with pytest.raises(InputPositionError, match=REPLACED):
        consumer.consume(1, 0.1)
    began_at = stage.cluster.clock()
    with pytest.raises(InputPositionError, match=REPLACED):
        consumer.poll(600.0)
    assert stage.cluster.clock() - began_at < 1.0


def test_a_replacement_whose_handling_was_interrupted_is_handled_by_the_next_call(stage):
    consumer = subscribed(stage, SOURCE)
    stage.collect(consumer, 2 * OLD)
    replace(stage)
    logs_the_change(consumer)
    with mock.patch.object(fetching, "TopicReplaced", side_effect=BrokenOffError), pytest.raises(BrokenOffError):
        consumer.poll(0.1)
    with pytest.raises(InputPositionError, match=REPLACED):
        consumer.poll(0.1)


def test_a_plain_commit_of_other_topics_outlives_a_replaced_one(stage):
    stage.cluster.create_topic("others")
    stage.cluster.write("others", [b"1"])
    consumer = stage.consumer(enable_auto_commit=False)
    consumer.subscribe([SOURCE, "others"])
    stage.collect(consumer, 2 * OLD + 1)
    replace(stage)
    logs_the_change(consumer)
    with pytest.raises(InputPositionError, match=REPLACED):
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition("others", 0, 1)], asynchronous=False)
    assert stage.cluster.committed(GROUP) == {PartitionKey("others", 0): 1}


def test_a_topic_that_is_neither_subscribed_nor_assigned_may_be_replaced(stage):
    stage.cluster.create_topic("others")
    producer, consumer = stage.producer(), subscribed(stage, SOURCE)
    stage.copy_the_rest(producer, consumer)
    logs_the_change(consumer, "others")
    stage.load(1)
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


@EITHER_WAY
def test_a_replacement_that_shows_only_as_a_position_beyond_the_end_is_an_error(stage, topic):
    producer, consumer = stage.producer(), subscribed(stage, topic)
    stage.copy_the_rest(producer, consumer)
    replace(stage, records=1)
    for _ in range(2):
        with pytest.raises(
            InputPositionError, match=r"orders\[0\].* at offset 2, which lies beyond the end of its log"
        ):
            stage.read_in_blocks(producer, consumer)
    assert stage.outputs == stage.inputs


def test_a_matched_topic_that_is_simply_gone_leaves_and_the_others_go_on(stage):
    stage.cluster.create_topic(OTHER, 1)
    producer, consumer = stage.producer(), subscribed(stage, PATTERN)
    stage.copy_the_rest(producer, consumer)
    stage.cluster.delete_topic(SOURCE)
    stage.cluster.rebalance()
    stage.wait_for(
        lambda: {each.topic for each in consumer.assignment()} == {OTHER}, lambda: one_block(producer, consumer)
    )
    stage.cluster.write(OTHER, [b"other"])
    stage.copy_until(producer, consumer, lambda: b"other" in stage.outputs)
    assert stage.outputs == sorted([*stage.inputs, b"other"])


def one_block(producer, consumer):
    with producer.transaction(consumer):
        consumer.consume(10, 0.1)


def refused_once(producer, text=f"{SOURCE}[1]"):
    """Let the brokers know nothing of a topic when its offsets are sent, which librdkafka says of a mixed refusal."""
    refused: list[bool] = []

    def refuse(raw, *arguments):
        if not refused:
            refused.append(True)
            code = KafkaError.UNKNOWN_TOPIC_OR_PART
            raise KafkaException(KafkaError(code, text, txn_requires_abort=True))
        return raw.send_offsets_to_transaction(*arguments)

    library = producer.adapter.library
    library.raw = Intercepted(library.raw, {"send_offsets_to_transaction": refuse})


def test_offsets_of_a_matched_topic_that_was_deleted_abort_the_block(stage):
    producer, consumer = stage.producer(), subscribed(stage, PATTERN)
    refused_once(producer)
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, OLD):
            txn.produce(SINK, record.value())
    assert txn.outcome is Outcome.ABORTED
    assert "topic that a pattern has matched was deleted" in txn.reason
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_offsets_of_a_named_topic_that_was_deleted_end_the_block_with_an_error(stage):
    producer, consumer = stage.producer(), subscribed(stage, SOURCE)
    refused_once(producer)
    with pytest.raises(ClusterUnfitError, match="Create it, or repair the name"), producer.transaction(consumer) as txn:
        txn.produce(SINK, stage.collect(consumer, 1)[0].value())
    assert stage.cluster.committed(GROUP) == {}


OTHER = f"{SOURCE}-b"
UNKNOWN = "((null))[0](Broker: Unknown topic or partition)"
"""How librdkafka ends the name of a partition whose offset was refused."""


def beside_a_matched_topic(stage, text):
    """A block with records of a named topic and of a matched one, whose offsets are refused with ``text``."""
    stage.cluster.create_topic(OTHER)
    stage.cluster.write(OTHER, [b"other"])
    producer, consumer = stage.producer(), stage.consumer()
    consumer.subscribe([SOURCE, f"^{OTHER}"])
    refused_once(producer, text)
    txn = producer.transaction(consumer)

    def block():
        with txn:
            for record in stage.collect(consumer, 2 * OLD + 1):
                txn.produce(SINK, record.value())

    return producer, consumer, txn, block


@pytest.mark.parametrize("text", [f"broker 1: {SOURCE}{UNKNOWN}", f"broker 1: {OTHER}{UNKNOWN}, {SOURCE}{UNKNOWN}"])
def test_a_named_topic_that_was_deleted_beside_a_matched_one_ends_the_block_with_its_name(stage, text):
    *_, txn, block = beside_a_matched_topic(stage, text)
    with pytest.raises(ClusterUnfitError, match=f" {SOURCE}[(].*Create it, or repair the name"):
        block()
    assert "pattern" not in txn.reason
    assert stage.outputs == []


@pytest.mark.parametrize("text", [f"broker 1: {OTHER}{UNKNOWN}", f"no name, but my.{SOURCE}{UNKNOWN}"])
def test_a_matched_topic_that_was_deleted_beside_a_named_one_aborts_the_block(stage, text):
    producer, consumer, txn, block = beside_a_matched_topic(stage, text)
    block()
    assert txn.outcome is Outcome.ABORTED
    assert "topic that a pattern has matched was deleted" in txn.reason
    stage.copy_until(producer, consumer, lambda: len(stage.outputs) == 2 * OLD + 1)
    assert stage.outputs == sorted([*stage.inputs, b"other"])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_held_work_without_outputs_of_a_replaced_topic_is_told_aborted(protocol: str) -> None:
    stage = SimulatedStage(protocol, records=2)
    producer, consumer = stage.producer(), subscribed(stage, SOURCE)
    with producer.transaction(consumer) as held:
        stage.collect(consumer, 4)
        close_the_gate(consumer)
    assert held.outcome is Outcome.SKIPPED
    replace(stage)
    logs_the_change(consumer)
    with pytest.raises(InputPositionError):
        consumer.poll(0.1)
    with producer.transaction(consumer) as following:
        pass
    assert following.outcome is Outcome.ABORTED
    assert stage.cluster.committed(GROUP) == {}
    producer.begin_transaction()
    producer.abort_transaction()
