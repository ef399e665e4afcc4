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


def test_idle_clients_are_given_to_one_at_a_time_and_few_are_kept():
    idle: Any = IdleClients(kept_max=2)
    clients = [Client() for _ in range(4)]
    for key, client in enumerate(clients[:3]):
        idle.put(key, client)
    assert [client.closed for client in clients[:3]] == [True, False, False]
    assert idle.take(1) is clients[1]
    assert idle.take(1) is None
    idle.put(2, clients[3])
    assert clients[2].closed
    assert idle.take(2) is clients[3]


def test_a_forked_process_leaves_its_parents_clients_alone(monkeypatch):
    idle: Any = IdleClients()
    client = Client()
    idle.put("k", client)
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert idle.take("k") is None
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
