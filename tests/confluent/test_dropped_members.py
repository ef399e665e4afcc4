"""A consumer that was dropped without close() is freed when another one of its group joins, and no later."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from eos_client import EosConsumer
from eos_client.testing.free_ports import free_ports


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How often the collector was called; it does not run by itself."""
    calls: list[int] = []
    collect = gc.collect
    monkeypatch.setattr(gc, "collect", lambda: calls.append(collect()))
    gc.disable()
    yield calls
    gc.enable()


@pytest.fixture
def bootstrap() -> str:
    (port,) = free_ports(1)
    return f"127.0.0.1:{port}"


def member(bootstrap: str, group: str = "billing", **settings: Any) -> EosConsumer:
    consumer = EosConsumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0, **settings})
    consumer.subscribe(["orders"])
    return consumer


def test_a_dropped_consumer_is_freed_before_the_next_one_of_its_group_joins(bootstrap, collected):
    dropped = weakref.ref(member(bootstrap))
    assert dropped() is not None
    successor = member(bootstrap)
    assert dropped() is None
    successor.close()


def test_nothing_is_collected_for_consumers_that_were_closed_or_are_of_other_groups_or_clusters(bootstrap, collected):
    member(bootstrap).close()
    others = [member(bootstrap, "shipping"), member(f"{bootstrap},127.0.0.1:1")]
    alone = member(bootstrap)
    alone.subscribe(["invoices"])
    assert collected == []
    for consumer in (*others, alone):
        consumer.close()


def test_members_that_are_in_use_stay(bootstrap, collected):
    first, second = member(bootstrap), member(bootstrap)
    assert not first._membership.is_closed
    first.close()
    second.close()
