"""Deserialised records where confluent_kafka itself is given them."""

from confluent_kafka import Message, TopicPartition
from confluent_kafka.serialization import StringDeserializer

from eos_client import EosConsumer
from eos_client.confluent.serialisation import Deserializers


def test_the_client_library_stores_the_offset_of_a_deserialised_record():
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "billing", "enable.auto.offset.store": False}
    with EosConsumer(settings | {"log_level": 0}) as consumer:
        consumer.assign([TopicPartition("orders", 0, 0)])
        message = Message(topic="orders", partition=0, offset=7, value=b"four", leader_epoch=1)
        record = Deserializers(None, StringDeserializer()).record(message)
        assert record.value() == "four"
        consumer.store_offsets(record)
