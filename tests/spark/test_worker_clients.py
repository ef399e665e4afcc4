"""What a Python worker keeps between tasks: clients on a shelf, and modules out of garbage collections."""

from __future__ import annotations

import gc
import sys
from typing import Any

from eos_client.integration.spark.worker_clients import (
    Shelf,
    _freeze,
    shorten_collections,
)


class Client:
    def __init__(self):
        self.closed = False

    def close(self):
        self.closed = True


def test_a_shelf_gives_each_client_to_one_at_a_time_and_keeps_few():
    shelf: Any = Shelf(kept_max=2)
    clients = [Client() for _ in range(4)]
    for key, client in enumerate(clients[:3]):
        shelf.put(key, client)
    assert [client.closed for client in clients[:3]] == [True, False, False]
    assert shelf.take(1) is clients[1]
    assert shelf.take(1) is None
    shelf.put(2, clients[3])
    assert clients[2].closed
    assert shelf.take(2) is clients[3]


def test_a_forked_process_leaves_its_parents_clients_alone(monkeypatch):
    shelf: Any = Shelf()
    client = Client()
    shelf.put("k", client)
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert shelf.take("k") is None
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
