"""``position()`` tells what was handed over, whatever the client library has counted."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID

from tests.clients.simulated_stage import SimulatedStage
from tests.support.protocols import PROTOCOLS

RECORDS = 3


def positions(consumer: Any) -> list[int]:
    return [place.offset for place in consumer.position(consumer.assignment())]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("call", ["poll", "consume"])
def test_position_excludes_records_withheld_until_the_committed_offset_is_known(protocol: str, call: str) -> None:
    stage = SimulatedStage(protocol, records=RECORDS, partitions=1)
    consumer = stage.subscribed()
    stage.wait_for(consumer.assignment, lambda: consumer.poll(0.01))
    stage.cluster.delay("OffsetFetch", 5.0)
    withheld = consumer.poll(0.1) if call == "poll" else consumer.consume(10, 0.1)
    assert not withheld
    assert positions(consumer) == [OFFSET_INVALID]
    stage.collect(consumer, RECORDS)
    assert positions(consumer) == [RECORDS]
