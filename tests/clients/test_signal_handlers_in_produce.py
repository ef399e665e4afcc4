"""What a signal handler raises inside a write is never taken for a refused output, or for a full queue."""

from __future__ import annotations

import operator
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from eos_client import Outcome
from eos_client.clients.transaction_outputs import TransactionOutputs
from eos_client.confluent.producer import output_arguments
from eos_client.errors import OutputRefusedError
from tests.clients.simulated_stage import SINK, SimulatedStage

STRUCK = 3
ERRORS = [TypeError, ValueError, OverflowError, UnicodeError, BufferError]


@pytest.fixture
def alarm() -> Iterator[Callable[[type[Exception]], None]]:
    """Install a handler that raises what it was told."""
    before = signal.getsignal(signal.SIGUSR1)

    def install(kind: type[Exception]) -> None:
        def handler(*_: Any) -> None:
            raise kind("of the handler")

        signal.signal(signal.SIGUSR1, handler)

    yield install
    signal.signal(signal.SIGUSR1, before)


def signalled_in(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Let the signal arrive when the function of that name has returned, the third time."""
    original, calls = getattr(owner, name), count(1)

    def signalled(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        if next(calls) == STRUCK:
            signal.raise_signal(signal.SIGUSR1)
        return result

    monkeypatch.setattr(owner, name, signalled)


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (TransactionOutputs, "count"),
        (output_arguments, "_check_topic"),
        (output_arguments, "_partition"),
        (operator, "index"),
    ],
)
def test_the_block_is_aborted_and_nothing_lost_or_doubled(monkeypatch, alarm, kind, owner, name):
    stage = SimulatedStage(records=3)
    producer, consumer = stage.producer(), stage.subscribed()
    alarm(kind)
    signalled_in(monkeypatch, owner, name)
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 6):
            with suppress(OutputRefusedError):  # as an application may
                txn.produce(SINK, record.value(), headers=[("origin", b"1")], partition=0)
    assert txn.outcome is Outcome.ABORTED
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs
