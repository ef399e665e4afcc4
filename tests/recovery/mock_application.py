"""An application on a mock cluster that does what the errors it meets are named for, and tells what happened."""

from __future__ import annotations

import logging
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from eos_client import EosProducer, errors
from eos_client.core.error_codes import OVERDUE
from eos_client.core.model import ProducerLimits
from eos_client.core.producer_recovery import ProducerFailure, TransactionalRequest
from tests.recovery.mock_cluster import MockCluster, mock_cluster

SOURCE, SINK = "source", "sink"
MEMBERSHIP = b"CGMDv2:" + struct.pack("=i", 3) + b"group\0member\0\1"  # generation 3; the mock does not judge it
SILENT = logging.getLogger("librdkafka of the mock cluster's clients")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
# Many applications share the processor: a call in time may take seconds. One whose answer never comes takes them all.
LIMITS = ProducerLimits(commit_timeout_s=8.0, start_timeout_s=8.0, recovery_timeout_s=8.0)
HASTY = replace(LIMITS, commit_timeout_s=2.0)
LEFT_BEHIND_S = 1.0
# What a stopped producer is asked in vain; before "produce" librdkafka says only that the handle is finished.
STOPPED_CALLS = ("begin_transaction", "send_offsets_to_transaction", "commit_transaction")


@dataclass(frozen=True)
class Failure:
    """What a call of the application raised."""

    call: str
    error: errors.EosError

    @property
    def kafka_error(self) -> KafkaError:
        cause = self.error.__cause__
        arguments = cause.args if isinstance(cause, KafkaException) else self.error.args
        assert isinstance(arguments[0], KafkaError)
        return arguments[0]

    @property
    def named_for(self) -> type[errors.EosError]:
        """The class in ``eos_client.errors`` by which an application catches it."""
        public = {
            kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.EosError)
        }
        return next(kind for kind in type(self.error).__mro__ if kind in public)

    def as_told_to_the_table(self, **known: Any) -> ProducerFailure:
        overdue = "did not return within" in str(self.error)
        return ProducerFailure(
            TransactionalRequest(self.call),
            OVERDUE if overdue else self.kafka_error.name(),
            fatal=self.kafka_error.fatal(),
            abortable=self.kafka_error.txn_requires_abort(),
            retriable=self.kafka_error.retriable(),
            was_registered=True,
            **known,
        )

    def __str__(self) -> str:
        return f"{self.call}: {type(self.error).__name__}: {self.error}"


@dataclass
class FailureAccount:
    """What happened to one application: its failure, what brought it back, and what failed once more meanwhile."""

    failure: Failure | None = None
    came_back_by: str | None = None
    failed_again: list[Failure] = field(default_factory=list)
    committed: bool = False
    refused: dict[str, Failure | None] = field(default_factory=dict)

    @property
    def codes_again(self) -> list[str]:
        return [failure.kafka_error.name() for failure in self.failed_again]

    def __str__(self) -> str:
        return f"{self.failure}; came back by {self.came_back_by}; again {list(map(str, self.failed_again))}"


class Application:
    """A plain producer application that does what the errors are named for."""

    def __init__(self, cluster: MockCluster, *, generated_id: bool = False, **settings: Any) -> None:
        pinned = {} if generated_id else {"transactional.id": f"pinned-{uuid.uuid4().hex[:8]}"}
        connection = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "logger": SILENT}
        self.producer = EosProducer({**connection, **pinned, **settings}, limits=LIMITS, hook=lambda _: None)
        self.calls: dict[str, Callable[[], object]] = {
            "begin_transaction": self.producer.begin_transaction,
            "produce": lambda: self.producer.produce(SINK, b"output", on_delivery=self._delivered),
            "flush": lambda: self.producer.flush(30),
            "send_offsets_to_transaction": lambda: self.producer.send_offsets_to_transaction(
                [TopicPartition(SOURCE, 0, 7)], MEMBERSHIP
            ),
            "commit_transaction": self.producer.commit_transaction,
            "abort_transaction": self.producer.abort_transaction,
            "init_transactions": self.producer.init_transactions,
        }
        self.deliveries: list[KafkaError | None] = []

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        self.deliveries.append(error)

    def call(self, name: str) -> Failure | None:
        try:
            self.calls[name]()
        except errors.EosError as error:
            return Failure(name, error)
        return None

    def transaction(self, end: str = "commit_transaction", *, offsets: bool = True) -> Failure | None:
        """One output and one input offset; returns the first failure."""
        self.deliveries.clear()
        steps = ["begin_transaction", "produce", "flush", *(["send_offsets_to_transaction"] if offsets else []), end]
        return next(filter(None, map(self.call, steps)), None)

    def failing_transaction(self, end: str = "commit_transaction", *, offsets: bool = True) -> Failure:
        """The same, where it must not succeed."""
        failure = self.transaction(end, offsets=offsets)
        assert failure is not None, "the transaction was committed"
        return failure

    def live_on(self, failure: Failure | None, story: FailureAccount, *, offsets: bool = True) -> FailureAccount:
        """Do what ``failure`` is named for, and go on until a transaction commits or something says stop."""
        story.failure = failure
        while not story.committed and len(story.failed_again) < 3:
            if failure is not None:
                way = _named_way(failure.error)
                if way is None:
                    return story
                story.came_back_by = story.came_back_by or way
                failure = self.call(way)
            if failure is None:
                failure = self.transaction(offsets=offsets)
                story.committed = failure is None and self.deliveries == [None]
            if failure is not None:
                story.failed_again.append(failure)
        return story

    def close(self) -> None:
        self.producer.close()
        for thread in threading.enumerate():
            if thread.name == f"eos-producer-{self.producer.transactional_id}":
                thread.join(LEFT_BEHIND_S)


def _named_way(error: errors.EosError) -> str | None:
    if isinstance(error, errors.AbortableError):
        return "abort_transaction"
    is_finished = isinstance(error, (errors.RebuildProducerError, errors.UnknownOutcomeError))
    return "init_transactions" if is_finished else None


@contextmanager
def application(brokers: int = 1, **settings: Any) -> Iterator[tuple[MockCluster, Application]]:
    with mock_cluster(brokers) as cluster:
        cluster.create_topic(SOURCE)
        cluster.create_topic(SINK)
        running = Application(cluster, **settings)
        try:
            yield cluster, running
        finally:
            running.close()
