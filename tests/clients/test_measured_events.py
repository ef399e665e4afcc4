"""What the events measure: the lag up to the last stable offset, the time to the commit, and why a handle ended."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from eos_client import EosConfig, ExactlyOnceLoop, Outcome
from eos_client.confluent.failures.producer_failures import WAYS_OUT
from eos_client.core.model import InputPartition
from eos_client.observe import Event, LagMeasured, ProducerRebuilt, TransactionAborted, TransactionCommitted
from tests.clients.simulated_stage import SINK, SOURCE, SimulatedStage

ORDERS_0, ORDERS_1 = InputPartition(SOURCE, 0), InputPartition(SOURCE, 1)
STATISTICS: dict[str, Any] = {"statistics_interval_ms": 5000}
E = TypeVar("E", bound=Event)


@pytest.fixture
def stage() -> SimulatedStage:
    return SimulatedStage(records=3)


def told(stage: SimulatedStage, kind: type[E]) -> list[E]:
    return [event for event in stage.events if isinstance(event, kind)]


def polled_twice(consumer: Any) -> None:
    """The first call serves the statistics, the second tells what was in them."""
    assert [consumer.poll(0.1), consumer.poll(0)] == [None, None]


def test_without_statistics_no_lag_is_told(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    copy(stage, consumer, producer, 6)
    stage.cluster.advance(60)
    polled_twice(consumer)
    assert told(stage, LagMeasured) == []


def copy(stage: SimulatedStage, consumer: Any, producer: Any, count: int, held_s: float = 0.0) -> Outcome | None:
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, count):
            txn.produce(SINK, record.value())
        stage.cluster.advance(held_s)
    outcome: Outcome | None = txn.outcome
    return outcome


def test_the_lag_counts_what_is_not_committed(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(**STATISTICS), stage.producer()
    assert copy(stage, consumer, producer, 6) is Outcome.COMMITTED
    stage.load(4)
    with producer.transaction(consumer):
        stage.collect(consumer, 8)
        stage.cluster.advance(6)
        polled_twice(consumer)
        assert told(stage, LagMeasured)[-1].records == {ORDERS_0: 4, ORDERS_1: 4}
    stage.cluster.advance(6)
    polled_twice(consumer)
    assert told(stage, LagMeasured)[-1].records == {ORDERS_0: 0, ORDERS_1: 0}


def test_the_lag_ends_at_the_last_stable_offset(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(**STATISTICS), stage.producer()
    other = stage.producer(transactional_id="another")
    other.begin_transaction()
    other.produce(SOURCE, b"not committed yet", partition=0)
    other.flush()
    stage.cluster.write(SOURCE, [b"behind it"], partition=0)
    copy(stage, consumer, producer, 6)
    stage.cluster.advance(6)
    polled_twice(consumer)
    assert told(stage, LagMeasured)[-1].records == {ORDERS_0: 0, ORDERS_1: 0}


def test_the_lag_is_told_where_it_has_changed_and_asks_no_broker(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(**STATISTICS), stage.producer()
    copy(stage, consumer, producer, 6)
    served = len(stage.cluster.history)
    for _ in range(10):
        stage.cluster.advance(6)
        polled_twice(consumer)
    assert len(told(stage, LagMeasured)) == 1
    asked = {request.request for request in stage.cluster.history[served:]}
    assert asked <= {"Fetch", "ConsumerGroupHeartbeat"}


def test_a_loop_tells_its_lag_too(simulated_cluster: Any) -> None:
    simulated_cluster.create_topic(SOURCE)
    simulated_cluster.create_topic(SINK)
    events: list[Event] = []
    kafka = {"bootstrap.servers": "simulated", "statistics.interval.ms": 1000}
    config = EosConfig(kafka, group_id="billing")
    loop = ExactlyOnceLoop(
        config, [SOURCE], lambda r: r.value(), output_topic=SINK, hook=events.append, clients=simulated_cluster
    )
    simulated_cluster.write(SOURCE, [b"1", b"2"])
    simulated_cluster.after(20, loop.stop)
    loop.run()
    lags = [event.records for event in events if isinstance(event, LagMeasured)]
    assert lags[-1] == {ORDERS_0: 0}


def test_the_time_to_the_commit_begins_with_the_first_record_that_was_handed_over(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    copy(stage, consumer, producer, 6, held_s=1.5)
    stage.cluster.advance(30)
    stage.load(1)
    copy(stage, consumer, producer, 2, held_s=0.5)
    with producer.transaction(consumer) as txn:
        txn.produce(SINK, b"without a record")
    first, second, without = [event.poll_to_commit_s for event in told(stage, TransactionCommitted)]
    assert first == pytest.approx(1.5, abs=1.0)
    assert second == pytest.approx(0.5, abs=0.4)
    assert without is None


def test_an_abort_tells_that_the_group_has_refused_the_offsets(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.cluster.refuse("TxnOffsetCommit", "ILLEGAL_GENERATION")
    assert copy(stage, consumer, producer, 6) is Outcome.ABORTED
    (refused,) = told(stage, TransactionAborted)
    assert (refused.refused_by_group, refused.rule) == (True, None)
    txn = producer.transaction(consumer)
    with pytest.raises(ZeroDivisionError), txn:
        1 / len(stage.collect(consumer, 6)[:0])
    assert not told(stage, TransactionAborted)[-1].refused_by_group


def test_a_rebuild_names_its_cause_in_one_word(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.cluster.lose_reply("EndTxn")
    assert copy(stage, consumer, producer, 6) is Outcome.COMMITTED
    (rebuilt,) = told(stage, ProducerRebuilt)
    assert rebuilt.cause == "_TIMED_OUT"


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (lambda cluster: cluster.refuse("TxnOffsetCommit", "ILLEGAL_GENERATION"), Outcome.ABORTED),
        (lambda cluster: cluster.lose_reply("EndTxn"), Outcome.COMMITTED),
        (lambda cluster: cluster.lose_request("EndTxn"), Outcome.ABORTED),
    ],
    ids=["offsets refused", "answer lost", "commit lost"],
)
def test_no_event_of_a_recovery_tells_which_calls_to_make(stage: SimulatedStage, fault: Any, outcome: Outcome) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    fault(stage.cluster)
    assert copy(stage, consumer, producer, 6) is outcome
    stage.load(3)
    assert copy(stage, consumer, producer, 6) is Outcome.COMMITTED
    reasons = [event.reason for event in stage.events if hasattr(event, "reason")]
    assert reasons
    assert not [reason for reason in reasons for way_out in WAYS_OUT.values() if way_out in reason]


def test_no_lag_is_told_of_offsets_that_the_application_commits_by_itself(stage: SimulatedStage) -> None:
    consumer = stage.subscribed(**STATISTICS)
    stage.collect(consumer, 6)
    consumer.consumer_group_metadata()
    stage.cluster.advance(6)
    polled_twice(consumer)
    assert told(stage, LagMeasured) == []
