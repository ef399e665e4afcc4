"""A coordinator that has lost a transaction of which it had confirmed partitions: what was written in it may hang."""

from __future__ import annotations

import pytest

from eos_client import Outcome
from eos_client.errors import ClusterUnfitError
from tests.clients.simulated_stage import SINK, SimulatedStage

REQUEST_TIMEOUT_S = 1.0


def end_a_lost_transaction(stage: SimulatedStage, *, fails: bool) -> None:
    """Copy a batch in a block whose EndTxn finds no transaction; ``fails``: the block is aborted."""
    consumer, producer = stage.subscribed(), stage.producer()
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        producer.flush(5.0)
        stage.cluster.refuse("EndTxn", "INVALID_TXN_STATE")
        if fails:
            raise ArithmeticError


@pytest.mark.parametrize("fails", [False, True], ids=["commit", "abort"])
def test_a_block_ends_for_good_where_a_later_commit_could_make_its_outputs_visible(*, fails: bool) -> None:
    stage = SimulatedStage()
    with pytest.raises(ClusterUnfitError, match="eos-client txn list"):
        end_a_lost_transaction(stage, fails=fails)
    assert stage.outputs == []
    assert stage.named("producer_rebuilt") == []


def test_a_transaction_whose_partitions_were_never_confirmed_is_done_again() -> None:
    stage = SimulatedStage(request_timeout_s=REQUEST_TIMEOUT_S)
    consumer, producer = stage.subscribed(), stage.producer()
    for _ in range(10):
        stage.cluster.lose_request("AddPartitionsToTxn")
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        stage.cluster.refuse("EndTxn", "INVALID_TXN_STATE")
    assert txn.outcome is Outcome.ABORTED
    (rebuilt,) = stage.named("producer_rebuilt")
    assert rebuilt.cause == "INVALID_TXN_STATE"
    stage.cluster.faults.withdraw()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs
