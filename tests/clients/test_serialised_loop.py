"""The loop with confluent_kafka's serialisers, those of Schema Registry on its mock registry among them."""

from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import (
    MessageField,
    SerializationContext,
    SerializationError,
    StringDeserializer,
    StringSerializer,
)
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from eos_client import EosConfig, ExactlyOnceLoop, OutputRecord
from eos_client.errors import InputUnreadableError, OutputNotSerializedError, TransformError
from eos_client.observe import RecordDeadLettered, RecordSkipped, TransactionAborted
from eos_client.testing.simulator import SimulatedCluster

SOURCE, SINK, DEAD = "orders", "invoices", "orders.dead"
ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "pieces", "type": "int"}]}'
ORDER_JSON = (
    '{"title": "Order", "type": "object", "properties": {"pieces": {"type": "integer"}}, "required": ["pieces"]}'
)
OF_A_VALUE = SerializationContext(SOURCE, MessageField.VALUE, [])
LETTERS = {"on_error": "dead_letter", "dead_letter_topic": DEAD}
TEXTS = {"value_deserializer": StringDeserializer(), "value_serializer": StringSerializer()}


def avro(registry):
    return AvroSerializer(registry, ORDER), AvroDeserializer(registry)


def json_schema(registry):
    return JSONSerializer(ORDER_JSON, registry), JSONDeserializer(ORDER_JSON, schema_registry_client=registry)


def protobuf_order():
    """The class that protoc would generate for an order."""
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    pieces = file.message_type.add(name="Order").field.add(name="pieces", number=1)
    pieces.type, pieces.label = FieldDescriptorProto.TYPE_INT32, FieldDescriptorProto.LABEL_OPTIONAL
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def protobuf(registry):
    order = protobuf_order()
    write = ProtobufSerializer(order, registry)
    read = ProtobufDeserializer(order, schema_registry_client=registry)
    # Of the dicts of the other formats, so that one test does for all of them.
    return (
        lambda made, context: write(order(**made), context),
        lambda value, context: {"pieces": read(value, context).pieces},
    )


class Run:
    """A loop on a cluster of its own, and what it has told and written."""

    def __init__(self, transform, values, transform_batch=None, **options):
        self.cluster = SimulatedCluster(seed=5)
        for topic in (SOURCE, SINK, DEAD):
            self.cluster.create_topic(topic)
        self.cluster.write(SOURCE, values)
        self.events: list[Any] = []
        config: Any = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing", **options)
        given: dict[str, Any] = {"transform": transform, "transform_batch": transform_batch}
        self._started = lambda: ExactlyOnceLoop(
            config,
            [SOURCE],
            **given,
            output_topic=SINK,
            hook=self.events.append,
            clients=self.cluster,
        )

    def until_idle(self):
        loop = self._started()
        self.cluster.after(30, loop.stop)
        loop.run()
        return self

    def values(self, topic=SINK):
        return self.cluster.values(topic)

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


def reversed_text(record):
    return [OutputRecord(value=record.value()[::-1], key=record.key())]


@pytest.mark.parametrize("form", [avro, json_schema, protobuf])
def test_the_formats_of_schema_registry_go_in_and_out(form):
    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    serialize, deserialize = form(registry)
    run = Run(
        lambda record: [OutputRecord(value={"pieces": record.value()["pieces"] * 2})],
        [serialize({"pieces": n}, OF_A_VALUE) for n in (3, 4)],
        value_deserializer=deserialize,
        value_serializer=serialize,
    ).until_idle()
    of_an_output = SerializationContext(SINK, MessageField.VALUE, [])
    assert [deserialize(value, of_an_output) for value in run.values()] == [{"pieces": 6}, {"pieces": 8}]
    assert set(registry.get_subjects()) == {f"{SOURCE}-value", f"{SINK}-value"}


def test_a_serialiser_that_writes_the_schema_s_id_into_a_header_finds_headers_to_write_to():
    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    serialize = AvroSerializer(registry, ORDER, conf={"schema.id.serializer": header_schema_id_serializer})
    run = Run(lambda record: [OutputRecord(value={"pieces": 1})], [b"any"], value_serializer=serialize).until_idle()
    (stored,) = run.cluster.read(SINK)
    assert [name for name, _ in stored.headers] == ["__value_schema_id"]


def test_serialisers_are_told_topic_field_and_headers():
    told: list[Any] = []

    def telling(content, context):
        told.append((content, context.topic, str(context.field), context.headers))
        return content

    options = dict.fromkeys(("key_deserializer", "value_deserializer", "key_serializer"), telling)
    run = Run(
        lambda record: [OutputRecord(SINK, value=record.value(), key=b"k", headers={"trace": b"1"})], [b"4"], **options
    ).until_idle()
    assert run.values() == [b"4"]
    assert told == [
        (None, SOURCE, "key", None),
        (b"4", SOURCE, "value", None),
        (b"k", SINK, "key", {"trace": b"1"}),
    ]


def test_a_null_is_the_deserialiser_s_to_read_and_written_as_null_without_a_serialiser():
    def refuse_all(content, context):
        raise AssertionError(f"asked for {content!r}")

    run = Run(
        lambda record: [OutputRecord(value=None, key=record.value())],
        [None],
        value_deserializer=lambda value, _context: "nothing" if value is None else value,
        value_serializer=refuse_all,
    ).until_idle()
    (stored,) = run.cluster.read(SINK)
    assert (stored.key, stored.value) == (b"nothing", None)


def test_bytes_that_a_transform_returns_are_the_value_of_an_output_and_are_serialised_as_such():
    framed: Any = lambda value, _context: b"\x00" + value  # noqa: E731
    run = Run(lambda record: record.value(), [b"4"], value_serializer=framed).until_idle()
    assert run.values() == [b"\x004"]


def test_a_transform_sees_the_raw_message_beside_what_was_made_of_it():
    seen: list[Any] = []

    def look(record):
        raw = record.raw
        seen.append((record.value(), raw.value(), record.topic(), record.partition(), record.offset(), len(record)))
        assert (record.headers(), record.timestamp(), record.error()) == (raw.headers(), raw.timestamp(), None)
        assert record.leader_epoch() == raw.leader_epoch()
        assert record.value() is record.deserialized_value()

    Run(look, ["ä".encode()], **TEXTS).until_idle()
    assert seen == [("ä", "ä".encode(), SOURCE, 0, 0, 2)]


UNREADABLE = b"\xff"


def test_a_record_that_cannot_be_deserialised_stops_the_loop_and_the_error_names_record_and_deserialiser():
    run = Run(reversed_text, [b"ab", UNREADABLE, b"cd"], **TEXTS)
    with pytest.raises(TransformError) as caught:
        run.until_idle()
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (SOURCE, 0, 1)
    assert "the value of orders[0]@1 cannot be deserialised by StringDeserializer: " in str(caught.value)
    assert "the transform raised" not in str(caught.value)
    cause = caught.value.__cause__
    assert isinstance(cause, InputUnreadableError)
    assert isinstance(cause, SerializationError), "what code for confluent_kafka catches"
    assert (cause.topic, cause.partition, cause.offset) == (SOURCE, 0, 1)
    assert run.values() == []


def test_a_record_that_cannot_be_deserialised_is_skipped():
    run = Run(reversed_text, [b"ab", UNREADABLE, b"cd"], on_error="skip", **TEXTS).until_idle()
    assert run.values() == [b"ba", b"dc"]
    (skipped,) = run.of(RecordSkipped)
    assert "cannot be deserialised by StringDeserializer" in skipped.error


@pytest.mark.parametrize("field", ["key", "value"])
def test_a_record_that_cannot_be_deserialised_is_dead_lettered_with_its_own_bytes(field):
    def refuse(content, _context):
        raise ValueError("no such schema")

    calls: list[Any] = []
    options: dict[str, Any] = {f"{field}_deserializer": refuse, "value_serializer": StringSerializer()}
    run = Run(calls.append, [UNREADABLE], transform_attempts_max=2, **options, **LETTERS).until_idle()
    (letter,) = run.cluster.read(DEAD)
    assert (letter.key, letter.value) == (None, UNREADABLE)
    headers = dict(letter.headers)
    assert headers["eos.error"].startswith(f"Kafka{field.title()}UnreadableError: the {field} of orders[0]@0".encode())
    assert headers["eos.error"].endswith(b"cannot be deserialised by refuse: ValueError: no such schema")
    assert headers["eos.error.place"].endswith(b" in refuse")
    assert headers["eos.attempts"] == b"2"
    assert calls == []
    assert len(run.of(RecordDeadLettered)) == 1


def test_an_output_that_cannot_be_serialised_is_its_records_failure():
    def transform(record):
        yield OutputRecord(value="first")
        yield OutputRecord(value=int(record.value()) if record.value() == "7" else record.value())

    run = Run(transform, [b"6", b"7", b"8"], **TEXTS, **LETTERS).until_idle()
    assert run.values() == [b"first", b"6", b"first", b"8"]
    (letter,) = run.cluster.read(DEAD)
    assert letter.value == b"7"
    error = dict(letter.headers)["eos.error"]
    assert error.startswith(b"KafkaValueNotSerializedError: the value of an output for topic 'invoices' cannot be")
    assert b"by StringSerializer: AttributeError" in error


def test_an_output_that_cannot_be_serialised_stops_the_loop_by_default():
    run = Run(lambda record: [OutputRecord(value=7)], [b"6"], **TEXTS)
    with pytest.raises(TransformError, match=r"the record at orders\[0\]@0 failed with KafkaValueNotSer") as caught:
        run.until_idle()
    assert isinstance(caught.value.__cause__, OutputNotSerializedError)
    where, frame = str(caught.value.place).split(":")
    assert (where, frame.split(" ", 1)[1]) == ("serialization/__init__.py", "in __call__"), "no other frame is there"


def test_a_registry_that_is_away_for_a_moment_is_waited_for_by_the_attempts():
    tried = []

    def deserialize(value, context):
        tried.append(value)
        if len(tried) < 3:
            raise ConnectionError("the registry is away")
        return value

    run = Run(lambda record: record.value(), [b"4"], value_deserializer=deserialize, transform_attempts_max=3)
    assert run.until_idle().values() == [b"4"]


def test_a_record_that_comes_again_after_an_abort_is_deserialised_from_its_bytes_again():
    run = Run(reversed_text, [b"ab", b"cd"], **TEXTS)
    run.cluster.refuse("TxnOffsetCommit", "ILLEGAL_GENERATION")
    assert run.until_idle().values() == [b"ba", b"dc"]
    assert run.of(TransactionAborted)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"value_deserializer": "avro"}, "value_deserializer='avro' cannot be called"),
        ({"consumer": {"value.deserializer": str}}, '"value.deserializer" stands among the settings. Give it as'),
        ({"producer": {"key.serializer": str}}, "the option key_serializer"),
    ],
)
def test_a_serialiser_in_the_wrong_place_is_refused_with_the_right_one(wrong, said):
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        EosConfig({"bootstrap.servers": "simulated"}, group_id="billing", **wrong)


def test_a_batch_is_deserialised_and_the_record_in_it_that_cannot_be_is_a_letter():
    batches = []

    def reversed_texts(records):
        batches.append([record.value() for record in records])
        return [OutputRecord(value=record.value()[::-1]) for record in records]

    run = Run(None, [b"ab", b"\xff", b"cd", b"ef"], transform_batch=reversed_texts, **TEXTS, **LETTERS).until_idle()
    assert run.values() == [b"ba", b"dc", b"fe"]
    assert run.values(DEAD) == [b"\xff"]
    assert ["cd", "ef"] in batches
