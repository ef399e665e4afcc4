"""Topics and patterns that cannot be subscribed are named, before or when the client library refuses them."""

from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, KafkaException

from eos_client import EosConfig, EosConsumer, ExactlyOnceLoop
from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.failures import exit_code_of
from eos_client.errors import ConfigurationError

KAFKA = {"bootstrap.servers": "127.0.0.1:1", "group.id": "billing"}


@pytest.fixture(params=[Consumer, EosConsumer], ids=["confluent_kafka", "eos_client"])
def consumer(request):
    made = request.param({**KAFKA, "log_level": 0})
    yield made
    made.close()


@pytest.mark.parametrize("topic", [None, 5, b"a", UUID(int=1)], ids=str)
def test_names_that_are_no_text_are_taken_as_confluent_kafka_takes_them(consumer, topic):
    consumer.subscribe([topic])


@pytest.mark.parametrize("topics", [["^["], [""]], ids=str)
def test_what_librdkafka_refuses_is_refused_by_its_name(topics):
    consumer = EosConsumer({**KAFKA, "log_level": 0})
    with pytest.raises(ConfigurationError) as refused:
        consumer.subscribe(topics)
    consumer.close()
    assert f"topics={topics!r} cannot be subscribed" in str(refused.value)
    assert isinstance(refused.value, KafkaException)
    assert exit_code_of(refused.value) is ExitCode.CONFIGURATION


NO_NAMES: list[Any] = [[None], [b"a"], ["orders", ""], [5]]


@pytest.mark.parametrize("topics", NO_NAMES, ids=str)
def test_a_loop_is_not_made_with_topics_that_have_no_name(topics):
    with pytest.raises(ConfigurationError, match=r"must be a list of names; .* is none"):
        ExactlyOnceLoop(EosConfig({"bootstrap.servers": "127.0.0.1:1"}, group_id="billing"), topics, lambda _: [])
