"""While a producer is rebuilt or an outcome is read, the consumer is polled: its group does not wait, nor evict it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from eos_client import Outcome
from tests.simulation.simulated_stage import SINK, SimulatedStage
from tests.support.protocols import PROTOCOLS

INTERVAL_MS, SLOW_S, SOON_S = 50_000, 120.0, 10.0


def slow_init_after(stage: SimulatedStage, lose: Callable[[str], None], request: str) -> None:
    """Let ``request`` fail so that the handle ends, and let its successor's init be unanswered for `SLOW_S`."""
    for _ in range(300):
        lose(request)
        stage.cluster.lose_request("InitProducerId")
    stage.cluster.after(SLOW_S, stage.cluster.faults.withdraw)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("takes_effect", [False, True], ids=["commit lost", "answer lost"])
@pytest.mark.parametrize("is_revoked", [False, True], ids=["stays", "partition leaves"])
def test_a_member_outlives_a_rebuild_that_is_longer_than_its_poll_interval(
    protocol: str, *, takes_effect: bool, is_revoked: bool
) -> None:
    stage = SimulatedStage(protocol, request_timeout_s=1.0)
    consumer = stage.subscribed(max_poll_interval_ms=INTERVAL_MS)
    producer = stage.producer(recovery_timeout_s=600.0)
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        producer.flush(5.0)
        lose = stage.cluster.lose_reply if takes_effect else stage.cluster.lose_request
        slow_init_after(stage, lose, "EndTxn")
        if is_revoked:
            stage.cluster.after(SLOW_S - 20.0, lambda: stage.cluster.revoke((stage.source, 1)))
            stage.cluster.after(SLOW_S + 30.0, stage.cluster.give_back)
    assert txn.outcome is (Outcome.COMMITTED if takes_effect else Outcome.ABORTED)
    assert len(stage.named("producer_rebuilt")) == 1
    assert stage.outputs == (stage.inputs if takes_effect else [])
    stage.copy_the_rest(producer, consumer)
    assert stage.named("partitions_lost") == []
    assert stage.outputs == stage.inputs


def test_a_member_is_polled_while_the_offsets_that_show_an_outcome_cannot_be_read() -> None:
    stage = SimulatedStage(request_timeout_s=1.0)
    consumer = stage.subscribed(max_poll_interval_ms=INTERVAL_MS)
    producer = stage.producer(recovery_timeout_s=600.0)
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        for _ in range(300):
            stage.cluster.lose_reply("EndTxn")
            stage.cluster.lose_request("OffsetFetch")
        stage.cluster.after(SLOW_S, stage.cluster.faults.withdraw)
    assert txn.outcome is Outcome.COMMITTED
    stage.load(1)
    stage.copy_the_rest(producer, consumer)
    assert stage.named("partitions_lost") == []
    assert stage.outputs == stage.inputs


def withhold_ids(stage: SimulatedStage) -> None:
    """Leave every init unanswered for `SLOW_S`."""
    for _ in range(300):
        stage.cluster.lose_request("InitProducerId")
    stage.cluster.after(SLOW_S, stage.cluster.faults.withdraw)


def let_a_partition_leave_soon(stage: SimulatedStage) -> list[int]:
    """Let another member ask for a partition early in the outage; returns where it is noted whether it left by then."""
    left: list[int] = []
    stage.cluster.after(SOON_S, lambda: stage.cluster.revoke((stage.source, 1)))
    stage.cluster.after(2 * SOON_S, lambda: left.append(len(stage.named("partitions_revoked"))))
    stage.cluster.after(SLOW_S + 30.0, stage.cluster.give_back)
    return left


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_partition_leaves_a_member_whose_abort_takes_longer_than_its_poll_interval(protocol: str) -> None:
    stage = SimulatedStage(protocol, request_timeout_s=1.0)
    consumer = stage.subscribed(max_poll_interval_ms=INTERVAL_MS)
    producer = stage.producer(recovery_timeout_s=600.0)
    txn = producer.transaction(consumer)
    left = let_a_partition_leave_soon(stage)
    with contextlib.suppress(ArithmeticError), txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        producer.flush(5.0)
        for _ in range(300):
            stage.cluster.lose_request("EndTxn")
        withhold_ids(stage)
        raise ArithmeticError
    assert txn.outcome is Outcome.ABORTED
    assert left == [1]
    stage.copy_the_rest(producer, consumer)
    assert stage.named("partitions_lost") == []
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_partition_leaves_a_member_whose_handle_has_lost_a_connection_and_is_replaced(protocol: str) -> None:
    stage = SimulatedStage(protocol, request_timeout_s=1.0)
    consumer = stage.subscribed(max_poll_interval_ms=INTERVAL_MS)
    producer = stage.producer(recovery_timeout_s=600.0)
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        producer.flush(5.0)
        stage.cluster.lose_reply("EndTxn")
        withhold_ids(stage)
        left = let_a_partition_leave_soon(stage)
    assert txn.outcome is Outcome.COMMITTED
    assert left == [1]
    (rebuilt,) = stage.named("producer_rebuilt")
    assert rebuilt.cause == "connection_lost"
    stage.load(1)
    stage.copy_the_rest(producer, consumer)
    assert stage.named("partitions_lost") == []
    assert stage.outputs == stage.inputs
