"""Records that an application holds outside blocks may come again: then its next block ends as ABORTED."""

from __future__ import annotations

from typing import Any

import pytest

from eos_client import EosProducer, Outcome
from eos_client.clients.transaction_block import Transaction
from tests.clients.simulated_stage import SINK, SimulatedStage
from tests.support.interception import close_the_gate
from tests.support.protocols import PROTOCOLS


@pytest.fixture(params=PROTOCOLS)
def stage(request: Any) -> SimulatedStage:
    return SimulatedStage(request.param, records=4, partitions=1)


def write_again(producer: EosProducer, consumer: Any, taken: list[Any]) -> Transaction:
    """A block that writes what the application has taken before."""
    with producer.transaction(consumer) as txn:
        for record in taken:
            txn.produce(SINK, record.value())
    return txn


def hold(stage: SimulatedStage, producer: Any, consumer: Any) -> None:
    """Leave a block with one record while the gate is closed."""
    with producer.transaction(consumer) as held:
        for record in stage.collect(consumer, 1):
            held.produce(SINK, record.value())
        close_the_gate(consumer)
    assert held.outcome is Outcome.SKIPPED


def take_before_any_session(stage: SimulatedStage, consumer: Any) -> tuple[Any, list[Any]]:
    taken = stage.collect(consumer, 2)
    stage.lost(consumer)
    return stage.producer(), taken


def take_for_a_declared_session(stage: SimulatedStage, consumer: Any) -> tuple[Any, list[Any]]:
    producer = stage.producer()
    producer.transaction(consumer)
    taken = stage.collect(consumer, 2)
    stage.lost(consumer)
    return producer, taken


def take_after_a_close(stage: SimulatedStage, consumer: Any) -> tuple[Any, list[Any]]:
    first = stage.producer()
    first.transaction(consumer)
    first.close()
    return take_before_any_session(stage, consumer)


def take_while_a_transaction_is_held_and_close(stage: SimulatedStage, consumer: Any) -> tuple[Any, list[Any]]:
    first = stage.producer()
    hold(stage, first, consumer)
    taken = stage.collect(consumer, 1)
    first.close()
    return stage.producer(), taken


@pytest.mark.parametrize(
    "take",
    [
        take_before_any_session,
        take_for_a_declared_session,
        take_after_a_close,
        take_while_a_transaction_is_held_and_close,
    ],
)
def test_the_next_block_ends_as_aborted_and_the_records_come_again(stage: SimulatedStage, take: Any) -> None:
    consumer = stage.subscribed()
    producer, taken = take(stage, consumer)
    assert taken
    assert write_again(producer, consumer, taken).outcome is Outcome.ABORTED
    stage.cluster.rebalance()  # after which the gate is open
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_another_producer_goes_on_where_nothing_was_taken_between_blocks(stage: SimulatedStage) -> None:
    consumer, first = stage.subscribed(), stage.producer()
    hold(stage, first, consumer)
    first.close()
    stage.cluster.rebalance()
    second = stage.producer()
    taken = stage.collect(consumer, 1)
    assert write_again(second, consumer, taken).outcome is not Outcome.ABORTED
    stage.copy_the_rest(second, consumer)
    assert stage.outputs == stage.inputs
