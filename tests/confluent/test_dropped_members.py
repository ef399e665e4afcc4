"""A consumer that was dropped without close() is freed when another one of its group joins, and no later."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer

from eos_client import EosConsumer, EosProducer
from eos_client.confluent.callback_guard import CallbackGuard
from eos_client.confluent.client_library import CONFLUENT_KAFKA
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


def member(bootstrap: str, group: str = "billing", factory: Any = Consumer) -> EosConsumer:
    consumer = EosConsumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}, factory=factory)
    consumer.subscribe(["orders"])
    return consumer


@pytest.mark.parametrize("factory", [Consumer, CONFLUENT_KAFKA.consumer], ids=["its own", "a loop's"])
def test_a_dropped_consumer_is_freed_before_the_next_one_of_its_group_joins(bootstrap, collected, factory):
    dropped = weakref.ref(member(bootstrap, factory=factory))
    assert dropped() is not None
    successor = member(bootstrap, factory=factory)
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
    assert not first._membership.state.is_closed
    first.close()
    second.close()


class ClosesItself(EosConsumer):
    """An application's consumer that is closed by whoever frees it."""

    found: ClassVar[list[bool]] = []

    def __del__(self) -> None:
        self.found.append(self._membership.state.is_closed)
        self.close()


def test_an_applications_own_finaliser_comes_first(bootstrap, monkeypatch):
    building = CallbackGuard.building

    def collecting(guard, client):
        gc.collect(0)  # so that the parts that are built later are in a younger generation than the consumer
        return building(guard, client)

    monkeypatch.setattr(CallbackGuard, "building", collecting)
    ClosesItself({"bootstrap.servers": bootstrap, "group.id": "billing", "log_level": 0}).subscribe(["orders"])
    gc.collect()
    assert ClosesItself.found == [False]


@pytest.mark.parametrize("name", ["gate", "settings"])
def test_what_a_consumer_was_built_with_cannot_be_exchanged(bootstrap, name):
    consumer = member(bootstrap)
    with pytest.raises(AttributeError):
        setattr(consumer, name, None)
    consumer.close()


def test_who_changes_the_settings_that_a_client_shows_does_not_change_the_client(bootstrap):
    consumer = member(bootstrap)
    with EosProducer({"bootstrap.servers": bootstrap, "log_level": 0, "transactional.id": "id"}) as producer:
        for client in (consumer, producer):
            shown = dict(client.settings)
            changed: Any = client.settings
            changed.clear()
            assert client.settings == shown
    consumer.close()


@pytest.mark.parametrize("count", ["5", None, 2.5])
def test_a_count_that_is_no_integer_is_refused_before_the_client_library_is_asked(bootstrap, count):
    consumer = member(bootstrap)
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        consumer.consume(count, 0)
    assert not consumer.adapter.library.may_keep_a_record
    consumer.close()
