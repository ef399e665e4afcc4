"""A consumer that goes on with another producer: the first one was fenced in a block, or its block was interrupted."""

from __future__ import annotations

from contextlib import suppress
from unittest.mock import Mock

import pytest

from eos_client import Outcome
from eos_client.clients.transaction_session import TransactionSession
from eos_client.errors import AbortableError, ClientClosedError, ProducerFencedError, TransactionStateError
from tests.clients.simulated_stage import SINK, SimulatedStage
from tests.clients.struck_steps import StepStrike, StrikeError, strides, struck_runs
from tests.support.interception import close_the_gate
from tests.support.protocols import PROTOCOLS

EVERY_STEP = 41


@pytest.fixture(params=PROTOCOLS)
def stage(request):
    return SimulatedStage(request.param, records=7, partitions=3)


def copy(stage, producer, consumer, count):
    block = producer.transaction(consumer)
    with block:
        for message in consumer.consume(count, 0.5):
            producer.produce(SINK, message.value())
    return block


def fenced_in_a_block(stage, producer, consumer, count):
    newer = stage.producer(transactional_id=producer.transactional_id)
    block = producer.transaction(consumer)
    with suppress(ProducerFencedError), block:
        for message in consumer.consume(count, 0.5):
            producer.produce(SINK, message.value())
    newer.close()
    producer.close()
    return block


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("in_a_row", [1, 2])
def test_records_of_a_fenced_producers_block_are_processed_again_with_its_successor(stage, before, count, in_a_row):
    consumer, producer = stage.subscribed(), stage.producer()
    for _ in range(before):
        copy(stage, producer, consumer, count)
    for number in range(in_a_row):
        assert fenced_in_a_block(stage, producer, consumer, count).outcome is Outcome.ABORTED
        producer = stage.producer(transactional_id=f"successor-{number}")
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == sorted(stage.inputs)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_seek_after_the_fence_decides_where_the_successor_reads_on(stage, count):
    consumer, producer = stage.subscribed(), stage.producer()
    copy(stage, producer, consumer, count)
    fenced_in_a_block(stage, producer, consumer, count)
    for partition in consumer.assignment():
        partition.offset = 6
        consumer.seek(partition)
    producer = stage.producer(transactional_id="successor")
    with producer.transaction(consumer):
        got = stage.collect(consumer, 3)
    assert sorted(message.value() for message in got) == [b"0-6", b"1-6", b"2-6"]


class _GivenUpError(Exception):
    """Makes a block abort."""


def aborted(strike, steps=None):
    """An application whose block is struck while it aborts."""
    stage = SimulatedStage(records=4, partitions=1)
    producer, consumer = stage.producer(), stage.subscribed()
    block = producer.transaction(consumer)
    block.__enter__()
    for message in stage.collect(consumer, 4):
        producer.produce(SINK, message.value())
    with suppress(strike.error), strike.armed(steps):
        block.__exit__(_GivenUpError, _GivenUpError(), None)
    return stage, producer, consumer


@pytest.mark.parametrize("closes", [False, True], ids=["stays", "is closed"])
@strides(EVERY_STEP)
def test_what_an_interrupted_abort_leaves_is_finished_before_another_producer_goes_on(closes, first):
    for (stage, producer, consumer), strike in struck_runs(aborted, EVERY_STEP, first=first, steps_min=300):
        other = stage.producer(transactional_id="another")
        if closes:
            producer.close()
        for each in (other, producer, producer, other):  # the first entry may be refused as nested
            with suppress(TransactionStateError, ClientClosedError):
                copy(stage, each, consumer, 10)
        stage.copy_the_rest(other, consumer)
        assert stage.outputs == stage.inputs, strike.struck


@strides(EVERY_STEP)
def test_an_abort_that_a_handler_ends_by_an_error_of_ours_is_finished_by_the_next_block(first):
    """A signal handler may raise any exception: one of this package is not taken for what the abort has raised."""

    def kind(number):
        return StepStrike(number, AbortableError)

    for (stage, producer, consumer), strike in struck_runs(aborted, EVERY_STEP, first=first, kind=kind, steps_min=300):
        with suppress(TransactionStateError):  # the first entry may be refused as nested
            copy(stage, producer, consumer, 10)
        stage.copy_the_rest(producer, consumer)
        assert stage.outputs == stage.inputs, strike.struck


def test_a_producer_whose_abort_was_interrupted_finishes_it_before_it_serves_another_consumer(monkeypatch):
    stage = SimulatedStage(records=4, partitions=1)
    producer, consumer, another = stage.producer(), stage.subscribed(), stage.consumer()
    with suppress(_GivenUpError, StrikeError), producer.transaction(consumer):
        stage.collect(consumer, 4)
        producer.produce(SINK, b"aborted")
        monkeypatch.setattr(TransactionSession, "rewind", Mock(side_effect=StrikeError))
        raise _GivenUpError
    monkeypatch.undo()
    with pytest.raises(TransactionStateError, match="its own consumer has to finish it"):
        producer.transaction(another)
    consumer.close()
    producer.transaction(another)


@pytest.mark.parametrize("way_out", ["its next block", "its close"])
def test_only_its_own_producer_finishes_an_end_that_was_interrupted(monkeypatch, way_out):
    stage = SimulatedStage(records=4, partitions=1)
    producer, another, consumer = stage.producer(), stage.producer(transactional_id="another"), stage.subscribed()
    with suppress(_GivenUpError, StrikeError), producer.transaction(consumer):
        stage.collect(consumer, 4)
        producer.produce(SINK, b"aborted")
        monkeypatch.setattr(TransactionSession, "rewind", Mock(side_effect=StrikeError))
        raise _GivenUpError
    monkeypatch.undo()
    with pytest.raises(TransactionStateError, match="only its own producer can finish it: enter the next block"):
        another.transaction(consumer)
    if way_out == "its next block":
        copy(stage, producer, consumer, 2)
    else:
        producer.close()
    stage.copy_the_rest(another, consumer)
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("partner", ["the same", "another", "its successor", "the same after another consumer"])
def test_records_that_a_failed_on_revoke_gives_back_are_written_by_no_block(stage, partner):
    """They were consumed outside a block, and the application's on_revoke has raised before the block began."""
    raised: list[bool] = []

    def on_revoke(*_):
        if not raised:
            raised.append(True)
            raise ValueError

    first, consumer = stage.producer(), stage.subscribed(callbacks={"on_revoke": on_revoke})
    with first.transaction(consumer):
        consumer.poll(0.0)
    records = stage.collect(consumer, 3)
    stage.cluster.revoke(("orders", records[0].partition()))
    while not raised:
        with suppress(ValueError):
            records += consumer.consume(1, 0.1)
    producer = first
    if partner == "another":
        producer = stage.producer(transactional_id="another")
    elif partner == "its successor":
        first.close()
        producer = stage.producer()
    elif partner == "the same after another consumer":
        with first.transaction(stage.subscribed(group_id="others")) as between:
            pass
        assert between.outcome is Outcome.COMMITTED
    with producer.transaction(consumer) as txn:
        for record in records:
            txn.produce(SINK, record.value())
    assert txn.outcome is Outcome.ABORTED
    stage.cluster.give_back("billing")
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == sorted(stage.inputs)


def test_a_failure_that_another_producers_block_has_taken_over_fails_no_further_block(stage):
    first, consumer = stage.producer(), stage.subscribed()
    with first.transaction(consumer):
        consumer.poll(0.0)
    first.session(consumer).fail_next_block("a rebalance took records")
    with stage.producer(transactional_id="another").transaction(consumer) as failed:
        pass
    assert failed.outcome is Outcome.ABORTED
    with first.transaction(consumer) as txn:
        pass
    assert txn.outcome is Outcome.COMMITTED


def held_without_outputs(stage, producer, consumer):
    with producer.transaction(consumer) as held:
        stage.collect(consumer, 3)
        close_the_gate(consumer)
    assert held.outcome is Outcome.SKIPPED


def test_a_held_block_without_outputs_keeps_its_producer(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    held_without_outputs(stage, producer, consumer)
    with pytest.raises(TransactionStateError, match="open transaction with another consumer"):
        producer.transaction(stage.subscribed(group_id="others"))
    stage.cluster.rebalance("billing")
    stage.copy_the_rest(producer, consumer)


def test_a_held_block_without_outputs_hinders_nothing_once_its_producer_is_closed(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    held_without_outputs(stage, producer, consumer)
    producer.close()
    stage.collect(consumer, 3)
    successor = stage.producer(transactional_id="another")
    with successor.transaction(consumer):
        pass
    stage.cluster.rebalance()
    stage.copy_the_rest(successor, consumer)


def test_a_consumer_whose_producer_serves_another_one_and_is_closed_goes_on(stage):
    """With `latest`, its starts are committed by the next producer."""
    producer, consumer = stage.producer(), stage.subscribed(auto_offset_reset="latest")
    other = stage.subscribed(group_id="others")
    producer.transaction(consumer)
    producer.transaction(other)
    producer.close()
    for _ in range(10):
        assert consumer.consume(10, 0.2) == []
    successor = stage.producer(transactional_id="another")
    successor.transaction(consumer)
    stage.wait_for(lambda: len(stage.cluster.committed("billing")) == 3, lambda: consumer.consume(10, 0.2))
    stage.load(1)
    with successor.transaction(consumer) as txn:
        for record in stage.collect(consumer, 3):
            txn.produce(SINK, record.value())
    assert txn.outcome is Outcome.COMMITTED
