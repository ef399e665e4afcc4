"""A consumer whose group does not say where its partitions start says what it waits for."""

from __future__ import annotations

from unittest import mock

import pytest

from tests.clients.simulated_stage import SimulatedStage
from tests.support.protocols import PROTOCOLS


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wait_for_stable_offsets_is_reported_until_they_are_known(protocol: str) -> None:
    stage = SimulatedStage(protocol, records=1, partitions=1)
    consumer = stage.subscribed()
    until_s = stage.cluster.clock() + 100.0
    with mock.patch.object(consumer.adapter.library, "committed_offsets", return_value=None):
        while stage.cluster.clock() < until_s:
            assert consumer.consume(10, 0.1) == []
    reports = [event.error for event in stage.named("client_reported")]
    assert len(reports) == 3
    assert all("orders[0]" in each and "committed offset" in each for each in reports)
    stage.collect(consumer, 1)
    consumer.consume(10, 60.0)
    assert len(stage.named("client_reported")) == 3
