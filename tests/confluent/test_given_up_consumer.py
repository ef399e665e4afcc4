"""A consumer that librdkafka has given up because of its group: each of its calls says so, and names the group."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent.consumer.library_consumer import LibraryConsumer
from eos_client.core.model import InputPartition
from eos_client.errors import ClusterUnfitError, FatalClientError

ORDERS = InputPartition("orders", 0)


def given_up(reason):
    error = KafkaError(KafkaError._FATAL, f"Fatal error: {reason}")

    def committed(*_):
        raise KafkaException(error)

    settings = {"group.id": "billing", "auto.offset.reset": "earliest"}
    return LibraryConsumer(settings, lambda _: SimpleNamespace(committed=committed), MONOTONIC_CLOCK)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("Broker: Consumer group has reached maximum size", ClusterUnfitError),
        ("Static consumer fenced by other consumer with same group.instance.id", FatalClientError),
    ],
)
def test_no_later_call_is_promised_where_the_offsets_of_a_consumer_that_was_given_up_are_read(reason, kind):
    with pytest.raises(kind, match=reason) as caught:
        given_up(reason).stable_or_raise([ORDERS], 1.0)
    assert "go on with the same clients" not in str(caught.value)
