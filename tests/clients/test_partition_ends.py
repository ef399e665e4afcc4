"""``enable.partition.eof``: an end is told after every record before it, also after a rewind or another start."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.simulated_stage import SINK, SimulatedStage
from tests.clients.test_truncated_log import Elections, staged
from tests.support.protocols import PROTOCOLS

END = "_PARTITION_EOF"


@pytest.fixture(params=PROTOCOLS)
def stage(request: Any) -> SimulatedStage:
    return SimulatedStage(request.param, partitions=1)


def told(message: Any) -> Any:
    return message.error().name() if message.error() else message.offset()


def test_an_end_is_told_after_the_records_that_an_abort_has_let_come_again(stage: SimulatedStage) -> None:
    producer, consumer = stage.producer(), stage.subscribed(enable_partition_eof=True)
    seen: list[Any] = []

    def one_turn() -> None:
        message = consumer.poll(0.2)
        if message is None:
            return
        seen.append(told(message))
        if message.error():
            return
        if len(seen) == 1:  # the commit is refused once the library has fetched everything, and its end
            stage.cluster.refuse("TxnOffsetCommit", "REBALANCE_IN_PROGRESS")
            stage.cluster.delay("Produce", 0.5)
        with producer.transaction(consumer) as txn:
            txn.produce(SINK, message.value())

    stage.wait_for(lambda: END in seen, one_turn)
    assert seen == [0, 0, 1, END]
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_end_is_told_after_the_records_of_a_start_that_is_sought_first(protocol: str) -> None:
    stage = staged(protocol, records=4, committed=2)
    consumer = stage.subscribed(factory=Elections(stage, 2), enable_partition_eof=True)
    seen: list[Any] = []
    stage.wait_for(lambda: END in seen, lambda: seen.extend(map(told, consumer.consume(10, 0.5))))
    assert seen == [2, 3, END]
