"""A client is of one process and is one object: a forked child may not call it, and nobody copies it."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eos_client import EosConsumer, EosProducer

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
MAKERS: dict[str, Callable[[], Any]] = {
    "consumer": lambda: EosConsumer(NOWHERE | {"group.id": "billing"}),
    "idempotent": lambda: EosProducer(NOWHERE),
    "transactional": lambda: EosProducer(NOWHERE | {"transactional.id": "billing-0"}),
}


@pytest.fixture(params=MAKERS)
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    with MAKERS[request.param]() as made:
        yield made


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_is_refused_and_the_client_goes_on(client: Any, copies: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"cannot copy or pickle 'Eos.*Build another one"):
        copies(client)
    client.poll(0)


CHILD = """
import os, sys
from tests.confluent.test_one_process_one_object import MAKERS

for name in sys.argv[2:]:
    client = MAKERS[sys.argv[1]]()
    call = getattr(client, name)
    arguments = {"produce": ("invoices", b"1"), "subscribe": (["orders"],)}.get(name, ())
    sys.stdout.flush()
    if os.fork() == 0:
        try:
            call(*arguments)
            print("went on")
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
        sys.stdout.flush()
        os._exit(0)  # the client library cannot be taken down where its threads do not run
    os.wait()
    client.close()
    print("the parent's was closed")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        ("consumer", ["subscribe", "poll", "consume", "close"]),
        ("idempotent", ["produce", "flush", "close"]),
        ("transactional", ["init_transactions", "close"]),
    ],
)
def test_a_forked_child_is_told_to_build_its_own_and_the_parent_goes_on(kind: str, calls: list[str]) -> None:
    command = [sys.executable, "-c", CHILD, kind, *calls]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1::2] == ["the parent's was closed"] * len(calls)
    for call, told in zip(calls, lines[::2], strict=True):
        assert told.startswith("ClientClosedError: Eos"), told
        assert f"{call}() was called in process" in told
        assert "Build clients in the process that uses them" in told
