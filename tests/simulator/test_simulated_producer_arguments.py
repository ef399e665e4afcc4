"""What the simulated producer's ``produce`` takes and refuses is what confluent_kafka's does, in the same words."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

NO_UNICODE = "a\ud800"
PARTITIONS = (2**31, 2**40, 2**70, -(2**31) - 1, -(2**40), 1.0, 1.5, "1", b"1", None)
TIMESTAMPS = (2**40, 2**62, 2**63, 2**70, -1, -5, -(2**63) - 1, True, 1.5, "1", None)
PAYLOADS: tuple[Any, ...] = (
    None,
    "s",
    NO_UNICODE,
    bytearray(b"x"),
    memoryview(b"x"),
    memoryview(b"abcd")[::2],
    1,
    1.5,
    True,
    [],
    {},
)
TOPICS = ("orders", "no such name!", "", "x" * 250, "x" * 600, NO_UNICODE, "a\0b", b"orders", None, 1, "ü")
# A header's name with a lone surrogate is not among them: it ends confluent_kafka's process.
HEADERS: tuple[Any, ...] = (
    [],
    {},
    (),
    [("a", b"1")],
    (("a", b"1"),),
    [["a", b"1"]],
    [("a",)],
    [("a", b"1", 2)],
    [1],
    [None],
    "ab",
    b"ab",
    42,
    0,
    True,
    {"a": 1},
    {"a": None},
    {1: b"a"},
    [(b"a", b"1")],
    [(None, b"1")],
    [("a", 1)],
    [("a", NO_UNICODE)],
    [("a", bytearray(b"x"))],
    [("", b"x")],
    {("a", b"1")},
    MappingProxyType({"a": b"1"}),
)
ARGUMENTS: list[dict[str, Any]] = [
    *({"partition": each} for each in PARTITIONS),
    *({"timestamp": each} for each in TIMESTAMPS),
    *({name: each} for name in ("value", "key") for each in PAYLOADS),
    *({"topic": each} for each in TOPICS),
    *({"headers": each} for each in HEADERS),
]


def said_of(producer: Any, options: dict[str, Any]) -> tuple[str, str]:
    """The class and the text of what ``produce`` raises."""
    try:
        producer.produce(**{"topic": "orders", **options})
    except KafkaException as error:
        return "KafkaException", f"{error.args[0].name()}: {error.args[0].str()}"
    except (TypeError, ValueError, OverflowError) as error:
        return type(error).__name__, str(error)
    return "taken", ""


# Not their texts: those of a memoryview or an object differ from process to process.
NAMES = [f"{next(iter(options))} {number}" for number, options in enumerate(ARGUMENTS)]


@pytest.mark.parametrize("options", ARGUMENTS, ids=NAMES)
def test_an_argument_is_taken_or_refused_as_by_confluent_kafka(options: dict[str, Any], simulated_cluster: Any) -> None:
    real = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    simulated = simulated_cluster.producer({"bootstrap.servers": "simulated"})
    assert said_of(simulated, options) == said_of(real, options)
    real.purge()


@pytest.mark.parametrize("partition", [-5, -2, 7, 2**31 - 1, -(2**31)])
def test_a_partition_that_a_known_topic_does_not_have_is_refused(partition: int, simulated_cluster: Any) -> None:
    simulated_cluster.create_topic("orders")
    simulated = simulated_cluster.producer({"bootstrap.servers": "simulated"})
    refused = ("KafkaException", "_UNKNOWN_PARTITION: Unable to produce message: Local: Unknown partition")
    assert said_of(simulated, {"partition": partition}) == refused


def test_an_impossible_topic_name_is_reported_as_such_and_not_waited_for(simulated_cluster: Any) -> None:
    simulated = simulated_cluster.producer({"bootstrap.servers": "simulated"})
    reports: list[str] = []
    simulated.produce("no such name!", b"", on_delivery=lambda error, message: reports.append(error.name()))
    simulated.flush(5)
    assert reports == ["TOPIC_EXCEPTION"]
    assert simulated_cluster.clock.now_s < 1
