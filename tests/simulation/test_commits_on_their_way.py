"""A plain commit without an answer: served after a transaction, it would move the committed offsets backwards."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eos_client import Outcome
from eos_client.core.commit_gate import GateRule
from tests.simulation.simulated_stage import GROUP, SINK, SOURCE, SimulatedStage
from tests.support.interception import close_the_gate
from tests.support.protocols import PROTOCOLS

SHORT_S, LONG_S = 1.0, 30.0


class OnItsWay:
    """One record of each partition was committed asynchronously; the commit is under way. Five more follow."""

    def __init__(self, protocol: str, delay_s: float, partitions: int = 1) -> None:
        self.stage = SimulatedStage(protocol, records=1, partitions=partitions)
        self.consumer, self.producer = self.stage.subscribed(), self.stage.producer()
        self.stage.collect(self.consumer, partitions)
        self.consumer.commit(asynchronous=False)
        self.asked = len(self.stage.cluster.history)
        self.stage.cluster.delay("OffsetCommit", delay_s)
        self.consumer.commit(offsets=[TopicPartition(SOURCE, 0, 1)])
        self.stage.load(5)

    def block(self, *, closes_the_gate: bool = False) -> Any:
        with self.producer.transaction(self.consumer) as txn:
            for message in self.stage.collect(self.consumer, 5):
                txn.produce(SINK, message.value())
            if closes_the_gate:
                close_the_gate(self.consumer)
        return txn

    @property
    def requests(self) -> list[str]:
        asked = ("OffsetCommit", "TxnOffsetCommit")
        return [request.request for request in self.stage.cluster.history[self.asked :] if request.request in asked]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_block_commits_after_the_answer(protocol: str) -> None:
    way = OnItsWay(protocol, SHORT_S)
    assert way.block().outcome is Outcome.COMMITTED
    assert way.requests == ["OffsetCommit", "TxnOffsetCommit"]
    way.stage.cluster.advance(LONG_S)
    assert way.stage.committed() == 6


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_block_aborts_when_no_answer_comes_in_time_and_its_records_come_again(protocol: str) -> None:
    way = OnItsWay(protocol, LONG_S)
    txn = way.block()
    assert txn.outcome is Outcome.ABORTED
    assert "asynchronous commit" in txn.reason
    assert "orders[0]" in txn.reason
    assert [event.rule for event in way.stage.named("transaction_aborted")] == [GateRule.PLAIN_COMMIT_UNANSWERED]
    way.stage.copy_the_rest(way.producer, way.consumer)
    assert way.requests == ["OffsetCommit", "TxnOffsetCommit"]
    assert way.stage.outputs == way.stage.inputs[1:]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_held_transaction_is_aborted_inside_the_revoke_callback_where_nothing_can_wait(protocol: str) -> None:
    way = OnItsWay(protocol, LONG_S)
    assert way.block(closes_the_gate=True).outcome is Outcome.SKIPPED
    way.consumer.close()
    (aborted,) = way.stage.named("transaction_aborted")
    assert "asynchronous commit" in aborted.reason
    assert way.requests in ([], ["OffsetCommit"])
    assert way.stage.outputs == []


@pytest.mark.parametrize("refusal", ["COORDINATOR_LOAD_IN_PROGRESS", "GROUP_AUTHORIZATION_FAILED"])
def test_a_commit_that_was_refused_is_not_under_way_any_more(refusal: str) -> None:
    way = OnItsWay(PROTOCOLS[0], SHORT_S)
    way.stage.cluster.advance(2 * SHORT_S)
    way.stage.cluster.refuse("OffsetCommit", refusal)
    way.consumer.commit(offsets=[TopicPartition(SOURCE, 0, 1)])
    assert way.block().outcome is Outcome.COMMITTED
    assert way.requests == ["OffsetCommit", "OffsetCommit", "TxnOffsetCommit"]


def test_the_answer_to_the_last_of_several_commits_is_waited_for() -> None:
    way = OnItsWay(PROTOCOLS[0], SHORT_S)
    way.stage.cluster.delay("OffsetCommit", 2 * SHORT_S / 3)
    way.consumer.commit(offsets=[TopicPartition(SOURCE, 0, 1)])
    assert way.block().outcome is Outcome.COMMITTED
    assert way.requests == ["OffsetCommit", "OffsetCommit", "TxnOffsetCommit"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_block_that_aborts_does_not_go_back_behind_a_commit_that_was_on_its_way_before(protocol: str) -> None:
    stage = SimulatedStage(protocol, records=5, partitions=1)
    consumer, producer = stage.subscribed(), stage.producer()
    stage.collect(consumer, 5)
    stage.cluster.delay("OffsetCommit", SHORT_S)
    consumer.commit()

    def fails() -> None:
        with producer.transaction(consumer):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    stage.load(2)
    assert [message.offset() for message in stage.collect(consumer, 2)] == [5, 6]
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == []
    assert list(stage.cluster.committed(GROUP).values()) == [7]
