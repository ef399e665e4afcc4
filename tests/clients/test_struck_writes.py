"""An exception of a signal handler inside a write is never taken for a refused output, and nothing is written twice."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client import EosConfig, ExactlyOnceLoop, Outcome, OutputRecord
from eos_client.errors import AbortableError, OutputRefusedError, UnknownOutcomeError
from eos_client.observe import TransactionAborted
from eos_client.testing import SimulatedCluster
from eos_client.testing.simulator.clients.producer import SimulatedProducer
from tests.clients.simulated_stage import SINK, SimulatedStage

HEADERS = [("trace", b"1")]


class AlarmError(Exception):
    """What the handlers of these tests raise."""


@pytest.fixture
def strikes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Let the given write of a simulated producer, counted from 1, be struck as soon as it is queued."""
    produce, before = SimulatedProducer.produce, signal.getsignal(signal.SIGALRM)

    def strike(at: int, error: Exception) -> None:
        writes = 0

        def raises(*_: object) -> None:
            raise error

        def struck(self: SimulatedProducer, *arguments: Any, **options: Any) -> None:
            nonlocal writes
            writes += 1
            produce(self, *arguments, **options)
            if writes == at:
                signal.raise_signal(signal.SIGALRM)

        signal.signal(signal.SIGALRM, raises)
        monkeypatch.setattr(SimulatedProducer, "produce", struck)

    yield strike
    signal.signal(signal.SIGALRM, before)


OF_A_HANDLER = [
    AlarmError("late"),
    TimeoutError("late"),
    ValueError("late"),
    BufferError("late"),
    KafkaException(KafkaError(KafkaError._STATE, "late")),
]


@pytest.mark.parametrize("error", OF_A_HANDLER, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("headers", [None, HEADERS], ids=["plain", "headers"])
@pytest.mark.parametrize("partition", [None, 0], ids=["any partition", "one partition"])
def test_a_loop_that_is_struck_in_a_write_writes_each_output_once(strikes, error, headers, partition):
    cluster = SimulatedCluster(seed=3)
    cluster.create_topic("orders")
    cluster.create_topic(SINK)
    cluster.write("orders", [b"%d" % number for number in range(6)])
    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing", on_error="skip")

    def transform(record: Any) -> OutputRecord:
        return OutputRecord(SINK, value=record.value(), headers=headers, partition=partition)

    def loop() -> ExactlyOnceLoop:
        return ExactlyOnceLoop(config, ["orders"], transform, clients=cluster)

    strikes(3, error)
    with pytest.raises(type(error), match="late"):
        loop().run(until_end=True)
    loop().run(until_end=True)
    assert Counter(cluster.values(SINK)) == Counter(b"%d" % number for number in range(6))


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_outputs_that_an_unknown_outcome_of_a_handler_cuts_off_are_written_again(strikes, on_error, at):
    cluster = SimulatedCluster(seed=3)
    cluster.create_topic("orders")
    cluster.create_topic(SINK)
    cluster.write("orders", [b"%d" % number for number in range(3)])
    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing", on_error=on_error)

    def transform(record: Any) -> list[OutputRecord]:
        return [OutputRecord(SINK, value=record.value() + b".%d" % part) for part in range(2)]

    events: list[Any] = []
    strikes(at, UnknownOutcomeError("late"))
    ExactlyOnceLoop(config, ["orders"], transform, clients=cluster, hook=events.append).run(until_end=True)
    assert Counter(cluster.values(SINK)) == Counter(
        b"%d.%d" % (number, part) for number in range(3) for part in range(2)
    )
    assert [event.reason for event in events if isinstance(event, TransactionAborted)] == ["late"]


@pytest.mark.parametrize("write", ["txn.produce", "producer.produce"])
def test_a_block_that_was_struck_in_a_write_is_aborted_though_its_error_is_caught(strikes, write):
    stage = SimulatedStage(partitions=1)
    producer, consumer = stage.producer(), stage.subscribed()
    strikes(1, ValueError("late"))
    with producer.transaction(consumer) as struck:
        first, second = stage.collect(consumer, 2)
        produce = struck.produce if write == "txn.produce" else producer.produce
        with pytest.raises(AbortableError, match="a signal handler has interrupted"):
            produce(SINK, first.value())
        produce(SINK, second.value())
    assert struck.outcome is Outcome.ABORTED
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 2):
            txn.produce(SINK, message.value())
    assert (txn.outcome, stage.cluster.values(SINK)) == (Outcome.COMMITTED, [first.value(), second.value()])


def test_an_error_in_place_of_a_handlers_exception_does_not_refuse_the_output(monkeypatch):
    """confluent_kafka 2.16 says that a header's name is no str where a handler has raised while it reads the name."""
    stage = SimulatedStage(partitions=1)
    producer, consumer = stage.producer(), stage.subscribed()
    produce, errors = SimulatedProducer.produce, [TypeError("expected header key to be unicode string")]

    def replaced(self: SimulatedProducer, *arguments: Any, **options: Any) -> None:
        if errors:
            raise errors.pop()
        produce(self, *arguments, **options)

    monkeypatch.setattr(SimulatedProducer, "produce", replaced)
    with producer.transaction(consumer) as struck:
        first, second = stage.collect(consumer, 2)
        with pytest.raises(AbortableError, match="a signal handler has interrupted"):
            struck.produce(SINK, first.value(), headers=HEADERS)
        struck.produce(SINK, second.value(), headers=HEADERS)
    assert (struck.outcome, stage.cluster.values(SINK)) == (Outcome.ABORTED, [])


@pytest.mark.parametrize(
    "wrong", [{"value": 5}, {"key": 5}, {"headers": [("a", 5)]}, {"headers": {"a\0b": b"1"}}, {"partition": "0"}]
)
def test_an_output_that_is_wrong_is_still_refused_and_leaves_its_block_alone(wrong):
    stage = SimulatedStage(partitions=1)
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        first, _second = stage.collect(consumer, 2)
        with pytest.raises(OutputRefusedError):
            txn.produce(SINK, **{"value": b"1", **wrong})
        txn.produce(SINK, first.value())
    assert (txn.outcome, stage.cluster.values(SINK)) == (Outcome.COMMITTED, [first.value()])
