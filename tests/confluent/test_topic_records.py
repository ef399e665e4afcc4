"""Readers and writers of topics for tools: settings that their clients refuse, and topics that are deleted."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client.confluent.admin import topic_records
from eos_client.confluent.admin.topic_records import GroupOffsets, TopicLoader, read_topic, tail_topic
from eos_client.errors import ClusterUnfitError, ConfigurationError

NOWHERE = "127.0.0.1:1"


def loader(settings: dict[str, str]) -> None:
    with TopicLoader(NOWHERE, "orders", settings):
        pass


def group_offsets(settings: dict[str, str]) -> None:
    with GroupOffsets(NOWHERE, "group", settings, stable=True):
        pass


@pytest.mark.parametrize(
    ("open_client", "settings", "named"),
    [
        (
            lambda given: next(tail_topic(NOWHERE, "orders", [0], given)),
            {"max.poll.interval.ms": "10"},
            "max.poll.inter",
        ),
        (lambda given: next(tail_topic(NOWHERE, "orders", [0], given)), {"fetch.max.bytes": "100"}, "fetch.max.bytes"),
        (lambda given: next(read_topic(NOWHERE, "orders", {0: 1}, given)), {"max.poll.interval.ms": "10"}, "max.poll."),
        (group_offsets, {"group.protocol": "consumer", "session.timeout.ms": "10000"}, "session.timeout.ms"),
        (loader, {"retries": "0"}, "retries"),
    ],
)
def test_settings_that_contradict_each_other_are_a_configuration_error_that_names_them(
    open_client: Any, settings: dict[str, str], named: str
):
    with pytest.raises(ConfigurationError, match=named):
        open_client(settings)


class SilentConsumer:
    """A consumer that receives nothing; ``answers`` is what brokers say about its topic, in turn."""

    def __init__(self, answers: Iterator[KafkaError | KafkaException | None]) -> None:
        self.answers = answers

    def assign(self, _partitions: Any) -> None: ...

    def consume(self, _count: int, _timeout_s: float) -> list[Any]:
        return []

    def list_topics(self, topic: str, **_timeout: float) -> Any:
        answer = next(self.answers)
        if isinstance(answer, KafkaException):
            raise answer
        return SimpleNamespace(topics={topic: SimpleNamespace(error=answer)})

    def close(self) -> None: ...


@pytest.mark.parametrize("said", ["mmm", "mm.mmm", "mm!mmm", "!!!!mmm", "....mmm"])
def test_only_a_topic_that_brokers_miss_three_times_in_a_row_ends_its_reader(
    monkeypatch: pytest.MonkeyPatch, said: str
):
    """Each letter of ``said`` is one answer: missing, there (.), or none in time (!)."""
    missing, silence = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), KafkaException(KafkaError(KafkaError._TIMED_OUT))
    answers = iter([{"m": missing, ".": None, "!": silence}[letter] for letter in said])
    monkeypatch.setattr(topic_records, "_reader", lambda *_, **__: SilentConsumer(answers))
    monkeypatch.setattr(topic_records, "_TOPIC_CHECK_S", 0.0)
    with pytest.raises(ClusterUnfitError, match="there is no topic 'orders' any more"):
        next(tail_topic("simulated", "orders", [0]))
    assert list(answers) == []
