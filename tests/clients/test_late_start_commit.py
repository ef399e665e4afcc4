"""With ``latest`` the start of a partition is committed before its records: a late copy of that must do no harm."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from eos_client import EosProducer, Outcome
from eos_client.clients.transaction_session import TransactionSession
from eos_client.core.model import UNJOINED, InputPartition, InputPosition
from eos_client.errors import (
    AbortableError,
    ClusterUnfitError,
    EosError,
    ProducerFencedError,
    TransactionStateError,
    UnknownOutcomeError,
    WrongThreadError,
)
from eos_client.testing.simulator.brokers.model import PartitionKey
from tests.clients.simulated_stage import GROUP, SINK, SOURCE, SimulatedStage
from tests.clients.test_latest_start import closing_the_gate
from tests.support.protocols import PROTOCOLS

ANSWER_S = 5.0
LATE_S = 12.0
LATEST: dict[str, Any] = {"auto_offset_reset": "latest", "socket_timeout_ms": round(ANSWER_S * 1000)}
NEW = [b"0-1", b"0-2", b"0-3"]

Run = Callable[[SimulatedStage, float], None]


def blocks(stage: SimulatedStage, until_s: float) -> None:
    producer = stage.producer(recovery_timeout_s=30.0)
    with stage.subscribed(**LATEST) as consumer:
        while stage.cluster.clock() < until_s:
            with producer.transaction(consumer) as txn:
                for message in consumer.consume(10, 0.5):
                    txn.produce(SINK, message.value())
    producer.close()


def loop(stage: SimulatedStage, until_s: float) -> None:
    latest = {name.replace("_", "."): value for name, value in LATEST.items()}
    made = stage.loop(transactional_id="t", consumer=latest)
    stage.cluster.after(until_s - stage.cluster.clock(), made.stop)
    made.run()


@pytest.fixture(params=PROTOCOLS)
def stage(request: Any) -> SimulatedStage:
    return SimulatedStage(request.param, records=1, partitions=1)


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("run", [blocks, loop])
@pytest.mark.parametrize("request_name", ["OffsetCommit", "TxnOffsetCommit", "EndTxn", "AddOffsetsToTxn"])
def test_a_late_copy_does_not_take_the_group_back(stage: SimulatedStage, request_name: str, run: Run) -> None:
    stage.cluster.delay(request_name, LATE_S)
    stage.cluster.after(ANSWER_S + 3.0, lambda: stage.load(3))
    run(stage, LATE_S + 3.0)
    assert list(stage.cluster.committed(GROUP).values()) == [4]
    run(stage, LATE_S + 10.0)
    assert stage.outputs == NEW


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("fault", ["lose_reply", "lose_request"])
@pytest.mark.parametrize("request_name", ["TxnOffsetCommit", "EndTxn", "AddOffsetsToTxn", "OffsetFetch"])
@pytest.mark.parametrize("run", [blocks, loop])
def test_a_start_whose_commit_is_not_answered_is_committed_in_the_end(stage, run, request_name, fault):
    getattr(stage.cluster, fault)(request_name)
    stage.cluster.after(1.0, lambda: stage.load(3))
    run(stage, 40.0)
    run(stage, 50.0)
    assert stage.outputs == NEW


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("refusal", ["COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS", "UNKNOWN_MEMBER_ID"])
@pytest.mark.parametrize("run", [blocks, loop])
def test_a_start_whose_commit_is_refused_is_committed_in_the_end(stage, run, refusal):
    stage.cluster.refuse("TxnOffsetCommit", refusal)
    stage.cluster.after(1.0, lambda: stage.load(3))
    run(stage, 30.0)
    run(stage, 40.0)
    assert stage.outputs == NEW


def test_a_start_whose_commit_is_refused_is_the_reason_of_its_abort(stage):
    stage.cluster.refuse("TxnOffsetCommit", "UNKNOWN_MEMBER_ID")
    stage.cluster.after(1.0, lambda: stage.load(3))
    blocks(stage, 30.0)
    (aborted,) = stage.named("transaction_aborted")
    assert aborted.reason.startswith("the start offsets were not committed: ")
    assert aborted.records_in == 0


@pytest.mark.parametrize("run", [blocks, loop])
def test_a_start_whose_commit_is_not_authorised_raises_cluster_unfit(stage, run):
    for _ in range(100):
        stage.cluster.refuse("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED")
    with pytest.raises(ClusterUnfitError, match="GROUP_AUTHORIZATION_FAILED"):
        run(stage, 30.0)


@pytest.mark.parametrize("run", [blocks, loop])
def test_a_producer_that_is_fenced_before_the_start_is_committed_stays_fenced(stage, run):
    stage.cluster.delay("OffsetFetch", 3.0)
    stage.cluster.after(0.4, stage.cluster.fence_producer)
    with pytest.raises(ProducerFencedError):
        run(stage, 30.0)


@pytest.mark.parametrize("run", [blocks, loop])
def test_a_member_that_is_evicted_before_its_first_record_leaves_its_start_to_the_next(stage, run):
    stage.cluster.after(2.0, stage.cluster.lose)
    stage.cluster.after(2.5, lambda: stage.load(3))
    run(stage, 20.0)
    assert stage.outputs == NEW


def test_a_transaction_by_hand_is_left_alone_and_the_start_committed_after_it(stage):
    producer, consumer = stage.producer(), stage.subscribed(**LATEST)
    producer.transaction(consumer)
    producer.begin_transaction()
    producer.produce(SINK, b"by hand")
    assert consumer.consume(10, 2.0) == []
    assert stage.cluster.committed(GROUP) == {}
    producer.commit_transaction()
    assert stage.outputs == [b"by hand"]
    stage.wait_for(lambda: stage.cluster.committed(GROUP), lambda: consumer.consume(10, 0.0))
    assert stage.named("producer_rebuilt") == []


def test_a_partition_that_comes_into_an_open_transaction_is_started_after_it(stage):
    producer, consumer = stage.producer(), stage.subscribed(**LATEST)
    with producer.transaction(consumer) as txn:
        txn.produce(SINK, b"first")
        assert consumer.consume(10, 2.0) == []
        stage.load(1)
        assert consumer.consume(10, 2.0) == []
    assert txn.outcome is Outcome.COMMITTED
    stage.wait_for(lambda: stage.cluster.committed(GROUP), lambda: consumer.consume(10, 0.0))
    consumer.close()
    producer.close()
    blocks(stage, stage.cluster.clock() + 5.0)
    assert stage.outputs == [b"0-1", b"first"]


# -- commits that fail while records are fetched -----------------------------------------------------------------------


@contextmanager
def refused_offsets(stage: SimulatedStage) -> Iterator[EosProducer]:
    for _ in range(3):
        stage.cluster.refuse("TxnOffsetCommit", "UNKNOWN_MEMBER_ID")
    yield stage.producer()


@contextmanager
def unanswered_commits(stage: SimulatedStage) -> Iterator[EosProducer]:
    for _ in range(2):
        stage.cluster.lose_request("EndTxn")
    yield stage.producer()


@contextmanager
def producer_without_init(stage: SimulatedStage) -> Iterator[EosProducer]:
    settings = {"bootstrap.servers": "simulated", "transactional.id": "billing-0"}
    yield EosProducer(settings, factory=stage.cluster.producer, clock=stage.cluster.clock, hook=stage.events.append)


@contextmanager
def producer_of_another_thread(stage: SimulatedStage) -> Iterator[EosProducer]:
    made: list[EosProducer] = []
    is_made, may_end = threading.Event(), threading.Event()

    def use() -> None:
        producer = stage.producer()
        producer.begin_transaction()
        producer.commit_transaction()
        made.append(producer)
        is_made.set()
        may_end.wait(30)

    owner = threading.Thread(target=use)
    owner.start()
    is_made.wait(30)
    yield made[0]
    may_end.set()
    owner.join(30)


@pytest.mark.parametrize(
    ("fails", "kind"),
    [
        (refused_offsets, AbortableError),
        (unanswered_commits, UnknownOutcomeError),
        (producer_without_init, TransactionStateError),
        (producer_of_another_thread, WrongThreadError),
    ],
)
def test_a_start_whose_commit_fails_while_records_are_fetched_is_committed_in_the_end(fails, kind, monkeypatch):
    """The gate holds the start back in the assignment, so that it is committed by a call that fetches."""
    raised: list[BaseException] = []
    commit = TransactionSession._commit_starts

    def noting(session: TransactionSession, steps: Any) -> Any:
        try:
            return commit(session, steps)
        except EosError as error:
            raised.append(error)
            raise

    monkeypatch.setattr(TransactionSession, "_commit_starts", noting)
    stage = SimulatedStage(records=1, partitions=1, request_timeout_s=ANSWER_S)
    consumer = stage.subscribed(callbacks={"on_assign": closing_the_gate()}, auto_offset_reset="latest")
    with fails(stage) as producer:
        producer.transaction(consumer)
        assert consumer.consume(10, 2.0) == []
        assert raised == []
        stage.cluster.rebalance()
        stage.load(3)
        stage.wait_for(lambda: raised, lambda: consumer.consume(10, 0.5))
        assert isinstance(raised[0], kind)
        assert stage.cluster.committed(GROUP) == {}
    stage.copy_until(producer, consumer, lambda: stage.committed() == 4)
    assert stage.outputs == NEW


def test_no_start_is_committed_inside_a_step_of_a_transaction(stage: SimulatedStage) -> None:
    stage.cluster.create_topic("late")
    producer, consumer = stage.producer(), stage.subscribed(**LATEST)
    producer.transaction(consumer)
    stage.wait_for(lambda: stage.cluster.committed(GROUP), lambda: consumer.consume(10, 0.1))
    session, starts = producer.session(consumer), {InputPartition("late", 0): InputPosition(7, 7, UNJOINED)}

    def commit() -> str | None:
        return session.commit_starts(starts, consumer.adapter.snapshot())

    assert session.call_guard.run_transaction_step(commit) == "another transaction is open, or is being ended"
    assert PartitionKey("late", 0) not in stage.cluster.committed(GROUP)
    assert commit() is None
    assert stage.cluster.committed(GROUP)[PartitionKey("late", 0)] == 7


def test_no_callback_is_served_while_a_call_that_has_fetched_replaces_the_handle_of_a_start_commit(stage):
    stage = SimulatedStage(stage.protocol, records=1, request_timeout_s=1.0)
    producer, consumer = stage.producer(recovery_timeout_s=60.0), stage.subscribed(**LATEST)
    stage.cluster.refuse("TxnOffsetCommit", "UNKNOWN_MEMBER_ID")  # of the commit inside on_assign

    def one_block():
        with producer.transaction(consumer):
            consumer.consume(10, 0.5)

    stage.wait_for(lambda: stage.named("transaction_aborted"), one_block)
    stage.cluster.lose_reply("EndTxn")
    for _ in range(60):
        stage.cluster.lose_request("InitProducerId")
    stage.cluster.after(5.0, lambda: stage.cluster.revoke((SOURCE, 0)))
    stage.cluster.after(30.0, stage.cluster.faults.withdraw)
    stage.wait_for(lambda: stage.named("partitions_revoked"), one_block)
    told = [getattr(event, "cause", event.name) for event in stage.events]
    assert told.index("connection_lost") < told.index("partitions_revoked")
