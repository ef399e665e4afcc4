"""A KIP-848 consumer in a block asks whether its topics exist; what comes in while nobody answers is not dropped."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client import EosConsumer
from eos_client.errors import FatalClientError
from tests.clients.simulated_stage import SINK, SimulatedStage


@pytest.fixture
def stage() -> SimulatedStage:
    return SimulatedStage(partitions=1, records=5)


def without_metadata(consumer: EosConsumer) -> Any:
    """Nobody answers in time."""
    unanswered = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return mock.patch.object(consumer._library.raw, "list_topics", side_effect=unanswered)


@pytest.mark.parametrize("count", [1, 3])
def test_records_are_delivered_while_a_metadata_request_is_unanswered(stage: SimulatedStage, count: int) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.wait_for(consumer.assignment, consumer.adapter.fetching.serve_callbacks)
    stage.cluster.advance(5.0)  # the records are fetched by now, and the topics are to be asked for
    seen: list[int] = []
    with without_metadata(consumer):
        for _ in range(3):
            with producer.transaction(consumer) as txn:
                for message in consumer.consume(count, 0.2):
                    seen.append(message.offset())
                    txn.produce(SINK, message.value())
            stage.cluster.advance(5.0)
    stage.copy_the_rest(producer, consumer)
    assert seen == list(range(len(seen)))
    assert stage.outputs == stage.inputs


def test_a_fatal_error_during_an_unanswered_metadata_request_ends_the_block(stage: SimulatedStage) -> None:
    """Told once: without it the consumer would wait for records for ever, and its blocks would commit nothing."""
    stage.subscribed(group_instance_id="desk-1").consume(1, 1.0)
    consumer, producer = stage.subscribed(group_instance_id="desk-1"), stage.producer()
    stage.cluster.advance(1.0)

    def block() -> None:
        with producer.transaction(consumer):
            for _ in range(3):
                consumer.consume(1, 0.2)

    with without_metadata(consumer), pytest.raises(FatalClientError, match="'desk-1' is in use"):
        block()
