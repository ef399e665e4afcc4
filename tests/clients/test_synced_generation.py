"""A generation is synced by an emptied queue only: behind a backlog a rebalance callback may still be waiting."""

from __future__ import annotations

from typing import Any

from eos_client.core.membership_events import Synced
from tests.clients.simulated_stage import SimulatedStage


def test_a_backlog_syncs_no_generation(monkeypatch: Any) -> None:
    stage = SimulatedStage(records=1, partitions=1)
    consumer = stage.subscribed()
    stage.collect(consumer, 1)
    assert consumer.poll(0.1) is None
    fetching, membership = consumer.adapter.fetching, consumer.adapter.membership
    told: list[Any] = []
    monkeypatch.setattr(membership, "tell", told.append)

    def synced_by_fetch(count: int) -> bool:
        told.clear()
        fetching.fetch(count, 1.0)
        return any(isinstance(event, Synced) for event in told)

    stage.load(5)
    assert [synced_by_fetch(2), synced_by_fetch(2), synced_by_fetch(2), synced_by_fetch(2)] == [
        False,
        False,
        False,
        True,
    ]
