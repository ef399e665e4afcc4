"""Records count as processed when their block ends: what a rebalance inside a block does to it."""

from typing import Any

import pytest

from eos_client import Outcome
from eos_client.core.commit_gate import GatePolicy, GateSettings
from eos_client.errors import EosError, LeaveBlockError
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from tests.clients.simulated_stage import GROUP, SINK, SOURCE, SimulatedStage
from tests.support.interception import close_the_gate, intercepting
from tests.support.protocols import PROTOCOLS

BROKERS_IN_A_HURRY = BrokerSettings(group_consumer_heartbeat_interval_s=0.01)
LOOKS_MAX = 5_000


@pytest.fixture(params=PROTOCOLS)
def stage(request):
    return SimulatedStage(request.param)


def every_record_is_copied_once(stage, producer, consumer):
    """The rest is copied once the other instance has left: every record is in the sink once."""
    stage.cluster.give_back()
    stage.copy_the_rest(producer, consumer)
    return stage.outputs == stage.inputs


def test_a_revocation_in_a_later_poll_of_a_block_aborts_it_before_any_record_is_processed(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        records = stage.collect(consumer, 4)
        stage.until_revoked(consumer)
        for record in records:
            txn.produce(SINK, record.value())
    assert txn.outcome is Outcome.ABORTED
    assert "a rebalance took orders[" in txn.reason
    assert stage.cluster.committed(GROUP) == {}
    assert stage.outputs == []
    assert stage.named("transaction_committed") == []
    assert every_record_is_copied_once(stage, producer, consumer)


def test_a_block_ends_at_the_consume_that_served_the_rebalance(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    reached_the_end = False
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        stage.until_revoked(consumer)
        reached_the_end = True
    assert not reached_the_end
    assert txn.outcome is Outcome.ABORTED
    assert every_record_is_copied_once(stage, producer, consumer)


def test_a_block_that_a_rebalance_ends_is_aborted_when_it_is_left_and_not_in_the_callback(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        stage.until_revoked(consumer)
    told = [event.name for event in stage.events]
    assert told.index("partitions_revoked") < told.index("transaction_aborted")


def test_a_rebalance_that_ends_a_block_is_no_failure_of_the_producer(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        stage.collect(consumer, 4)
        stage.until_revoked(consumer)
    assert txn.outcome is Outcome.ABORTED
    assert every_record_is_copied_once(stage, producer, consumer)
    assert producer.counters.recoveries == 0
    assert not stage.named("producer_recovered")


def test_poll_ends_the_block_as_consume_does(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        stage.collect(consumer, 4)
        stage.cluster.revoke((SOURCE, 1))
        with pytest.raises(LeaveBlockError) as raised:
            stage.wait_for(lambda: stage.named("partitions_revoked"), lambda: consumer.poll(0.1))
        raise raised.value
    assert txn.outcome is Outcome.ABORTED
    assert every_record_is_copied_once(stage, producer, consumer)


def test_an_application_that_swallows_the_error_commits_nothing_all_the_same(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    errors = []
    with producer.transaction(consumer) as txn:
        records = stage.collect(consumer, 4)
        try:
            stage.until_revoked(consumer)
        except EosError as error:
            errors.append(error)
        with pytest.raises(EosError) as of_produce:
            txn.produce(SINK, records[0].value())
        with pytest.raises(EosError) as of_consume:
            consumer.consume(1, 0.0)
        errors += [of_produce.value, of_consume.value]
    assert errors == [errors[0]] * 3
    assert txn.outcome is Outcome.ABORTED
    assert stage.outputs == []
    assert every_record_is_copied_once(stage, producer, consumer)


def test_a_loss_of_records_in_hand_ends_the_block(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    reached_the_end = False
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        stage.lost(consumer)
        reached_the_end = True
    assert not reached_the_end
    assert txn.outcome is Outcome.ABORTED
    assert stage.outputs == []
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_a_block_that_raises_after_a_revocation_loses_nothing(stage):
    producer, consumer = stage.producer(), stage.subscribed()

    def block():
        with producer.transaction(consumer):
            stage.collect(consumer, 4)
            try:
                stage.until_revoked(consumer)
            except EosError:
                raise ZeroDivisionError from None

    with pytest.raises(ZeroDivisionError):
        block()
    assert stage.cluster.committed(GROUP) == {}
    assert every_record_is_copied_once(stage, producer, consumer)


def test_a_revocation_of_a_partition_without_records_in_hand_leaves_the_block_open(stage):
    stage.cluster.create_topic("refunds", 1)
    producer, consumer = stage.producer(), stage.consumer()
    consumer.subscribe([SOURCE, "refunds"])
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        stage.cluster.revoke(("refunds", 0))
        if stage.protocol == "range":  # an eager member revokes everything, so it has records in hand
            return
        stage.wait_for(lambda: stage.named("partitions_revoked"), lambda: consumer.consume(10, 0.1))
    assert txn.outcome in {Outcome.COMMITTED, Outcome.SKIPPED}
    assert stage.named("transaction_aborted") == []
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("reaches_the_coordinator", [True, False])
def test_closing_the_producer_aborts_held_work_and_another_producer_takes_its_records_again(
    stage, reaches_the_coordinator
):
    producer, consumer = stage.producer(), stage.subscribed()
    stage.hold(producer, consumer)
    if not reaches_the_coordinator:
        stage.cluster.lose_request("EndTxn", "producer-1")
        stage.cluster.delay("EndTxn", 70.0)
    producer.close()
    assert ("EndTxn" in {each.request for each in stage.cluster.history}) is reaches_the_coordinator
    (aborted,) = stage.named("transaction_aborted")
    assert "the producer was closed" in aborted.reason
    assert ("the coordinator aborts it when its time is over: " in aborted.reason) is not reaches_the_coordinator
    assert aborted.records_in == 4
    stage.cluster.rebalance()  # until then the gate stays closed
    stage.copy_the_rest(stage.producer(transactional_id="successor"), consumer)
    stage.cluster.advance(120.0)
    assert stage.outputs == stage.inputs


def test_held_work_of_an_earlier_block_is_committed_inside_the_callback(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    stage.hold(producer, consumer)
    with producer.transaction(consumer) as txn:
        stage.until_revoked(consumer)
    assert [event.inside_revoke for event in stage.named("transaction_committed")] == [True]
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs == stage.inputs


def test_held_work_is_committed_inside_a_callback_between_blocks_too(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    stage.hold(producer, consumer)
    stage.until_revoked(consumer)
    assert [event.inside_revoke for event in stage.named("transaction_committed")] == [True]
    assert stage.outputs == stage.inputs


def test_held_work_is_not_committed_together_with_records_in_hand(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    stage.hold(producer, consumer)
    stage.load(1)
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 2):
            txn.produce(SINK, record.value())
        stage.until_revoked(consumer)
    assert txn.outcome is Outcome.ABORTED
    assert stage.outputs == []
    assert every_record_is_copied_once(stage, producer, consumer)


def test_outputs_of_an_unfinished_block_are_not_committed_with_held_work(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    stage.hold(producer, consumer)
    with producer.transaction(consumer) as txn:
        txn.produce(SINK, b"a total")
        stage.until_revoked(consumer)
    assert txn.outcome is Outcome.ABORTED
    assert stage.outputs == []
    assert every_record_is_copied_once(stage, producer, consumer)


def test_a_held_transaction_whose_commit_is_refused_ends_the_next_block_as_aborted(stage):
    """The application may have kept something until it was told how the held work ended."""
    producer, consumer = stage.producer(), stage.subscribed()
    stage.hold(producer, consumer)
    stage.cluster.refuse("TxnOffsetCommit", "ILLEGAL_GENERATION")
    with producer.transaction(consumer) as txn:
        stage.until_revoked(consumer)
    assert txn.outcome is Outcome.ABORTED
    assert "ILLEGAL_GENERATION" in txn.reason
    assert every_record_is_copied_once(stage, producer, consumer)


def test_records_taken_between_blocks_beside_a_held_transaction_end_the_next_block_when_they_are_revoked(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    stage.hold(producer, consumer)
    stage.load(1)
    early = stage.collect(consumer, 2)
    stage.until_revoked(consumer)
    assert stage.named("transaction_committed") == []
    assert len(stage.named("transaction_aborted")) == 1
    with producer.transaction(consumer) as txn:
        for record in early:
            txn.produce(SINK, record.value())
    assert txn.outcome is Outcome.ABORTED
    assert stage.outputs == []
    assert every_record_is_copied_once(stage, producer, consumer)


def test_closing_the_consumer_inside_a_block_commits_nothing(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        consumer.close()
    assert txn.outcome is Outcome.ABORTED
    assert "the consumer was closed inside the block" in txn.reason
    assert stage.cluster.committed(GROUP) == {}
    assert stage.outputs == []
    new_owner = stage.subscribed()
    stage.copy_the_rest(producer, new_owner)
    assert stage.outputs == stage.inputs


def test_closing_the_consumer_inside_a_block_commits_no_outputs_without_records(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        txn.produce(SINK, b"alone")
        consumer.close()
    assert txn.outcome is Outcome.ABORTED
    assert stage.outputs == []


def test_closing_the_consumer_after_a_held_block_commits_it(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    stage.hold(producer, consumer)
    consumer.close()
    assert stage.outputs == stage.inputs


def test_unsubscribing_inside_a_block_ends_it_at_the_poll_that_revokes(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        consumer.unsubscribe()
        stage.wait_for(lambda: stage.named("partitions_revoked"), lambda: consumer.poll(0.1))
    assert txn.outcome is Outcome.ABORTED
    assert stage.outputs == []
    consumer.subscribe([SOURCE])
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_a_revocation_at_the_end_of_a_block_commits_inside_the_callback(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        consumer.unsubscribe()
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs == stage.inputs


def test_on_revoke_that_raises_inside_a_block_commits_nothing_even_if_it_is_swallowed(stage):
    failures: list[Any] = []

    def on_revoke(_, partitions):
        if partitions and not failures:
            failures.append(partitions)
            raise ZeroDivisionError

    producer, consumer = stage.producer(), stage.subscribed(callbacks={"on_revoke": on_revoke})
    with producer.transaction(consumer) as txn:
        records = stage.collect(consumer, 4)
        with pytest.raises(ZeroDivisionError):
            stage.until_revoked(consumer)
        for record in records:
            with pytest.raises(EosError):
                txn.produce(SINK, record.value())
    assert txn.outcome is Outcome.ABORTED
    assert stage.outputs == []
    assert every_record_is_copied_once(stage, producer, consumer)


@pytest.mark.parametrize("since", ["first wait", "end of the block"])
def test_waiting_for_the_gate_ends_at_the_hold_limit_though_the_generation_keeps_moving(monkeypatch, since):
    """A KIP-848 epoch that moves each time somebody looks at it."""
    stage = SimulatedStage("consumer", settings=BROKERS_IN_A_HURRY)
    is_moving: list[Any] = []
    looks: list[None] = []

    def moved(raw: Any) -> Any:
        if is_moving:
            looks.append(None)
            assert len(looks) < LOOKS_MAX, "the wait has no limit"
            stage.cluster.rebalance()
            stage.cluster.advance(0.05)
        return raw.consumer_group_metadata()

    gate = GateSettings(policy=GatePolicy.BLOCK, hold_limit_s=5.0)
    factory = intercepting(stage.cluster.consumer, consumer_group_metadata=moved)
    producer, consumer = stage.producer(), stage.subscribed(gate=gate, factory=factory)
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        close_the_gate(consumer)
        if since == "first wait":
            monkeypatch.setattr(consumer.adapter.fetching, "wait_while_paused", is_moving.append)
        else:
            is_moving.append(True)
    is_moving.clear()
    assert txn.outcome is Outcome.ABORTED
    assert "the generation kept moving for longer than the hold limit" in txn.reason
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs
