"""What the client library raises while init_transactions() flushes earlier records is named like every other error."""

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from eos_client import EosProducer
from eos_client.errors import FatalClientError
from tests.support.interception import intercepting


def raise_fenced(raw, timeout):
    raise KafkaException(KafkaError(KafkaError.PRODUCER_FENCED, "a newer one", fatal=True))


def test_a_fatal_error_while_earlier_records_are_flushed_is_one_of_ours():
    producer = EosProducer(
        {"bootstrap.servers": "127.0.0.1:1"},
        factory=intercepting(Producer, flush=raise_fenced),
        hook=lambda event: None,
    )
    with pytest.raises(FatalClientError):
        producer.init_transactions(0.3)


def test_another_call_does_not_drop_what_was_produced_before():
    producer = EosProducer(
        {"bootstrap.servers": "127.0.0.1:1"},
        factory=intercepting(Producer, flush=raise_fenced),
        hook=lambda event: None,
    )
    for _ in range(2):
        with pytest.raises(FatalClientError):
            producer.init_transactions(0.3)
