"""A topic that is deleted and created again under a consumer is another topic: none of its records is skipped."""

import contextlib

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.cimpl import NewTopic

from eos_client import EosConfig, ExactlyOnceLoop
from eos_client.confluent.consumer.topic_identities import TopicIdentities
from eos_client.confluent.preflight import has_topic
from eos_client.errors import ClusterUnfitError, InputPositionError
from tests.kafka.kafka_support import values
from tests.kafka.loop_support import LoopThread
from tests.support.waiting import WAIT_S, wait_for
from tests.verification.answers import settled
from tests.verification.protocols import GroupProtocol

REFRESH_OFTEN = {"topic_metadata_refresh_interval_ms": 1000}
OLD, NEW = 10, 30  # more than before, so that the old position exists in the new topic


def replace_topic(stage, between=lambda: None, partitions=None):
    """Delete the source, do what is to be done `between`, and create it again, with `NEW` records in partition 0."""
    stage.partitions = partitions or stage.partitions
    stage.admin.delete_topics([stage.source])[stage.source].result(WAIT_S)
    between()
    created = []

    def create():
        with contextlib.suppress(KafkaException):  # while the old one is still being deleted
            stage.admin.create_topics([NewTopic(stage.source, stage.partitions, 1)])[stage.source].result(WAIT_S)
            created.append(True)

    wait_for(lambda: created, "the topic to be created again", create)
    settled(lambda: stage.load([NEW, 0][: stage.partitions], start=OLD))


EITHER_WAY = pytest.mark.parametrize("pattern", ["{}", "^{}$"], ids=["by name", "by pattern"])
REPLACED = r"was deleted and created again.*set the group's offsets"


def subscribed(stage, pattern, **settings):
    consumer = stage.consumer(**settings)
    consumer.subscribe([pattern.format(stage.source)])
    return consumer


@EITHER_WAY
def test_a_topic_that_was_replaced_is_an_error_and_stays_one(any_stage, pattern):
    stage = any_stage
    stage.load([OLD, 0])
    consumer = subscribed(stage, pattern)
    stage.collect(consumer, OLD)
    assert consumer.commit(asynchronous=False)
    replace_topic(stage)
    got = []
    for _ in range(2):
        with pytest.raises(InputPositionError, match=REPLACED):
            wait_for(lambda: False, "the error", lambda: got.extend(consumer.consume(100, 0.2)))
    assert values(got) == []


def is_missing(message):
    return message.error() is not None and message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_named_topic_that_was_deleted_ends_blocks(any_stage):
    stage = any_stage
    stage.load([OLD, 0])
    consumer, producer = stage.subscribed(), stage.producer()
    stage.copy_until(producer, consumer, lambda: stage.committed().get(0) == OLD)
    stage.admin.delete_topics([stage.source])[stage.source].result(WAIT_S)

    def next_block():
        with producer.transaction(consumer):
            consumer.consume(100, 0.2)

    with pytest.raises(ClusterUnfitError, match=stage.source):
        wait_for(lambda: False, "the error", next_block)


@pytest.mark.parametrize(
    "any_stage", [GroupProtocol.COOPERATIVE, pytest.param(GroupProtocol.EAGER, marks=pytest.mark.soak)], indirect=True
)
def test_a_named_topic_that_was_deleted_is_an_event_outside_blocks_as_in_confluent_kafka(any_stage):
    stage = any_stage
    stage.load([OLD, 0])
    consumer = stage.subscribed(**REFRESH_OFTEN)
    stage.collect(consumer, OLD)
    stage.admin.delete_topics([stage.source])[stage.source].result(WAIT_S)
    events: list[Message] = []
    wait_for(lambda: any(map(is_missing, events)), "the event", lambda: events.extend(consumer.consume(100, 0.2)))


def test_one_of_two_named_topics_that_was_deleted_ends_a_loop_which_is_not_ready_before(any_stage):
    stage = any_stage
    stage.load([OLD, 0])
    config = EosConfig(stage.consumer_settings(), group_id=stage.group, commit_interval_s=0.05)
    loop = ExactlyOnceLoop(config, [stage.sink, stage.source], lambda _: None, hook=stage.events.append)
    running = LoopThread(loop, stage.events)
    wait_for(lambda: loop.counters.records_in == OLD, "the records to be processed")
    stage.admin.delete_topics([stage.source])[stage.source].result(WAIT_S)
    wait_for(lambda: f"topic {stage.source!r} does not exist" in str(loop.health().reasons), "the reason")
    error = running.ended()
    assert isinstance(error, ClusterUnfitError)
    assert stage.source in str(error)


def test_a_consumer_that_looks_a_topic_up_does_not_create_it(stage):
    consumer, topic = stage.consumer(), f"{stage.source}-missing"
    for _ in range(2):
        assert has_topic(consumer.adapter, topic, WAIT_S) is False
    assert topic not in stage.admin.list_topics(timeout=WAIT_S).topics


@EITHER_WAY
def test_a_topic_that_was_replaced_after_its_partitions_were_revoked_is_an_error(any_stage, pattern):
    stage = any_stage
    stage.load([OLD, 0])
    consumer = subscribed(stage, pattern, **REFRESH_OFTEN)
    stage.collect(consumer, OLD)

    def wait_for_the_revocation():
        wait_for(lambda: not consumer.assignment(), "the revocation", lambda: consumer.consume(100, 0.1))

    replace_topic(stage, between=wait_for_the_revocation)
    got = []
    with pytest.raises(InputPositionError, match=REPLACED):
        wait_for(lambda: False, "the error", lambda: got.extend(consumer.consume(100, 0.2)))
    assert values(got) == []


@pytest.mark.parametrize(
    ("pattern", "partitions"),
    [
        pytest.param("{}", 1, id="by name, fewer partitions"),
        pytest.param("^{}$", 2, id="by pattern, as many partitions"),
    ],
)
def test_a_replaced_topic_ends_a_loop(stage, pattern, partitions):
    stage.load([OLD, 0])
    replaced: list[bool] = []

    def copy(record):
        if record.offset() == OLD - 1 and not replaced:
            replaced.append(True)
            replace_topic(stage, partitions=partitions)
        yield record.value()

    config = EosConfig(stage.consumer_settings(), group_id=stage.group, commit_interval_s=0.05)
    loop = ExactlyOnceLoop(
        config, [pattern.format(stage.source)], copy, output_topic=stage.sink, hook=stage.events.append
    )
    error = LoopThread(loop, stage.events).ended()
    assert isinstance(error, InputPositionError)
    assert "was deleted and created again" in str(error)
    assert set(stage.outputs()) <= {f"0-{n}" for n in range(OLD)}


@EITHER_WAY
def test_a_replaced_topic_ends_blocks(any_stage, pattern):
    stage = any_stage
    stage.load(OLD)
    consumer, producer = subscribed(stage, pattern), stage.producer()
    stage.copy_until(producer, consumer, lambda: stage.committed() == {0: OLD, 1: OLD})
    replace_topic(stage)
    with pytest.raises(InputPositionError, match=REPLACED):
        stage.copy_until(producer, consumer, lambda: False)
    assert sorted(stage.outputs()) == sorted(f"{partition}-{n}" for partition in (0, 1) for n in range(OLD))


def test_a_matched_topic_that_is_simply_gone_leaves_and_the_others_go_on(any_stage):
    stage = any_stage
    stage.load([OLD, 0])
    other = f"{stage.source}-b"
    stage.admin.create_topics([NewTopic(other, 1, 1)])[other].result(WAIT_S)
    consumer = subscribed(stage, "^{}.*", **REFRESH_OFTEN)
    wait_for(lambda: len(consumer.assignment()) == 3, "the assignment", lambda: consumer.consume(100, 0.1))
    stage.admin.delete_topics([stage.source])[stage.source].result(WAIT_S)
    wait_for(
        lambda: {each.topic for each in consumer.assignment()} == {other},
        "the partitions to leave",
        lambda: consumer.consume(100, 0.1),
    )
    writer = stage.producer()
    writer.begin_transaction()
    writer.produce(other, b"other")
    writer.commit_transaction()
    got: list[Message] = []
    wait_for(lambda: b"other" in [m.value() for m in got], "its record", lambda: got.extend(consumer.consume(100, 0.1)))


def test_the_log_tells_the_id_of_a_topic_that_is_read(stage):
    """What the above relies on: a client library that writes its log otherwise turns this red."""
    stage.load(1)
    settings = stage.consumer_settings()
    identities = TopicIdentities(settings)
    consumer = stage.raw_consumer(**identities.added_to({}))
    stage.collect(consumer, 2)
    assert stage.source in identities._ids
