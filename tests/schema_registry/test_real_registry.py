"""The loop and a block with confluent_kafka's serialisers and a registry that checks, refuses, stops and comes back."""

import struct
from functools import partial

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from eos_client import Outcome, OutputRecord
from eos_client.errors import InputUnreadableError, TransformError
from eos_client.observe import RecordDeadLettered
from tests.clients.simulated_stage import SimulatedStage
from tests.clients.test_serialised_loop import (
    DEAD,
    LETTERS,
    OF_A_VALUE,
    ORDER,
    SINK,
    SOURCE,
    Run,
    avro,
    json_schema,
    protobuf,
)
from tests.support.schema_registry import schema_registry

pytestmark = pytest.mark.soak

ORDER_IN_WORDS = ORDER.replace("int", "string")
ORDER_OF_A_CUSTOMER = ORDER.replace("]}", ', {"name": "customer", "type": "string", "default": ""}]}')
PATIENT = {"transform_attempts_max": 10, "transform_backoff_s": 1}
UNKNOWN = b"\0" + struct.pack(">I", 4711) + b"\x06"
OF_AN_OUTPUT = SerializationContext(SINK, MessageField.VALUE, [])


@pytest.fixture
def registry():
    with schema_registry() as running:
        yield running


@pytest.fixture
def client(registry):
    """A function that makes a client of the registry, which knows no schema until it has asked for it."""
    return lambda **settings: SchemaRegistryClient({"url": registry.url, "max.retries": 0, **settings})


def orders(client, schemas):
    """One order for each schema, of 1, 2, 3 and so on pieces."""
    return [
        AvroSerializer(client(), schema)({"pieces": n, "customer": "A7"}, OF_A_VALUE)
        for n, schema in enumerate(schemas, start=1)
    ]


def doubled(record):
    return OutputRecord(value={"pieces": record.value()["pieces"] * 2})


def pieces(client, values):
    read = AvroDeserializer(client())
    return [read(value, OF_AN_OUTPUT)["pieces"] for value in values]


def error_in(letter):
    return dict(letter.headers)["eos.error"].decode()


def doubled_after(action, pieces_of_it=1):
    """Return `doubled`, which does ``action`` when it first gets an order of so many pieces."""
    to_do = [action]

    def transform(record):
        if to_do and record.value()["pieces"] == pieces_of_it:
            to_do.pop()()
        return doubled(record)

    return transform


def avro_run(client, transform, values, write=None, **options):
    """A loop that reads and writes Avro by the registry; ``write``: a serialiser that has learned something already."""
    write = write or AvroSerializer(client(), ORDER)
    read = AvroDeserializer(client())
    return Run(transform, values, value_deserializer=read, value_serializer=write, **options)


@pytest.mark.parametrize("form", [avro, json_schema, protobuf])
def test_a_format_goes_in_and_out_and_each_side_learns_the_schema_from_the_registry(client, form):
    (serialize, _), (write, read) = form(client()), form(client())
    run = Run(
        doubled,
        [serialize({"pieces": n}, OF_A_VALUE) for n in (3, 4)],
        value_deserializer=read,
        value_serializer=write,
    ).until_idle()
    _, read_output = form(client())
    assert [read_output(value, OF_AN_OUTPUT) for value in run.values()] == [{"pieces": 6}, {"pieces": 8}]
    assert set(client().get_subjects()) == {f"{SOURCE}-value", f"{SINK}-value"}


def test_an_output_whose_schema_the_registry_refuses_is_its_record_s_failure(client):
    first, second = orders(client, [ORDER, ORDER])
    client().register_schema(f"{SINK}-value", Schema(ORDER_IN_WORDS, "AVRO"))
    client().set_compatibility(f"{SINK}-value", "BACKWARD")

    def transform(record):
        topic = SINK if record.value()["pieces"] == 1 else "receipts"
        return OutputRecord(topic, value=record.value())

    run = avro_run(client, transform, [first, second], **LETTERS)
    run.cluster.create_topic("receipts")
    run.until_idle()
    assert run.values() == []
    assert pieces(client, run.values("receipts")) == [2]
    (letter,) = run.cluster.read(DEAD)
    assert letter.value == first
    assert error_in(letter).startswith("KafkaValueNotSerializedError: the value of an output for topic 'invoices'")
    assert "Incompatible artifact" in error_in(letter)
    assert "409" in error_in(letter)
    assert len(client().get_versions(f"{SINK}-value")) == 1


def test_a_record_whose_schema_the_registry_does_not_know_is_a_letter_and_the_others_go_on(client):
    first, second = orders(client, [ORDER, ORDER])
    run = avro_run(client, doubled, [first, UNKNOWN, second], **LETTERS).until_idle()
    assert pieces(client, run.values()) == [2, 4]
    (letter,) = run.cluster.read(DEAD)
    assert letter.value == UNKNOWN
    assert error_in(letter).startswith("KafkaValueUnreadableError: the value of orders[0]@1")
    assert "SR code 40403" in error_in(letter)


@pytest.mark.parametrize("away", ["before a new schema is read", "before an output's schema is registered"])
def test_a_registry_that_comes_back_within_the_attempts_costs_no_record(registry, client, away):
    write = AvroSerializer(client(), ORDER)  # it asks the registry at its first call
    if away == "before a new schema is read":
        write({"pieces": 0}, OF_AN_OUTPUT)
    values = orders(client, [ORDER, ORDER, ORDER_OF_A_CUSTOMER, ORDER])
    run = avro_run(client, doubled_after(registry.stop), values, write, **PATIENT, **LETTERS)
    run.cluster.after(5, registry.start)
    run.until_idle()
    assert pieces(client, run.values()) == [2, 4, 6, 8]
    assert run.values(DEAD) == []


def test_a_registry_that_answers_nobody_is_waited_for_by_the_attempts_where_its_client_has_a_time_limit(
    registry, client
):
    values = orders(client, [ORDER, ORDER_OF_A_CUSTOMER])
    hasty = partial(client, timeout=0.2)
    run = avro_run(hasty, doubled_after(registry.freeze), values, **PATIENT, **LETTERS)
    run.cluster.after(5, registry.thaw)
    run.until_idle()
    assert pieces(client, run.values()) == [2, 4]
    assert run.values(DEAD) == []


def test_a_registry_that_stays_away_stops_the_loop_and_the_next_start_processes_every_record_once(registry, client):
    values = orders(client, [ORDER, ORDER, ORDER_OF_A_CUSTOMER, ORDER])
    run = avro_run(client, doubled_after(registry.stop, pieces_of_it=2), values)
    with pytest.raises(TransformError, match=r"the value of orders\[0\]@2 cannot be deserialised by AvroDeserializer"):
        run.until_idle()
    assert run.values() == []
    registry.start()
    assert pieces(client, run.until_idle().values()) == [2, 4, 6, 8]


def test_without_attempts_each_record_that_a_registry_is_away_for_is_a_letter_that_can_be_processed_later(
    registry, client
):
    values = orders(client, [ORDER, ORDER_OF_A_CUSTOMER, ORDER, ORDER_OF_A_CUSTOMER])
    write = AvroSerializer(client(), ORDER)
    write({"pieces": 0}, OF_AN_OUTPUT)
    run = avro_run(client, doubled_after(registry.stop), values, write, **LETTERS).until_idle()
    letters = run.values(DEAD)
    assert letters == [values[1], values[3]]
    assert len(run.of(RecordDeadLettered)) == 2
    assert "AvroDeserializer" in run.of(RecordDeadLettered)[0].error
    registry.start()
    run.cluster.write(SOURCE, letters)
    assert pieces(client, run.until_idle().values()) == [2, 6, 4, 8]


def test_a_block_reads_and_writes_and_dead_letters_what_the_registry_does_not_know(client):
    stage = SimulatedStage(partitions=1, records=0)
    stage.cluster.create_topic(DEAD)
    stage.cluster.write(SOURCE, [*orders(client, [ORDER]), UNKNOWN])
    producer = stage.producer(value_serializer=AvroSerializer(client(), ORDER))
    consumer = stage.subscribed(value_deserializer=AvroDeserializer(client()))
    with producer.transaction(consumer) as txn:
        known, unknown = stage.collect(consumer, 2)
        txn.produce(SINK, known.value())
        with pytest.raises(InputUnreadableError, match="SR code 40403") as caught:
            unknown.value()
        txn.dead_letter(unknown, caught.value, topic=DEAD)
    assert txn.outcome is Outcome.COMMITTED
    assert pieces(client, stage.cluster.values(SINK)) == [1]
    assert stage.cluster.values(DEAD) == [UNKNOWN]
