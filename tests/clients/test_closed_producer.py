"""A producer that is closed takes its block's work with it, and the consumer goes on without that producer."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from confluent_kafka import TopicPartition

from eos_client import Outcome
from eos_client.clients.step_state import StepState
from eos_client.clients.transaction_session import TransactionSession
from eos_client.core.producer_recovery import TransactionalRequest
from eos_client.errors import ClientClosedError, TransactionStateError
from tests.clients.simulated_stage import SINK, SimulatedStage
from tests.support.interception import close_the_gate


class Stopped(BaseException):  # what a signal handler raises is no error
    """Interrupts the end of a block."""


@pytest.fixture
def stage() -> SimulatedStage:
    return SimulatedStage()


def hold(stage: Any, producer: Any, consumer: Any, count: int) -> None:
    """Write ``count`` records in a block that the gate holds."""
    with producer.transaction(consumer) as held:
        for record in stage.collect(consumer, count):
            held.produce(SINK, record.value())
        close_the_gate(consumer)
    assert held.outcome is Outcome.SKIPPED


@pytest.mark.parametrize("writes", [True, False], ids=["with outputs", "nothing written"])
def test_the_block_ends_as_aborted_and_the_records_come_again(stage: Any, writes: bool) -> None:
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)
    taken: list[Any] = []

    def block() -> None:
        with txn:
            taken.extend(record.value() for record in stage.collect(consumer, 4))
            if writes:
                txn.produce(SINK, taken[0])
            producer.close()

    with pytest.raises(ClientClosedError):
        block()
    assert txn.outcome is Outcome.ABORTED
    assert "closed" in txn.reason
    assert [event.records_in for event in stage.named("transaction_aborted")] == [4]
    assert [record.value() for record in stage.collect(consumer, 4)] == taken
    consumer.adapter.fetching.rewind()
    stage.copy_the_rest(stage.producer(), consumer)
    assert stage.outputs == stage.inputs


def test_a_with_that_closes_the_producer_first_leaves_the_consumer_usable(stage: Any) -> None:
    producer, consumer = stage.producer(), stage.subscribed()
    with pytest.raises(ClientClosedError), producer.transaction(consumer) as txn, producer:
        txn.produce(SINK, stage.collect(consumer, 4)[0].value())
    assert txn.outcome is Outcome.ABORTED
    stage.copy_the_rest(stage.producer(), consumer)
    assert stage.outputs == stage.inputs


def test_another_producer_takes_over_from_a_block_that_nobody_left(stage: Any) -> None:
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)
    txn.__enter__()
    txn.produce(SINK, stage.collect(consumer, 4)[0].value())
    producer.close()
    stage.copy_the_rest(stage.producer(), consumer)
    assert stage.outputs == stage.inputs


def test_an_empty_block_whose_producer_is_closed_counts_no_abort(stage: Any) -> None:
    producer, consumer = stage.producer(), stage.subscribed()
    with pytest.raises(ClientClosedError), producer.transaction(consumer) as txn:
        producer.close()
    assert txn.outcome is Outcome.ABORTED
    assert stage.named("transaction_aborted") == []
    stage.copy_the_rest(stage.producer(), consumer)
    assert stage.outputs == stage.inputs


def raising_once(error: BaseException) -> Any:
    """A callback that raises the first time."""
    errors = [error]

    def callback(*_: Any) -> None:
        if errors:
            raise errors.pop()

    return callback


@pytest.mark.parametrize("error", [Stopped(), RuntimeError("theirs")], ids=["interrupt", "error"])
def test_a_close_out_of_which_a_callback_raises_ends_its_block_all_the_same(stage: Any, error: BaseException) -> None:
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)
    raised: list[BaseException] = []

    def block() -> None:
        with txn:
            for record in stage.collect(consumer, 4):
                producer.produce(SINK, record.value(), on_delivery=raising_once(error))
            try:
                producer.close()
            except type(error) as theirs:
                raised.append(theirs)
            for record in stage.collect(consumer, 2):
                txn.produce(SINK, record.value())

    with pytest.raises(ClientClosedError):
        block()
    assert raised == [error]
    assert txn.outcome is Outcome.ABORTED
    stage.copy_the_rest(stage.producer(), consumer)
    assert stage.outputs == stage.inputs


def test_a_close_out_of_which_a_callback_raises_lets_held_records_come_again(stage: Any) -> None:
    consumer = stage.subscribed()
    producer = stage.producer(callbacks={"throttle_cb": raising_once(Stopped())})
    hold(stage, producer, consumer, 4)
    stage.cluster.report_throttle(0.1)
    with pytest.raises(Stopped):
        producer.close()
    stage.cluster.rebalance()
    stage.copy_the_rest(stage.producer(), consumer)
    assert stage.outputs == stage.inputs


def test_partitions_that_leave_after_the_close_hold_up_nobodys_transaction(stage: Any) -> None:
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)

    def block() -> None:
        with txn:
            stage.collect(consumer, 4)
            producer.close()

    with pytest.raises(ClientClosedError):
        block()
    stage.collect(consumer, 4)
    stage.until_revoked(consumer)
    stage.cluster.give_back()
    following = stage.producer()
    with following.transaction(consumer) as second:
        stage.collect(consumer, 1)
    assert second.outcome is Outcome.ABORTED  # the application may hold records of partition 1
    with following.transaction(consumer) as third:
        for record in stage.collect(consumer, 1):
            third.produce(SINK, record.value())
    assert third.outcome is Outcome.COMMITTED, third.reason


@pytest.mark.parametrize("ends_by", ["commit", "abort"])
@pytest.mark.parametrize("work", ["outputs", "records", "nothing"])
def test_a_block_whose_end_was_interrupted_is_aborted_and_counted_by_the_close(
    stage: Any, work: str, ends_by: str
) -> None:
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)

    def block() -> None:
        with txn:
            if work != "nothing":
                record = stage.collect(consumer, 4)[0]
            if work == "outputs":
                txn.produce(SINK, record.value())
            if ends_by == "abort":
                raise ValueError

    interrupted = mock.patch.object(TransactionSession, "end" if ends_by == "commit" else "abort", side_effect=Stopped)
    with interrupted, pytest.raises(Stopped):
        block()
    assert txn.outcome is None
    producer.close()
    assert txn.outcome is Outcome.ABORTED
    assert [event.records_in for event in stage.named("transaction_aborted")] == ([] if work == "nothing" else [4])
    assert producer.counters.aborted == (work != "nothing")
    assert stage.cluster.brokers.transactions.describe("billing-0").state != "Ongoing"
    stage.copy_the_rest(stage.producer(), consumer)
    assert stage.outputs == stage.inputs


def test_a_block_that_was_committed_before_its_end_was_interrupted_stays_committed(stage: Any) -> None:
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)

    def block() -> None:
        with txn:
            for record in stage.collect(consumer, 4):
                txn.produce(SINK, record.value())

    with mock.patch.object(TransactionSession, "finish_leaving", side_effect=Stopped), pytest.raises(Stopped):
        block()
    producer.close()
    assert txn.outcome is Outcome.COMMITTED
    assert stage.named("transaction_aborted") == []
    assert stage.outputs == stage.inputs


def test_close_finishes_an_abort_of_held_work_that_was_interrupted(stage: Any, monkeypatch: Any) -> None:
    producer, consumer = stage.producer(), stage.subscribed()
    hold(stage, producer, consumer, 4)
    monkeypatch.setattr(TransactionSession, "rewind", mock.Mock(side_effect=Stopped))
    with pytest.raises(Stopped):
        producer.session(consumer).abort("a rebalance took its records")
    monkeypatch.undo()
    producer.close()
    stage.cluster.rebalance()
    stage.copy_the_rest(stage.producer(transactional_id="another"), consumer)
    assert stage.outputs == stage.inputs


def test_partitions_stay_the_groups_in_a_block_whose_producer_was_closed(stage: Any) -> None:
    producer, consumer = stage.producer(), stage.subscribed()

    def block() -> None:
        with producer.transaction(consumer):
            stage.collect(consumer, 4)
            producer.close()
            with pytest.raises(TransactionStateError, match="outside a rebalance callback while a block"):
                consumer.incremental_unassign([TopicPartition(stage.source, 0)])

    with pytest.raises(ClientClosedError):
        block()
    consumer.incremental_unassign([TopicPartition(stage.source, 0)])


def test_a_handler_inside_a_poll_may_not_close_the_producer(stage: Any) -> None:
    """The poll is about to hand records over, and the abort of held work would be overwritten by that."""
    producer, consumer = stage.producer(), stage.subscribed()
    hold(stage, producer, consumer, 2)
    hand_over, refused = consumer.adapter.record_hand_over, []

    def struck(delivery: Any) -> Any:
        with pytest.raises(TransactionStateError, match=r"close\(\) inside a call of its consumer") as told:
            producer.close()
        refused.append(told.value)
        return hand_over(delivery)

    with mock.patch.object(consumer.adapter, "record_hand_over", struck):
        stage.wait_for(lambda: refused, lambda: consumer.poll(0.1))
    producer.close()
    stage.cluster.rebalance()
    stage.copy_the_rest(stage.producer(), consumer)
    assert stage.outputs == stage.inputs


def test_a_rebalance_callback_may_close_the_producer(stage: Any) -> None:
    producer = stage.producer()
    consumer = stage.subscribed(callbacks={"on_revoke": lambda *_: producer.close()})
    hold(stage, producer, consumer, 2)
    stage.until_revoked(consumer)
    stage.cluster.give_back()
    stage.copy_the_rest(stage.producer(), consumer)
    assert stage.outputs == stage.inputs


def test_a_producer_whose_close_was_interrupted_takes_no_more_blocks(stage: Any) -> None:
    """Its session would let the records of a block leave in a rebalance, and commit the outputs without them."""
    producer, consumer = stage.producer(), stage.subscribed()
    hold(stage, producer, consumer, 2)
    entered = producer.transaction(consumer)
    with mock.patch.object(TransactionSession, "finish_recording", side_effect=Stopped), pytest.raises(Stopped):
        producer.close()
    for begin in (lambda: producer.transaction(consumer), entered.__enter__):
        with pytest.raises(
            ClientClosedError, match=r"close\(\) of the producer '.*' has begun: .* call close\(\) again"
        ):
            begin()
    producer.close()
    stage.copy_the_rest(stage.producer(), consumer)
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("first", ["consumer", "producer"])
def test_an_unknown_outcome_stays_unknown_where_the_close_that_tells_so_is_interrupted(stage: Any, first: str) -> None:
    producer, consumer = stage.producer(), stage.subscribed()
    commit = producer.adapter.commit_transaction

    def commit_and_stop(*arguments: Any, **options: Any) -> None:
        commit(*arguments, **options)
        producer.adapter.calls.begin_call(TransactionalRequest.COMMIT)
        raise Stopped

    txn = producer.transaction(consumer)

    def block() -> None:
        with txn:
            for record in stage.collect(consumer, 4):
                txn.produce(SINK, record.value())

    with mock.patch.object(producer.adapter, "commit_transaction", commit_and_stop), pytest.raises(Stopped):
        block()
    with mock.patch.object(StepState, "why_unknown", side_effect=[Stopped, "no answer.", "no answer."]):
        with pytest.raises(Stopped):
            consumer.close()
        for client in (consumer, producer) if first == "consumer" else (producer, consumer):
            client.close()
    assert stage.outputs == stage.inputs
    assert txn.outcome is None
    assert (stage.named("transaction_aborted"), producer.counters.aborted) == ([], 0)
