"""An abort whose epoch bump is requested twice, the second time of a coordinator that was just loaded."""

from __future__ import annotations

import pytest

from eos_client import Outcome
from eos_client.errors import AbortableError, ProducerFencedError
from tests.clients.simulated_stage import SINK, SimulatedStage

REQUEST_TIMEOUT_S = 1.0


@pytest.fixture
def stage() -> SimulatedStage:
    return SimulatedStage(request_timeout_s=REQUEST_TIMEOUT_S)


def test_a_block_goes_on_although_its_own_second_request_was_refused_as_an_older_producers(
    stage: SimulatedStage,
) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        stage.cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
        stage.cluster.lose_reply("InitProducerId")
        stage.cluster.after(REQUEST_TIMEOUT_S / 2, stage.cluster.restart_coordinator)
    assert txn.outcome is Outcome.ABORTED
    (rebuilt,) = stage.named("producer_rebuilt")
    assert "requested the epoch bump more than once" in rebuilt.reason
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_another_instance_that_fences_an_abort_is_still_told_apart(stage: SimulatedStage) -> None:
    producer = stage.producer()
    producer.begin_transaction()
    producer.produce(SINK, b"never committed")
    stage.cluster.refuse("Produce", "UNKNOWN_PRODUCER_ID")
    with pytest.raises(AbortableError):
        producer.commit_transaction()
    stage.cluster.fence_producer()
    with pytest.raises(ProducerFencedError):
        producer.abort_transaction()
