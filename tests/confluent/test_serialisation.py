"""Deserialised records where confluent_kafka itself is given them."""

import pytest
from confluent_kafka import Message, TopicPartition
from confluent_kafka.serialization import StringDeserializer

from eos_client import EosConsumer
from eos_client.confluent.serialisation import Deserializers, Serializers
from eos_client.errors import InputUnreadableError, OutputNotSerializedError


def test_the_client_library_stores_the_offset_of_a_deserialised_record():
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "billing", "enable.auto.offset.store": False}
    with EosConsumer(settings | {"log_level": 0}) as consumer:
        consumer.assign([TopicPartition("orders", 0, 0)])
        message = Message(topic="orders", partition=0, offset=7, value=b"four", leader_epoch=1)
        record = Deserializers(None, StringDeserializer()).record(message)
        assert record.value() == "four"
        consumer.store_offsets(record)


class UntellableError(ValueError):
    def __str__(self):
        raise RuntimeError("not loaded")


@pytest.mark.parametrize("cause", [ValueError("half \ud800"), ValueError("a\0b"), UntellableError()], ids=repr)
def test_an_error_of_a_serialiser_is_told_whatever_its_text(cause):
    def fails(_content, _context):
        raise cause

    with pytest.raises(OutputNotSerializedError, match="cannot be serialised by fails: ") as refused:
        Serializers(None, fails).apply("invoices", None, b"v", None)
    with pytest.raises(InputUnreadableError, match="cannot be deserialised by fails: ") as unread:
        Deserializers(None, fails).record(Message(topic="orders", partition=0, offset=7, value=b"v")).value()
    for error in (refused.value, unread.value):
        assert error.__cause__ is vars(error)["exception"] is cause
