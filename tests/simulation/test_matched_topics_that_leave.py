"""A topic that only a pattern has matched is deleted, or comes back with fewer partitions: the rest goes on."""

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from eos_client import Outcome
from eos_client.core.model import InputPartition
from eos_client.errors import ClusterUnfitError, InputPositionError
from tests.interruption import BrokenOffError
from tests.simulation.simulated_stage import GROUP, SINK, SOURCE, SimulatedStage
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


def come_back_with_one_partition(stage, consumer):
    come_back(stage, consumer, 1)
    stage.cluster.write(SOURCE, [b"new-%d" % n for n in range(NEW)])


def come_back(stage, consumer, partitions, topic=SOURCE):
    """What the brokers do, and the lines of librdkafka's log that tell of it."""
    del stage.cluster.brokers._topics[topic]
    stage.cluster.create_topic(topic, partitions)
    for before, after in (("A" * 22, "a" * 22), ("a" * 22, "b" * 22)):
        line = f"[thrd:main]: Topic {topic} changed id from {before} to {after}"
        consumer.member.library.topics.log(7, "%s", line)


def test_what_a_topic_that_comes_back_still_has_is_read_and_the_rest_of_it_has_left(stage):
    producer, consumer = stage.producer(), subscribed(stage, PATTERN)
    stage.copy_the_rest(producer, consumer)
    come_back_with_one_partition(stage, consumer)
    new = [b"new-%d" % n for n in range(NEW)]
    stage.copy_until(producer, consumer, lambda: set(stage.outputs) >= set(new))
    assert stage.outputs == sorted([*stage.inputs, *new])


def test_the_work_in_hand_of_partitions_that_a_topic_no_longer_has_is_dropped(stage):
    producer, consumer = stage.producer(), subscribed(stage, PATTERN)
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 2 * OLD):
            txn.produce(SINK, record.value())
        come_back_with_one_partition(stage, consumer)
        consumer.consume(1, 0)
        assert {partition.partition for partition in consumer.member.positions} <= {0}
    new = [b"new-%d" % n for n in range(NEW)]
    stage.copy_until(producer, consumer, lambda: set(stage.outputs) >= set(new))
    assert stage.outputs == sorted({*stage.outputs})


def test_a_topic_that_comes_back_is_not_forgotten_when_the_question_what_it_has_is_interrupted(stage):
    producer, consumer = stage.producer(), subscribed(stage, PATTERN)
    stage.copy_the_rest(producer, consumer)
    come_back_with_one_partition(stage, consumer)
    asked = []

    def interrupted_once(raw, *arguments):
        asked.append(arguments)
        if len(asked) == 1:
            raise BrokenOffError
        return raw.list_topics(*arguments)

    library = consumer.member.library
    library.raw = Intercepted(library.raw, {"list_topics": interrupted_once})
    with pytest.raises(BrokenOffError):
        stage.wait_for(lambda: False, lambda: consumer.consume(10, 0.1))
    new = [b"new-%d" % n for n in range(NEW)]
    stage.copy_until(producer, consumer, lambda: set(stage.outputs) >= set(new))
    for _ in range(30):
        consumer.consume(1, 0.1)
    assert len(asked) == 1 + 3  # interrupted once, then until three answers agree
    assert stage.outputs == sorted([*stage.inputs, *new])


@pytest.mark.parametrize("stale", [1, 2], ids=["one answer", "two answers"])
def test_a_broker_that_has_not_heard_of_all_partitions_yet_hides_none_of_them(stage, stale):
    producer, consumer = stage.producer(), subscribed(stage, PATTERN)
    stage.copy_the_rest(producer, consumer)
    come_back(stage, consumer, stage.partitions)
    new = [b"%d-new-%d" % (partition, n) for partition in range(stage.partitions) for n in range(NEW)]
    for partition in range(stage.partitions):
        stage.cluster.write(SOURCE, new[partition * NEW : (partition + 1) * NEW], partition=partition)
    asked = []

    def stale_at_first(raw, *arguments):
        answer = raw.list_topics(*arguments)
        asked.append(arguments)
        if len(asked) <= stale:
            del answer.topics[SOURCE].partitions[1]
        return answer

    library = consumer.member.library
    library.raw = Intercepted(library.raw, {"list_topics": stale_at_first})
    stage.copy_until(producer, consumer, lambda: set(stage.outputs) >= set(new))
    assert len(asked) == stale + 1
    assert stage.outputs == sorted([*stage.inputs, *new])


def test_no_fetch_waits_until_it_is_known_what_topics_that_come_back_still_have(stage):
    """The time would count towards max.poll.interval.ms, and towards the open transaction."""
    others = [f"{SOURCE}-{name}" for name in "bcd"]
    for topic in others:
        stage.cluster.create_topic(topic, stage.partitions)
        stage.cluster.write(topic, [b"old"], partition=1)
    producer, consumer = stage.producer(), subscribed(stage, PATTERN)
    stage.copy_until(producer, consumer, lambda: len(stage.outputs) == len(stage.inputs) + len(others))
    before = list(stage.outputs)
    come_back_with_one_partition(stage, consumer)
    for topic in others:
        come_back(stage, consumer, 1, topic)
        stage.cluster.write(topic, [b"%s-new" % topic.encode()])
    longest = 0.0

    def fetch():
        nonlocal longest
        began = stage.cluster.clock()
        consumer.member.fetching.serve_callbacks()
        longest = max(longest, stage.cluster.clock() - began)

    for _ in range(20):
        fetch()
        stage.cluster.clock.sleep(0.2)
    assert longest < 0.1
    new = [b"new-%d" % n for n in range(NEW)] + [b"%s-new" % topic.encode() for topic in others]
    stage.copy_until(producer, consumer, lambda: set(stage.outputs) >= set(new))
    assert stage.outputs == sorted([*before, *new])


@pytest.mark.parametrize("moves", ["leaves", "is sought"])
def test_a_partition_that_goes_on_elsewhere_is_not_asked_for_nor_restarted(stage, moves):
    """Another member may have committed offsets of the new topic meanwhile."""
    producer, consumer = stage.producer(), subscribed(stage, PATTERN)
    stage.copy_the_rest(producer, consumer)
    come_back_with_one_partition(stage, consumer)
    consumer.poll(0)
    parts, gone = consumer.member.parts, InputPartition(SOURCE, 1)
    assert parts.undecided.keys() == {gone}
    if moves == "leaves":
        parts.departed(frozenset({gone}))
    else:
        consumer.seek(TopicPartition(SOURCE, 1, 0))
    assert not parts.undecided


def test_markers_of_a_partition_that_may_be_gone_are_not_passed(stage):
    producer, consumer = stage.producer(), subscribed(stage, PATTERN)
    stage.copy_the_rest(producer, consumer)
    producer.begin_transaction()
    producer.produce(SOURCE, b"aborted", partition=1)
    producer.flush()
    producer.abort_transaction()
    gone = TopicPartition(SOURCE, 1)
    stage.wait_for(lambda: consumer.member.library.raw.position([gone])[0].offset > OLD, lambda: consumer.poll(0.1))
    come_back_with_one_partition(stage, consumer)
    consumer.poll(0)
    assert not consumer.member.hand_over_passed()


def test_a_named_topic_that_comes_back_with_fewer_partitions_is_an_error(stage):
    producer, consumer = stage.producer(), subscribed(stage, SOURCE)
    stage.copy_the_rest(producer, consumer)
    come_back_with_one_partition(stage, consumer)
    with pytest.raises(InputPositionError, match="was deleted and created again"):
        stage.read_in_blocks(producer, consumer)


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
    assert "a topic that a pattern has matched was deleted" in txn.reason
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
    assert "a topic that a pattern has matched was deleted" in txn.reason
    stage.copy_until(producer, consumer, lambda: len(stage.outputs) == 2 * OLD + 1)
    assert stage.outputs == sorted([*stage.inputs, b"other"])


def test_a_hold_ends_with_the_work_that_it_was_for(stage):
    """Or the next work of these clients would seem to be held since then, and end at the hold limit."""
    producer, consumer = stage.producer(), subscribed(stage, PATTERN)
    with producer.transaction(consumer) as txn:
        stage.collect(consumer, 2 * OLD)
        close_the_gate(consumer)
    session = producer.session(consumer)
    assert (txn.outcome, session.is_held) == (Outcome.SKIPPED, True)
    come_back_with_one_partition(stage, consumer)
    stage.wait_for(lambda: not consumer.member.positions, lambda: consumer.consume(0, 0.1))
    with producer.transaction(consumer) as txn:
        pass
    assert (txn.outcome, session.is_held) == (Outcome.COMMITTED, False)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_that_comes_back_after_only_markers_were_passed_is_read_from_its_beginning(protocol):
    """The offset behind the old topic's markers is committed when the new one is there already."""
    stage = SimulatedStage(protocol, records=0, partitions=1)
    producer, consumer = stage.producer(), subscribed(stage, PATTERN)
    upstream = stage.cluster.producer({"transactional.id": "upstream"})
    upstream.init_transactions()
    for _ in range(3):
        upstream.begin_transaction()
        upstream.produce(SOURCE, b"aborted", partition=0)
        upstream.flush()
        upstream.abort_transaction()
    with producer.transaction(consumer):
        stage.wait_for(consumer.member.hand_over_passed, lambda: consumer.consume(10, 0.2))
        del stage.cluster.brokers._topics[SOURCE]
        stage.cluster.create_topic(SOURCE, 1)
    for before, after in (("A" * 22, "a" * 22), ("a" * 22, "b" * 22)):
        line = f"[thrd:main]: Topic {SOURCE} changed id from {before} to {after}"
        consumer.member.library.topics.log(7, "%s", line)
    new = [b"new-%d" % n for n in range(10)]
    stage.cluster.write(SOURCE, new)
    stage.copy_until(producer, consumer, lambda: b"new-9" in stage.outputs)
    assert stage.outputs == sorted([*stage.inputs, *new])
