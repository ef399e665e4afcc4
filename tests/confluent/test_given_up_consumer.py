"""A consumer that librdkafka has given up because of its group: each of its calls says so, and names the group."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent.call_marks import CallMarks
from eos_client.confluent.consumer.library_consumer import LibraryConsumer
from eos_client.core.model import InputPartition
from eos_client.errors import ClusterUnfitError

ORDERS = InputPartition("orders", 0)


def given_up(reason):
    error = KafkaError(KafkaError._FATAL, f"Fatal error: {reason}")

    def committed(*_):
        raise KafkaException(error)

    settings = {"group.id": "billing", "auto.offset.reset": "earliest"}
    return LibraryConsumer(settings, lambda _: SimpleNamespace(committed=committed), MONOTONIC_CLOCK, CallMarks())


def test_the_group_that_does_not_admit_the_consumer_is_named_where_its_offsets_are_read():
    with pytest.raises(ClusterUnfitError, match=r"group 'billing' does not admit this consumer: committed.. failed"):
        given_up("Broker: The group id does not exist").committed_entries([ORDERS], 1.0)


def test_a_heartbeat_that_is_forbidden_names_the_group_and_the_call():
    with pytest.raises(ClusterUnfitError, match=r"committed.. failed with GROUP_AUTHORIZATION_FAILED.*group 'billing'"):
        given_up("Broker: Group authorization failed").committed_entries([ORDERS], 1.0)


def test_offsets_that_may_not_be_read_just_now_are_asked_for_again():
    consumer = given_up("")

    def forbidden(*_):
        raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))

    consumer.raw = SimpleNamespace(committed=forbidden)
    assert consumer.committed_offsets([ORDERS]) is None
