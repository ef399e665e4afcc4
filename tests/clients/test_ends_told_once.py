"""The end of a transaction is counted and told once, wherever an exception of a signal handler strikes in it."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from eos_client.clients.block_state import BlockState
from eos_client.clients.endings import Endings
from eos_client.clients.transaction_session import TransactionSession
from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.core.transaction_lifecycle import TransactionEvent, TransactionLifecycle
from eos_client.errors import EosError
from eos_client.observe import OutcomeResolved, RecordDeadLettered, TransactionAborted, TransactionCommitted
from tests.clients.simulated_stage import SINK, SimulatedStage


class Stopped(BaseException):
    """What a signal handler raises."""


POINTS = [
    (TransactionSession, "_clear_work"),
    (Endings, "record"),
    (BlockState, "report_outcome"),
]


def told(stage: Any, kind: type) -> list[Any]:
    return [event for event in stage.events if isinstance(event, kind)]


def struck_before(events: list[TransactionEvent]) -> Any:
    """Strike just before the phase changes at each of ``events`` in turn, which takes it from the list."""
    change = TransactionLifecycle.tell

    def struck(self: TransactionLifecycle, event: TransactionEvent) -> Any:
        if events and event is events[0]:
            events.pop(0)
            raise Stopped
        return change(self, event)

    return mock.patch.object(TransactionLifecycle, "tell", struck)


def block(stage: Any, producer: Any, consumer: Any, raised: BaseException | None) -> Any:
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        if raised is not None:
            raise raised
    return txn


@pytest.mark.parametrize("follows", ["block", "close"])
@pytest.mark.parametrize(("owner", "name"), POINTS, ids=lambda point: getattr(point, "__name__", point))
def test_a_commit_is_told_once(owner: type, name: str, follows: str) -> None:
    stage = SimulatedStage()
    producer, consumer = stage.producer(), stage.subscribed()
    with mock.patch.object(owner, name, side_effect=Stopped), pytest.raises(Stopped):
        block(stage, producer, consumer, None)
    if follows == "block":
        with producer.transaction(consumer):
            consumer.consume(1, 0.1)
    producer.close()
    (committed,) = told(stage, TransactionCommitted)
    assert (committed.records_in, committed.records_out) == (4, 4)
    counters = producer.counters
    assert (counters.committed, counters.records_in, counters.records_out) == (1, 4, 4)


def test_a_loop_that_an_exception_ends_while_it_records_a_commit_tells_that_commit() -> None:
    stage = SimulatedStage()
    stage.cluster.create_topic("dead")

    def fail(_message: Any) -> Any:
        raise ValueError("on purpose")

    loop = stage.loop(fail, max_records=2, on_error="dead_letter", dead_letter_topic="dead")
    recorded = mock.patch.object(ConfluentConsumer, "record_committed", side_effect=[Stopped, *[None] * 5])
    with recorded, pytest.raises(Stopped):
        loop.run()
    assert [event.records_in for event in told(stage, TransactionCommitted)] == [2]
    assert told(stage, OutcomeResolved) == []
    assert len(told(stage, RecordDeadLettered)) == loop.counters.records_failed == 2


@pytest.mark.parametrize("event", [TransactionEvent.RECORDED, TransactionEvent.RESUME])
@pytest.mark.parametrize("follows", ["block", "close"])
def test_a_commit_is_told_once_where_the_phase_changes(event: TransactionEvent, follows: str) -> None:
    stage = SimulatedStage()
    producer, consumer = stage.producer(), stage.subscribed()
    left = [TransactionEvent.RECORDED, event]
    with struck_before(left):
        with pytest.raises(Stopped):
            block(stage, producer, consumer, None)
        if follows == "block" and event is TransactionEvent.RESUME:
            with pytest.raises(Stopped):
                producer.transaction(consumer).__enter__()
        left.clear()
        if follows == "block":
            with producer.transaction(consumer):
                consumer.consume(1, 0.1)
        producer.close()
    assert [(event.records_in, event.records_out) for event in told(stage, TransactionCommitted)] == [(4, 4)]
    assert producer.counters.committed == 1


@pytest.mark.parametrize(("owner", "name"), POINTS, ids=lambda point: getattr(point, "__name__", point))
def test_an_abort_is_told_once(owner: type, name: str) -> None:
    stage = SimulatedStage()
    producer, consumer = stage.producer(), stage.subscribed()
    with mock.patch.object(owner, name, side_effect=Stopped), pytest.raises((Stopped, EosError)):
        block(stage, producer, consumer, ValueError())
    stage.copy_the_rest(producer, consumer)
    producer.close()
    assert [event.records_in for event in told(stage, TransactionAborted)] == [4]
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("follows", ["block", "close"])
def test_an_abort_is_told_once_where_the_phase_changes(follows: str) -> None:
    stage = SimulatedStage()
    producer, consumer = stage.producer(), stage.subscribed()
    with struck_before([TransactionEvent.RECORDED]), pytest.raises(Stopped):
        block(stage, producer, consumer, ValueError())
    if follows == "close":
        producer.close()
        producer = stage.producer()
    stage.copy_the_rest(producer, consumer)
    assert [event.records_in for event in told(stage, TransactionAborted)] == [4]
    assert stage.outputs == stage.inputs
