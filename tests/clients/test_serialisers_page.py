"""What docs/how-to/serialisers.md shows runs on the simulated cluster and confluent-kafka's mock of Schema Registry."""

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from eos_client import ExactlyOnceLoop
from tests.clients.simulated_stage import SINK, SOURCE, SimulatedStage

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "serialisers.md").read_text(encoding="utf-8")
LOOP, BLOCK = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ORDER = """
{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, {"name": "pieces", "type": "int"}]}
"""


@pytest.fixture
def stage():
    made = SimulatedStage(partitions=1, records=0)
    made.cluster.create_topic("orders.dead")
    return made


def shown(code) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "billing"}
    exec(code, names)
    return names


def test_the_loop_reads_and_writes_avro_and_dead_letters_what_is_none(stage):
    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    order = AvroSerializer(registry, ORDER)(
        {"id": "A7", "pieces": 3}, SerializationContext(SOURCE, MessageField.VALUE, [])
    )
    stage.cluster.write(SOURCE, [order, b"no Avro"])
    page = shown(LOOP)
    page["ExactlyOnceLoop"] = lambda *args, **options: ExactlyOnceLoop(*args, **options, clients=stage.cluster)
    loop = page["loop"](registry)
    stage.cluster.after(20, loop.stop)
    loop.run()
    (invoice,) = stage.cluster.values(SINK)
    read = AvroDeserializer(registry)(invoice, SerializationContext(SINK, MessageField.VALUE, []))
    assert read == {"order": "A7", "cents": 750}
    assert stage.cluster.values("orders.dead") == [b"no Avro"]


def test_the_block_copies_texts_and_dead_letters_what_is_none(stage):
    stage.cluster.write(SOURCE, [b"one", b"\xff", b"two"])
    page = shown(BLOCK)
    consumer = stage.subscribed(**page["READING"])
    producer = stage.producer(**page["WRITING"])
    stage.wait_for(lambda: len(stage.cluster.values(SINK)) == 2, lambda: page["copy_all"](consumer, producer))
    assert stage.cluster.values(SINK) == [b"one", b"two"]
    assert stage.cluster.values("orders.dead") == [b"\xff"]
