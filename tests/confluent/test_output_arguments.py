"""What is refused before confluent_kafka's ``produce`` gets it."""

from typing import Any

import pytest

from eos_client import EosConfig, EosProducer, ExactlyOnceLoop
from eos_client.confluent.producer.output_arguments import produce_options
from eos_client.errors import OutputRefusedError, TransformError
from eos_client.ports import OutputRecord
from eos_client.testing import SimulatedCluster
from tests.clients.simulated_stage import SINK, SOURCE, SimulatedStage

np = pytest.importorskip("numpy")

HEADERS: list[Any] = [[("\ud800", b"1")], {"\ud800": b"1"}, [("a\0b", b"1")], [(b"a", b"1")], {1: b"a"}, "ab", 42]


@pytest.mark.parametrize("headers", HEADERS, ids=range(len(HEADERS)))
def test_headers_that_end_the_process_or_are_written_as_something_else_are_refused(headers):
    with pytest.raises((TypeError, ValueError)):
        produce_options("bills", OutputRecord(value=b"", headers=headers))


@pytest.mark.parametrize("topic", ["", ".", "..", "no such name!", "x" * 250, "a\0b", "\ud800", b"bills", None])
def test_a_topic_that_no_broker_accepts_is_refused(topic: Any):
    with pytest.raises((TypeError, ValueError), match="the name of a topic"):
        produce_options(topic, OutputRecord(value=b""))


@pytest.mark.parametrize("timestamp_ms", [0, -1, -(2**62), 2**63, True])
def test_a_timestamp_that_would_become_another_one_or_that_kafka_does_not_know_is_refused(timestamp_ms: Any):
    with pytest.raises((TypeError, ValueError), match=f"timestamp_ms.*{timestamp_ms}"):
        produce_options("bills", OutputRecord(value=b"", timestamp_ms=timestamp_ms))


@pytest.mark.parametrize("partition", [True, False, -2])
def test_a_partition_that_is_no_number_of_a_partition_is_refused(partition: Any):
    with pytest.raises((TypeError, ValueError), match=f"partition.*{partition}"):
        produce_options("bills", OutputRecord(value=b"", partition=partition))


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"key": 5}, r"\(key=5\)"),
    ({"value": {"id": 5}}, r"\(value=\{'id': 5\}\)"),
    ({"value": "\ud800"}, r"\(value='\\ud800'\)"),
    ({"partition": "1"}, "partition must be a whole number, not '1'"),
    ({"partition": 2**40}, "partition=1099511627776 is no number of a partition"),
    (
        {"partition": 99},
        r"the output \(topic 'invoices', partition 99, 3 bytes\) cannot be written: .*UNKNOWN_PARTITION",
    ),
    ({"timestamp_ms": "1"}, "timestamp_ms must be a whole number, not '1'"),
    ({"timestamp_ms": 1.5}, "timestamp_ms must be a whole number, not 1.5"),
    ({"headers": 5}, "headers must be a mapping, or a sequence of .* not int"),
    (
        {"value": b"x" * 2_000_000},
        r"\(topic 'invoices', 2000002 bytes\) cannot be written: .*set message.max.bytes of this",
    ),
]


@pytest.mark.parametrize(("wrong", "words"), UNFIT, ids=[str(wrong)[:30] for wrong, _ in UNFIT])
def test_an_output_that_cannot_be_written_is_refused_by_the_name_and_value_of_what_is_wrong(wrong, words):
    stage = SimulatedStage()
    output = OutputRecord(SINK, **{"value": b"v", "key": b"ke", **wrong})
    loop = ExactlyOnceLoop(
        EosConfig({"bootstrap.servers": "simulated"}, group_id="g"), [SOURCE], lambda _: [output], clients=stage.cluster
    )
    stage.cluster.after(60.0, loop.stop)
    with loop, pytest.raises(TransformError, match=words) as failed:
        loop.run()
    assert isinstance(failed.value.__cause__, OutputRefusedError)


def test_what_is_given_is_passed_on():
    record = OutputRecord(value=b"", headers={"a": b"1", "ü": None}, partition=0, timestamp_ms=1)
    passed = {"headers": [("a", b"1"), ("ü", None)], "partition": 0, "timestamp": 1}
    assert produce_options("x" * 249, record) == passed
    assert produce_options("bills", OutputRecord(value=b"")) == {}


TEXT: Any = [("text", "a\0b"), ("bytes", b"a\0b"), ("null", None)]
AS_BYTES = (("text", b"a\0b"), ("bytes", b"a\0b"), ("null", None))


def named(producer, headers):
    producer.produce(SINK, b"1", headers=headers)


def unnamed(producer, headers):
    producer.produce(SINK, b"1", None, -1, None, None, 0, headers)


@pytest.fixture
def stage():
    return SimulatedStage(records=1, partitions=1)


@pytest.mark.parametrize("produce", [named, unnamed])
@pytest.mark.parametrize("headers", [TEXT, dict(TEXT)], ids=["pairs", "mapping"])
def test_a_header_s_text_with_a_nul_is_written_whole(stage, produce, headers):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        produce(producer, headers)
        txn.produce(SINK, b"2", headers=headers)
    assert [record.headers for record in stage.cluster.read(SINK)] == [AS_BYTES] * 2
    assert list(TEXT[0]) == ["text", "a\0b"], "what the application has given is not changed"


def test_a_loop_writes_a_header_s_text_whole():
    cluster = SimulatedCluster(seed=1)
    for topic in ("orders", SINK):
        cluster.create_topic(topic)
    cluster.write("orders", [b"1"])
    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing")
    loop = ExactlyOnceLoop(config, ["orders"], lambda _: OutputRecord(SINK, value=b"", headers=TEXT), clients=cluster)
    cluster.after(10, loop.stop)
    loop.run()
    assert [record.headers for record in cluster.read(SINK)] == [AS_BYTES]


@pytest.mark.parametrize("produce", [named, unnamed])
@pytest.mark.parametrize("headers", HEADERS, ids=range(len(HEADERS)))
def test_a_producer_refuses_such_headers_in_a_block_and_outside_and_goes_on(stage, produce, headers):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer):
        with pytest.raises((TypeError, ValueError), match=r"header|surrogates"):
            produce(producer, headers)
        producer.produce(SINK, b"2", headers=None)
    plain = EosProducer({"bootstrap.servers": "simulated"}, factory=stage.cluster.producer, clock=stage.cluster.clock)
    with pytest.raises((TypeError, ValueError), match=r"header|surrogates"):
        produce(plain, headers)
    assert plain.flush() == 0
    assert stage.cluster.values(SINK) == [b"2"]


BUFFERS = {"bytearray": bytearray, "memoryview": memoryview, "every other": lambda text: memoryview(text * 2)[::4]}


@pytest.mark.parametrize("make", BUFFERS.values(), ids=BUFFERS)
def test_a_block_writes_the_bytes_of_a_buffer(stage, make):
    given = make(b"1" * 4)
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        txn.produce(SINK, given, given)
        producer.produce(SINK, given, given)
        producer.produce(SINK, value=given, key=given)
    written = [(record.key, record.value) for record in stage.cluster.read(SINK)]
    assert written == [(bytes(given), bytes(given))] * 3


OBJECTS = np.array([b"1", 2], dtype=object)


@pytest.mark.parametrize("given", [{"value": OBJECTS}, {"value": b"", "key": OBJECTS}], ids=["value", "key"])
def test_a_block_refuses_an_array_of_objects_of_which_their_addresses_would_be_written(stage, given):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        with pytest.raises(OutputRefusedError, match="is an array of objects: serialise it to bytes"):
            txn.produce(SINK, **given)
        with pytest.raises(TypeError, match="is an array of objects"):
            producer.produce(SINK, **given)
        with pytest.raises(TypeError, match="is an array of objects"):
            producer.produce(SINK, *given.values())
        txn.produce(SINK, b"2")
    assert stage.cluster.values(SINK) == [b"2"]


def test_a_serialiser_takes_an_array_of_objects(stage):
    producer, consumer = stage.producer(**{"value.serializer": lambda given, _: b"%d" % len(given)}), stage.subscribed()
    with producer.transaction(consumer) as txn:
        txn.produce(SINK, OBJECTS)
    assert stage.cluster.values(SINK) == [b"2"]
