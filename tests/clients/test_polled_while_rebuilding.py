"""While a producer is rebuilt or an outcome is read, the consumer is polled: its group does not wait, nor evict it."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from eos_client import EosConsumer, EosProducer, Outcome, errors
from eos_client.clients.transaction_block import Transaction
from eos_client.clients.transaction_session import TransactionSession
from eos_client.testing.simulator.brokers.model import OffsetAndMetadata, PartitionKey
from tests.clients.simulated_stage import GROUP, SINK, SimulatedStage
from tests.support.protocols import PROTOCOLS

INTERVAL_MS, SLOW_S, SOON_S = 50_000, 120.0, 10.0


def write_outputs(stage: SimulatedStage, consumer: EosConsumer, producer: EosProducer, txn: Transaction) -> None:
    """Copy four records, and deliver their outputs."""
    for record in stage.collect(consumer, 4):
        txn.produce(SINK, record.value())
    producer.flush(5.0)


def withhold_ids(stage: SimulatedStage, seconds: float = SLOW_S) -> None:
    """Leave every init unanswered for so long."""
    for _ in range(300):
        stage.cluster.lose_request("InitProducerId")
    stage.cluster.after(seconds, stage.cluster.faults.withdraw)


def let_a_partition_leave_soon(stage: SimulatedStage) -> list[int]:
    """Let another member ask for a partition early in the outage; returns where it is noted whether it left by then."""
    left: list[int] = []
    stage.cluster.after(SOON_S, lambda: stage.cluster.revoke((stage.source, 1)))
    stage.cluster.after(2 * SOON_S, lambda: left.append(len(stage.named("partitions_revoked"))))
    stage.cluster.after(SLOW_S + 30.0, stage.cluster.give_back)
    return left


def others_commit_everything(stage: SimulatedStage) -> None:
    """Let the group's offsets of every partition be ones that another client has committed."""
    offsets = {PartitionKey(stage.source, number): OffsetAndMetadata(99) for number in range(stage.partitions)}
    stage.cluster.brokers.groups.offsets.commit(GROUP, offsets)


def commit_with_a_lost_connection(
    stage: SimulatedStage, consumer: EosConsumer, producer: EosProducer
) -> tuple[Transaction, list[int]]:
    """Commit a block whose handle is replaced slowly afterwards, while another member asks for a partition."""
    with producer.transaction(consumer) as txn:
        write_outputs(stage, consumer, producer, txn)
        stage.cluster.lose_reply("EndTxn")
        withhold_ids(stage)
        left = let_a_partition_leave_soon(stage)
    return txn, left


@pytest.mark.in_turn(2)
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
        write_outputs(stage, consumer, producer, txn)
        lose = stage.cluster.lose_reply if takes_effect else stage.cluster.lose_request
        for _ in range(300):
            lose("EndTxn")
        withhold_ids(stage)
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


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_partition_leaves_a_member_whose_abort_takes_longer_than_its_poll_interval(protocol: str) -> None:
    stage = SimulatedStage(protocol, request_timeout_s=1.0)
    consumer = stage.subscribed(max_poll_interval_ms=INTERVAL_MS)
    producer = stage.producer(recovery_timeout_s=600.0)
    txn = producer.transaction(consumer)
    left = let_a_partition_leave_soon(stage)
    with contextlib.suppress(ArithmeticError), txn:
        write_outputs(stage, consumer, producer, txn)
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
    txn, left = commit_with_a_lost_connection(stage, consumer, producer)
    assert txn.outcome is Outcome.COMMITTED
    assert left == [1]
    (rebuilt,) = stage.named("producer_rebuilt")
    assert rebuilt.cause == "connection_lost"
    stage.load(1)
    stage.copy_the_rest(producer, consumer)
    assert stage.named("partitions_lost") == []
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("kind", [errors.RetriableError, errors.AbortableError, ValueError])
def test_what_a_callback_raises_while_a_handle_is_replaced_comes_out_as_it_is(kind: type[Exception]) -> None:
    stage = SimulatedStage(request_timeout_s=1.0)
    consumer, producer = stage.consumer(), stage.producer(recovery_timeout_s=600.0)

    def on_revoke(*_: object) -> None:
        raise kind("of the callback")

    consumer.subscribe([stage.source], on_revoke=on_revoke)
    with pytest.raises(kind, match=r"^of the callback$"):
        commit_with_a_lost_connection(stage, consumer, producer)


@pytest.mark.parametrize(("request_", "outage_s"), [("OffsetFetch", 52.0), ("InitProducerId", 46.0)])
def test_a_failure_of_a_callback_that_asks_for_an_outcome_ends_with_the_outcome(request_: str, outage_s: float) -> None:
    stage = SimulatedStage(request_timeout_s=1.0)
    consumer, producer = stage.subscribed(), stage.producer(recovery_timeout_s=30.0)
    with producer.transaction(consumer) as txn:
        write_outputs(stage, consumer, producer, txn)
        for _ in range(300):
            stage.cluster.lose_reply("EndTxn")
            stage.cluster.lose_request(request_)
        stage.cluster.after(outage_s, stage.cluster.faults.withdraw)
        stage.cluster.after(10.0, lambda: stage.cluster.revoke((stage.source, 1)))
    assert txn.outcome is Outcome.COMMITTED
    with producer.transaction(consumer):
        consumer.consume(10, 0.2)


def test_nothing_is_polled_inside_a_call_that_commits_the_start_of_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = SimulatedStage(request_timeout_s=1.0)
    consumer, producer = stage.consumer(auto_offset_reset="latest"), stage.producer(recovery_timeout_s=600.0)
    commit_starts, allowed = TransactionSession.commit_starts, threading.Event()

    def committing(session: TransactionSession, *arguments: Any) -> str | None:
        if not allowed.is_set() or session.consumer.membership.in_callback:
            return "not allowed yet"
        stage.cluster.lose_reply("EndTxn")
        withhold_ids(stage, 2 * SOON_S)
        return commit_starts(session, *arguments)

    monkeypatch.setattr(TransactionSession, "commit_starts", committing)
    consumer.subscribe([stage.source])
    with producer.transaction(consumer):
        stage.wait_for(consumer.assignment, lambda: consumer.consume(10, 0.5))
    allowed.set()
    stage.load(3)
    stage.copy_until(producer, consumer, lambda: len(stage.outputs) >= 6)
    assert stage.outputs == stage.inputs[2:5] + stage.inputs[7:10]


def test_a_member_is_polled_while_an_interrupted_commit_of_starts_is_made_good() -> None:
    stage = SimulatedStage(request_timeout_s=1.0, records=1, partitions=2)
    consumer = stage.subscribed(max_poll_interval_ms=INTERVAL_MS, auto_offset_reset="latest")
    producer = stage.producer(recovery_timeout_s=600.0)
    for _ in range(300):
        stage.cluster.lose_request("EndTxn")
    withhold_ids(stage)
    left = let_a_partition_leave_soon(stage)
    with producer.transaction(consumer):
        consumer.consume(1, 1.0)
    assert left == [1]
    assert stage.named("partitions_lost") == []


def test_an_outcome_that_a_revocation_could_not_find_meanwhile_is_not_told_as_the_last_ones() -> None:
    stage = SimulatedStage(request_timeout_s=1.0)
    consumer, producer = stage.subscribed(max_poll_interval_ms=INTERVAL_MS), stage.producer(recovery_timeout_s=600.0)
    with producer.transaction(consumer) as before:
        before.produce(SINK, b"before")

    def block(txn: Transaction) -> None:
        with txn:
            write_outputs(stage, consumer, producer, txn)
            for _ in range(300):
                stage.cluster.lose_reply("EndTxn")
            withhold_ids(stage)
            stage.cluster.after(SLOW_S - 20.0, lambda: stage.cluster.revoke((stage.source, 1)))
            stage.cluster.after(SLOW_S + 0.5, lambda: others_commit_everything(stage))

    txn = producer.transaction(consumer)
    with pytest.raises(errors.UnknownOutcomeError, match="have changed the offsets"):
        block(txn)
    assert stage.named("partitions_revoked")
    assert (before.outcome, txn.outcome) == (Outcome.COMMITTED, None)
