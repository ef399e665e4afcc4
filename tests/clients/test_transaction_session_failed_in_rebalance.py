"""A commit or an abort that fails inside a rebalance callback, which cannot raise it: the next call goes on from it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eos_client import EosProducer, Outcome
from eos_client.core.commit_gate import GateSettings
from eos_client.errors import (
    ClusterUnavailableError,
    ClusterUnfitError,
    EosError,
    TransactionStateError,
    UnknownOutcomeError,
)
from tests.clients.simulated_stage import SINK, SOURCE, SimulatedStage
from tests.clients.test_pending_in_a_rebalance import NOBODY
from tests.clients.test_transaction_session_unknown_commit import (
    BOTH_WAYS,
    RECOVERY_S,
    REQUEST_S,
    left_unknown,
    next_commit_is_unanswered,
    resolved,
)
from tests.interruption import BrokenOffError
from tests.support.protocols import COOPERATIVE, EAGER, PROTOCOLS

CLASSIC = [EAGER, COOPERATIVE]  # KIP-848: EPOCH_MOVED_BEFORE_REVOKE aborts instead of a commit in the callback


@pytest.fixture(params=PROTOCOLS)
def stage(request: Any) -> SimulatedStage:
    return SimulatedStage(request.param, request_timeout_s=REQUEST_S)


def refuse_the_offsets(stage: SimulatedStage) -> None:
    """The next commit is refused before it is sent, for a reason that no abort fixes."""
    stage.cluster.refuse("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED")


def until_revoked_between_blocks(stage: SimulatedStage, consumer: Any) -> list[Any]:
    """Poll outside a block until partition 1 has left; returns the records that came, as an application has them."""
    records: list[Any] = []

    def poll() -> None:
        with suppress(EosError):
            records.extend(consumer.consume(10, 0.5))

    stage.cluster.revoke((SOURCE, 1))
    stage.cluster.advance(5.0)
    stage.load(2)
    stage.wait_for(lambda: stage.named("partitions_revoked"), poll)
    return records


def write_in_a_block(producer: EosProducer, consumer: Any, records: list[Any]) -> None:
    with suppress(EosError), producer.transaction(consumer) as txn:
        for record in records:
            txn.produce(SINK, record.value())


def goes_on(stage: SimulatedStage, producer: EosProducer, consumer: Any) -> bool:
    """Whether every record is copied once by a program that enters the next block whatever the last one has raised."""
    stage.cluster.give_back()

    def one_block() -> None:
        with suppress(EosError), producer.transaction(consumer) as txn:
            for message in consumer.consume(10, 0.2):
                txn.produce(SINK, message.value())

    stage.wait_for(lambda: sum(stage.cluster.committed().values()) == 2 * stage.written, one_block)
    return bool(stage.outputs == stage.inputs)


@pytest.mark.parametrize("protocol", CLASSIC)
def test_the_call_in_whose_rebalance_a_commit_fails_raises_it_and_the_next_block_goes_on(protocol: str) -> None:
    stage = SimulatedStage(protocol)
    producer, consumer = stage.producer(), stage.subscribed()
    stage.hold(producer, consumer)
    refuse_the_offsets(stage)
    stage.cluster.revoke((SOURCE, 1))
    stage.cluster.advance(5.0)
    stage.load(2)
    with pytest.raises(ClusterUnfitError, match="GROUP_AUTHORIZATION_FAILED"):
        consumer.consume(10, 0.5)
    assert stage.named("partitions_revoked")
    assert stage.outputs == []
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 4):
            txn.produce(SINK, message.value())
    assert txn.outcome is Outcome.COMMITTED
    assert [event.records_in for event in stage.named("transaction_aborted")] == [4]
    assert goes_on(stage, producer, consumer)


@pytest.mark.parametrize("protocol", CLASSIC)
def test_a_block_raises_what_has_failed_in_the_rebalance_at_its_end(protocol: str) -> None:
    stage = SimulatedStage(protocol)
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)

    def block() -> None:
        with txn:
            for message in stage.collect(consumer, 4):
                txn.produce(SINK, message.value())
            stage.cluster.revoke((SOURCE, 1))
            stage.cluster.advance(5.0)
            refuse_the_offsets(stage)

    with pytest.raises(ClusterUnfitError, match="GROUP_AUTHORIZATION_FAILED"):
        block()
    assert stage.named("partitions_revoked")
    assert goes_on(stage, producer, consumer)
    assert txn.outcome is Outcome.ABORTED


@pytest.mark.parametrize("protocol", CLASSIC)
def test_an_abort_in_the_rebalance_at_the_end_of_a_block_is_not_told_by_the_next_one(protocol: str) -> None:
    stage = SimulatedStage(protocol)
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as ended:
        for message in stage.collect(consumer, 4):
            ended.produce(SINK, message.value())
        stage.cluster.revoke((SOURCE, 1))
        stage.cluster.advance(5.0)
        stage.cluster.refuse("TxnOffsetCommit", "UNKNOWN_MEMBER_ID")
    with producer.transaction(consumer) as following:
        pass
    assert (ended.outcome, following.outcome) == (Outcome.ABORTED, Outcome.COMMITTED)
    assert stage.named("partitions_revoked")


@BOTH_WAYS
def test_records_of_a_call_whose_rebalance_leaves_the_end_open_are_written_once(
    stage: SimulatedStage, arrives: bool
) -> None:
    producer = stage.producer(recovery_timeout_s=RECOVERY_S)
    consumer = stage.subscribed()
    stage.hold(producer, consumer)
    next_commit_is_unanswered(stage, arrives=arrives)
    records = until_revoked_between_blocks(stage, consumer)
    write_in_a_block(producer, consumer, records)
    assert goes_on(stage, producer, consumer)


def commit_for_another_member(stage: SimulatedStage, offset: int) -> None:
    """Another member has taken the records over, and has committed both partitions up to there."""
    other = stage.cluster.producer({"bootstrap.servers": "simulated", "transactional.id": "other"})
    other.init_transactions(5)
    other.begin_transaction()
    other.send_offsets_to_transaction([TopicPartition(SOURCE, p, offset) for p in range(2)], NOBODY, 5)
    other.commit_transaction(5)


def test_an_outcome_that_a_rebalance_cannot_find_is_told_by_the_next_block_and_counts_as_no_abort() -> None:
    stage = SimulatedStage(COOPERATIVE)
    producer, consumer = stage.producer(), stage.subscribed()
    stage.hold(producer, consumer)
    stage.cluster.revoke((SOURCE, 1))
    for _ in range(20):
        stage.cluster.lose_request("EndTxn", "producer-1")
    stage.cluster.after(1.0, lambda: commit_for_another_member(stage, 3))
    stage.wait_for(lambda: stage.named("partitions_revoked"), lambda: consumer.poll(0.1))
    assert resolved(stage) == ["unknown"]
    with pytest.raises(UnknownOutcomeError, match="have changed the offsets"):
        producer.transaction(consumer).__enter__()
    with producer.transaction(consumer) as following:
        pass
    assert following.outcome is Outcome.COMMITTED
    assert (stage.named("transaction_aborted"), producer.counters.aborted) == ([], 0)


def raising(*_: Any) -> None:
    raise ZeroDivisionError


def test_held_work_is_aborted_inside_an_on_revoke_that_raises_and_the_next_block_says_so(stage: SimulatedStage) -> None:
    producer, consumer = stage.producer(), stage.subscribed(callbacks={"on_revoke": raising})
    stage.hold(producer, consumer)
    stage.cluster.revoke((SOURCE, 1))
    with pytest.raises(ZeroDivisionError):
        stage.wait_for(lambda: False, lambda: consumer.poll(0.1))
    (aborted,) = stage.named("transaction_aborted")
    assert "the application's on_revoke raised ZeroDivisionError" in aborted.reason
    with producer.transaction(consumer) as txn:
        pass
    assert txn.outcome is Outcome.ABORTED
    assert "the application's on_revoke raised ZeroDivisionError" in txn.reason


def test_an_on_revoke_that_raises_for_another_topic_leaves_the_block_open() -> None:
    stage = SimulatedStage(COOPERATIVE)
    stage.cluster.create_topic("refunds", 1)
    producer, consumer = stage.producer(), stage.consumer()
    consumer.subscribe([SOURCE, "refunds"], on_revoke=raising)
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        stage.cluster.revoke(("refunds", 0))
        stage.cluster.advance(5.0)
        with pytest.raises(ZeroDivisionError):
            consumer.adapter.fetching.serve_callbacks(drain=True)
    assert txn.outcome is not Outcome.ABORTED
    stage.cluster.give_back()
    stage.copy_the_rest(producer, consumer)
    assert stage.named("transaction_aborted") == []
    assert stage.outputs == stage.inputs


@BOTH_WAYS
def test_an_unknown_commit_is_resolved_inside_an_on_revoke_that_raises(arrives: bool) -> None:
    stage = SimulatedStage(COOPERATIVE, request_timeout_s=REQUEST_S)
    producer = stage.producer(recovery_timeout_s=RECOVERY_S)
    consumer = stage.subscribed(callbacks={"on_revoke": raising})
    txn = left_unknown(stage, producer, consumer, arrives=arrives)
    stage.cluster.revoke((SOURCE, 0), (SOURCE, 1))
    with pytest.raises(ZeroDivisionError):
        stage.wait_for(lambda: False, consumer.adapter.fetching.serve_callbacks)
    assert txn.outcome is (Outcome.COMMITTED if arrives else Outcome.ABORTED)
    assert producer.counters.outcomes_resolved == 1


@BOTH_WAYS
def test_who_asks_for_ends_learns_once_what_a_revocation_has_found_out(arrives: bool) -> None:
    stage = SimulatedStage(COOPERATIVE, request_timeout_s=REQUEST_S)
    consumer = stage.subscribed()
    session = stage.producer(recovery_timeout_s=RECOVERY_S).session(consumer)
    for record in stage.collect(consumer, 4):
        session.outputs.produce(SINK, record.value())
    next_commit_is_unanswered(stage, arrives=arrives)
    with pytest.raises(EosError):
        session.end()
    assert session.endings.take_forced() is None
    stage.cluster.revoke((SOURCE, 0), (SOURCE, 1))
    stage.wait_for(lambda: stage.named("partitions_revoked"), consumer.adapter.fetching.serve_callbacks)
    forced = session.endings.take_forced()
    assert forced is not None
    assert forced.outcome is (Outcome.COMMITTED if arrives else Outcome.ABORTED)
    assert session.endings.take_forced() is None


@BOTH_WAYS
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_loop_that_ends_before_an_outcome_is_known_tells_no_abort(protocol: str, arrives: bool) -> None:
    stage = SimulatedStage(protocol, request_timeout_s=REQUEST_S)
    loop = stage.loop(commit_interval_s=60.0)

    def revoke_without_an_answer() -> None:
        next_commit_is_unanswered(stage, arrives=arrives)
        for _ in range(3_000):
            stage.cluster.refuse("InitProducerId", "NOT_COORDINATOR")
        stage.cluster.revoke((SOURCE, 1))

    stage.cluster.after(3.0, revoke_without_an_answer)
    with pytest.raises(ClusterUnavailableError, match="outcome of the last commit is unknown"):
        loop.run()
    assert resolved(stage) == ["unknown"]
    assert (stage.named("transaction_aborted"), loop.counters.aborted) == ([], 0)


@pytest.mark.parametrize("protocol", CLASSIC)
def test_a_refusal_in_a_rebalance_stays_the_reason_of_the_abort(protocol: str) -> None:
    stage = SimulatedStage(protocol)
    producer, consumer = stage.producer(), stage.subscribed()
    stage.hold(producer, consumer)
    refuse_the_offsets(stage)
    until_revoked_between_blocks(stage, consumer)
    assert goes_on(stage, producer, consumer)
    (aborted,) = stage.named("transaction_aborted")
    assert "GROUP_AUTHORIZATION_FAILED" in aborted.reason
    assert "no known outcome" not in aborted.reason


@pytest.mark.parametrize("protocol", CLASSIC)
def test_a_call_by_hand_beside_an_unknown_outcome_is_told_to_enter_a_block(protocol: str) -> None:
    stage = SimulatedStage(protocol, request_timeout_s=REQUEST_S)
    producer = stage.producer(recovery_timeout_s=RECOVERY_S)
    consumer = stage.subscribed()
    stage.hold(producer, consumer)
    next_commit_is_unanswered(stage, arrives=True)
    stage.cluster.revoke((SOURCE, 1))
    with suppress(EosError):
        stage.wait_for(lambda: stage.named("partitions_revoked"), lambda: consumer.poll(0.1))
    with pytest.raises(TransactionStateError, match="enter the next block, which finds out"):
        producer.begin_transaction()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_failure_that_an_exception_of_on_revoke_has_hidden_is_forgotten_with_its_abort_finished(
    protocol: str,
) -> None:
    strikes = [BrokenOffError()]

    def on_revoke(*_: Any) -> None:
        if strikes:
            raise strikes.pop()

    stage = SimulatedStage(protocol, records=1, request_timeout_s=REQUEST_S)
    producer = stage.producer(recovery_timeout_s=RECOVERY_S, transaction_timeout_ms=120_000)
    consumer = stage.subscribed(gate=GateSettings(hold_limit_s=60.0), callbacks={"on_revoke": on_revoke})
    stage.hold(producer, consumer, 2)
    next_commit_is_unanswered(stage, arrives=True)  # nor is the end of an abort
    stage.cluster.revoke((SOURCE, 0), (SOURCE, 1))
    with pytest.raises(BrokenOffError):
        stage.wait_for(lambda: False, lambda: consumer.consume(10, 0.5))
    with producer.transaction(consumer):
        pass
    assert len(stage.named("transaction_aborted")) == 1
    assert goes_on(stage, producer, consumer)
