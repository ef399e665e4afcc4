"""A callback that writes while a step of the transaction is under way, and a producer closed after a broken end."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from eos_client import Outcome
from eos_client.confluent.producer.confluent_producer import ConfluentProducer
from eos_client.errors import ClusterUnavailableError, EosError, TransactionStateError
from tests.clients.simulated_stage import SINK, SimulatedStage
from tests.clients.struck_steps import StrikeError
from tests.support.interception import close_the_gate

ALERT = b"alert"


class AlertingApplication:
    """`error_cb` writes once, through the block or the producer, as soon as it is `armed`."""

    def __init__(self, *, through_block: bool) -> None:
        self.stage = SimulatedStage(records=2)
        self.refusals: list[EosError] = []
        self.txn: Any = None
        self._armed = False
        self._through_block = through_block
        self.producer = self.stage.producer(callbacks={"error_cb": self._on_error})

    def arm(self) -> None:
        self._armed = True
        self.stage.cluster.report_error("_TRANSPORT")

    def _on_error(self, _: Any) -> None:
        if self._armed:
            self._armed = False
            try:
                (self.txn if self._through_block else self.producer).produce(SINK, ALERT)
            except EosError as refusal:
                self.refusals.append(refusal)


both_ways = pytest.mark.parametrize("through_block", [True, False], ids=["block", "producer"])


@both_ways
def test_a_write_inside_the_begin_of_its_transaction_is_refused_and_nothing_is_lost(through_block):
    alerting = AlertingApplication(through_block=through_block)
    stage, producer = alerting.stage, alerting.producer
    consumer = stage.subscribed()
    alerting.txn = txn = producer.transaction(consumer)
    with suppress(EosError), txn:
        records = stage.collect(consumer, 4)
        alerting.arm()
        for message in records:
            txn.produce(SINK, message.value())
    assert [isinstance(refusal, TransactionStateError) for refusal in alerting.refusals] == [True]
    assert txn.outcome is Outcome.ABORTED
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


@both_ways
def test_a_write_inside_a_revocations_commit_keeps_nothing_back(through_block):
    alerting = AlertingApplication(through_block=through_block)
    stage, producer = alerting.stage, alerting.producer
    consumer = stage.subscribed()
    with producer.transaction(consumer):
        stage.collect(consumer, 4)
        close_the_gate(consumer)
    alerting.txn = txn = producer.transaction(consumer)
    with suppress(EosError), txn:
        stage.cluster.revoke(("orders", 1))
        alerting.arm()
        for _ in range(60):
            consumer.consume(10, 0.1)
            if stage.named("partitions_revoked"):
                break
    assert sum(stage.cluster.committed("billing").values()) == 4
    assert len(alerting.refusals) == 1


def test_a_consumer_goes_on_after_its_producer_was_closed_with_a_rebuild_that_failed():
    stage = SimulatedStage(records=2)
    producer, consumer = stage.producer(recovery_timeout_s=2.0), stage.subscribed()
    txn = producer.transaction(consumer)
    with suppress(ClusterUnavailableError), txn:
        for message in stage.collect(consumer, 4):
            txn.produce(SINK, message.value())
        stage.cluster.lose_request("AddOffsetsToTxn")
        stage.cluster.lose_request("TxnOffsetCommit")
        for _ in range(400):
            stage.cluster.refuse("InitProducerId", "COORDINATOR_NOT_AVAILABLE")
    producer.close()
    assert txn.outcome is Outcome.ABORTED
    stage.cluster.faults.withdraw()
    stage.copy_the_rest(stage.producer(), consumer)
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_consumer_goes_on_after_its_producer_was_closed_with_an_abort_that_was_interrupted(monkeypatch, where):
    stage = SimulatedStage(records=2)
    producer, consumer = stage.producer(), stage.subscribed()
    abort = ConfluentProducer.abort_transaction

    def struck(self, **options):
        monkeypatch.setattr(ConfluentProducer, "abort_transaction", abort)
        if where == "after":
            abort(self, **options)
        raise StrikeError("abort_transaction")

    txn = producer.transaction(consumer)
    with suppress(StrikeError, ValueError), txn:
        for message in stage.collect(consumer, 4):
            txn.produce(SINK, message.value())
        monkeypatch.setattr(ConfluentProducer, "abort_transaction", struck)
        raise ValueError("the application's")
    producer.close()
    assert txn.outcome is Outcome.ABORTED
    stage.copy_the_rest(stage.producer(), consumer)
    assert stage.outputs == stage.inputs
