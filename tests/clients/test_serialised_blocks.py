"""The wrappers with serialisers: records are read when they are looked at, and a block says what cannot be."""

from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.error import KeySerializationError, ValueDeserializationError, ValueSerializationError
from confluent_kafka.serialization import StringDeserializer, StringSerializer

from eos_client import EosConsumer, EosProducer, Outcome
from eos_client.errors import ConfigurationError, InputUnreadableError, OutputNotSerializedError
from tests.clients.simulated_stage import SINK, SOURCE, SimulatedStage

DEAD = "orders.dead"
UNREADABLE = b"\xff"
READING: dict[str, Any] = {"value_deserializer": StringDeserializer()}
WRITING: dict[str, Any] = {"key_serializer": StringSerializer(), "value_serializer": StringSerializer("utf_16_be")}


@pytest.fixture
def stage():
    made = SimulatedStage(partitions=1, records=0)
    made.cluster.create_topic(DEAD)
    return made


def written(stage, topic=SINK):
    return [(record.key, record.value) for record in stage.cluster.read(topic)]


def test_objects_go_in_and_out_of_a_block(stage):
    stage.cluster.write(SOURCE, [b"ab", b"cd"])
    producer, consumer = stage.producer(**WRITING), stage.subscribed(**READING)
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 2):
            txn.produce(SINK, message.value()[0], "k")
        producer.produce(SINK, value="e", key="k", headers={"trace": b"1"})
    assert txn.outcome is Outcome.COMMITTED
    assert written(stage) == [(b"k", b"\0a"), (b"k", b"\0c"), (b"k", b"\0e")]
    assert stage.cluster.read(SINK)[2].headers == (("trace", b"1"),)


def test_a_record_that_cannot_be_deserialised_is_dead_lettered_with_its_bytes_and_the_others_go_on(stage):
    stage.cluster.write(SOURCE, [b"ab", UNREADABLE, b"cd"])
    producer, consumer = stage.producer(**WRITING), stage.subscribed(**READING)
    with producer.transaction(consumer) as txn:
        first, bad, last = stage.collect(consumer, 3)
        for _ in range(2):
            with pytest.raises(
                InputUnreadableError, match=r"the value of orders\[0\]@1 cannot be deserialised by Str"
            ) as caught:
                bad.value()
        txn.produce(SINK, first.value())
        txn.dead_letter(bad, caught.value, topic=DEAD)
        txn.produce(SINK, last.value())
    assert isinstance(caught.value, ValueDeserializationError), "what code for confluent_kafka catches"
    assert caught.value.kafka_message is bad.raw
    assert txn.outcome is Outcome.COMMITTED
    assert [value.decode("utf_16_be") for _key, value in written(stage)] == ["ab", "cd"]
    assert written(stage, DEAD) == [(None, UNREADABLE)]
    (committed,) = consumer.committed([TopicPartition(SOURCE, 0)])
    assert committed.offset == 3


def test_a_record_that_nobody_can_read_aborts_the_block_that_its_error_leaves(stage):
    stage.cluster.write(SOURCE, [UNREADABLE])
    producer, consumer = stage.producer(), stage.subscribed(**READING)
    txn = producer.transaction(consumer)

    def one_block():
        with txn:
            (message,) = stage.collect(consumer, 1)
            txn.produce(SINK, message.value())

    with pytest.raises(InputUnreadableError):
        one_block()
    assert txn.outcome is Outcome.ABORTED
    assert [message.raw.value() for message in stage.collect(consumer, 1)] == [UNREADABLE]


@pytest.mark.parametrize(
    ("arguments", "kind", "field"),
    [({"value": 7}, ValueSerializationError, "value"), ({"key": 7, "value": "v"}, KeySerializationError, "key")],
)
def test_what_a_serialiser_refuses_is_not_written_and_the_block_goes_on(stage, arguments, kind, field):
    stage.cluster.write(SOURCE, [b"ab"])
    producer, consumer = stage.producer(**WRITING), stage.subscribed()
    with producer.transaction(consumer) as txn:
        stage.collect(consumer, 1)
        for produce in (txn.produce, producer.produce):
            with pytest.raises(
                OutputNotSerializedError, match=f"the {field} of an output for topic 'invoices'"
            ) as refused:
                produce(SINK, **arguments)
            assert isinstance(refused.value, kind)
        txn.produce(SINK, "a")
    assert txn.outcome is Outcome.COMMITTED
    assert written(stage) == [(None, b"\0a")]


def test_a_batch_is_serialised_message_by_message_and_not_sent_in_part(stage):
    producer = stage.producer(**WRITING)
    producer.begin_transaction()
    messages = [{"value": "a", "key": "k"}, {"value": "b"}]
    assert producer.produce_batch(SINK, messages) == 2
    with pytest.raises(OutputNotSerializedError):
        producer.produce_batch(SINK, [{"value": "c"}, {"value": 7}])
    producer.commit_transaction()
    assert written(stage) == [(b"k", b"\0a"), (None, b"\0b")]
    assert messages == [{"value": "a", "key": "k"}, {"value": "b"}]


def test_plain_commits_take_a_deserialised_record(stage):
    stage.cluster.write(SOURCE, [b"ab", b"cd"])
    consumer = stage.subscribed(**READING, enable_auto_offset_store=False)
    first, second = stage.collect(consumer, 2)
    consumer.commit(first, asynchronous=False)
    assert stage.committed() == 1
    consumer.store_offsets(second)
    consumer.commit(asynchronous=False)
    assert stage.committed() == 2


def test_poll_gives_a_deserialised_record_and_events_as_they_are(stage):
    stage.cluster.write(SOURCE, [b"ab"])
    consumer = stage.subscribed(**READING, enable_partition_eof=True)
    got: list[Any] = []
    stage.wait_for(lambda: len(got) == 2, lambda: got.extend(m for m in [consumer.poll(0.2)] if m is not None))
    record, end = got
    assert record.value() == "ab"
    assert end.error().name() == "_PARTITION_EOF"


@pytest.mark.parametrize(("client", "setting"), [(EosConsumer, "key.deserializer"), (EosProducer, "value.serializer")])
def test_what_cannot_be_called_is_refused_by_the_constructor(client, setting):
    with pytest.raises(ConfigurationError, match=rf"{setting}='avro' cannot be called"):
        client({"bootstrap.servers": "localhost:1", "group.id": "billing", setting: "avro"})
