"""What a Python worker keeps between tasks: idle clients, and modules out of garbage collections."""

from __future__ import annotations

import gc
import sys
from typing import Any

from eos_client.integration.spark.worker_clients import (
    IdleClients,
    _freeze,
    shorten_collections,
)


class Client:
    def __init__(self):
        self.closed = False

    def close(self):
        self.closed = True


def none_makes_room(_key, _client):
    return False


def put(idle, key, client, kept_max, makes_room=none_makes_room):
    idle.put(key, client, kept_max, makes_room)


def test_idle_clients_are_given_to_one_at_a_time():
    idle, first, second = IdleClients[Any, Any](), Client(), Client()
    put(idle, 1, first, 2)
    assert idle.take(1) is first
    assert idle.take(1) is None
    put(idle, 1, first, 2)
    put(idle, 1, second, 2)
    assert first.closed
    assert idle.take(1) is second


def test_what_is_kept_stays_and_a_new_client_is_kept_where_there_is_room():
    """Slots come again in their order: the oldest client is the next one that is needed."""
    idle, clients = IdleClients[Any, Any](), [Client() for _ in range(8)]
    for _batch in range(2):
        for slot, client in enumerate(clients):
            if (kept := idle.take(slot)) is not None:
                assert (kept, kept.closed) == (client, False)
            put(idle, slot, client, 2)
        assert [client.closed for client in clients] == [False] * 2 + [True] * 6


def test_the_oldest_client_that_makes_room_is_closed_for_another():
    idle, clients = IdleClients[Any, Any](), [Client() for _ in range(5)]
    for slot, client in enumerate(clients):
        put(idle, slot, client, 3, lambda slot, _client: slot % 2 == 1)
    assert [client.closed for client in clients] == [False, True, False, True, False], "1 for 3, then 3 for 4"


def test_fewer_than_before_are_kept_and_the_newest_are_closed():
    idle, clients = IdleClients[Any, Any](), [Client() for _ in range(4)]
    for slot, client in enumerate(clients):
        put(idle, slot, client, 3 if slot < 3 else 2)
    assert [client.closed for client in clients] == [False, False, True, True]


def test_where_none_may_be_kept_none_is():
    idle, client = IdleClients[Any, Any](), Client()
    put(idle, 0, client, 0, lambda *_: True)
    assert client.closed
    assert idle.take(0) is None


def test_a_forked_process_leaves_its_parents_clients_alone(monkeypatch):
    idle, client = IdleClients[Any, Any](), Client()
    put(idle, 0, client, 1)
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert idle.take(0) is None
    assert not client.closed


def test_modules_are_taken_out_of_collections_once_and_again_when_there_are_more(monkeypatch):
    _freeze.cache_clear()
    calls = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(len(sys.modules)))
    shorten_collections()
    shorten_collections()
    assert len(calls) == 1
    monkeypatch.setitem(sys.modules, "one_more_module", sys)
    shorten_collections()
    assert len(calls) == 2
