"""Where a conformance test runs: on the simulated cluster or on a real broker, behind one surface.

A test knows confluent_kafka's API and this surface only. What differs by Kafka's version is told by
``commit_validation``: the simulated cluster runs as each of the versions that are compared.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public by its documentation, not by __all__
    AdminClient,
    NewTopic,
    OffsetSpec,
)

from eos_client.testing import SimulatedCluster
from eos_client.testing.simulator.brokers.model import PartitionKey
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from tests.conformance.members import FarMember, FreezableMember
from tests.conformance.versions import (
    HEARTBEAT_S,
    SESSION_S,
    TIMESTAMP_AFTER_MAX_S,
    TRANSACTION_CHECK_S,
    TRANSACTIONAL_ID_EXPIRATION_S,
)
from tests.support.reading import READING, read_to_the_end
from tests.support.waiting import wait_for
from tests.verification.answers import settled
from tests.verification.leaving import leave

LIMIT_S = 60.0
_POLL_S = 0.02
_ADMIN_S = 60.0
_CLOSE_S = 5.0
QUICK = {"reconnect.backoff.ms": 10, "log_level": 0}


def waits_long(test: Callable[..., Any]) -> Callable[..., Any]:
    """Run this test on real brokers only when asked for (``-m soak``): it waits for seconds there, or asks nothing."""
    test.waits_long = True  # type: ignore[attr-defined]
    return test


class Backend(ABC):
    """Clients with confluent_kafka's methods, on brokers with short sessions; closes at its end what it made."""

    def __init__(self, commit_validation: str) -> None:
        self.commit_validation = commit_validation
        self._clients: list[Any] = []

    @property
    @abstractmethod
    def is_simulated(self) -> bool:
        """For what a test cannot do or must not wait for elsewhere, never for other expectations."""

    # -- clients -------------------------------------------------------------------------------------------------

    def consumer(self, config: Mapping[str, Any]) -> Any:
        """A consumer with `config` and the brokers' address."""
        made = self._consumer({**self._address, **QUICK, "fetch.wait.max.ms": 100, **config})
        self._clients.append(made)
        return made

    def producer(self, config: Mapping[str, Any]) -> Any:
        """A producer with `config` and the brokers' address."""
        made = self._producer({**self._address, **QUICK, "linger.ms": 0, **config})
        self._clients.append(made)
        return made

    @abstractmethod
    def _consumer(self, config: Mapping[str, Any]) -> Any: ...

    @abstractmethod
    def _producer(self, config: Mapping[str, Any]) -> Any: ...

    @property
    @abstractmethod
    def _address(self) -> Mapping[str, Any]: ...

    def far_member(self, *arguments: Any, **settings: Any) -> Any:
        """A `BackendMember` that can be `frozen()` and `kill()`ed; on real brokers a process of its own."""
        raise NotImplementedError

    # -- what is there -------------------------------------------------------------------------------------------

    @abstractmethod
    def unique(self, prefix: str) -> str:
        """A name that nothing else on these brokers has."""

    def topic(self, partitions: int = 1, prefix: str = "topic") -> str:
        """The name of a new topic."""
        name = self.unique(prefix)
        self.create_topic(name, partitions)
        return name

    @abstractmethod
    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic, and wait until clients find it."""

    @abstractmethod
    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until clients find it no more."""

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Move the start of the partition's log."""

    def fill(self, topic: str, counts: int | Mapping[int, int], *, start: int = 0) -> None:
        """Write `p-n`, n = start, start + 1, ..., into each partition p; `counts` by partition, or for partition 0."""
        producer = self.producer({})
        for partition, count in ({0: counts} if isinstance(counts, int) else counts).items():
            for number in range(start, start + count):
                producer.produce(topic, f"{partition}-{number}".encode(), partition=partition)
        assert producer.flush(LIMIT_S) == 0

    def read(self, topic: str, partitions: int = 1, *, isolation: str = "read_committed") -> list[Any]:
        """The messages of the topic as a new reader with that isolation level sees them now, by partition."""
        reader = self.consumer({**READING, "group.id": self.unique("reader"), "isolation.level": isolation})
        found = read_to_the_end(reader, topic, partitions, limit_s=LIMIT_S, clock=self.clock)
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    def values(self, topic: str, partitions: int = 1, *, isolation: str = "read_committed") -> list[bytes]:
        """The values of what `read` returns."""
        return [message.value() for message in self.read(topic, partitions, isolation=isolation)]

    # -- time ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def clock(self) -> float:
        """Seconds since some moment."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Let time pass without polling any client."""

    def until(
        self,
        condition: Callable[[], Any],
        what: str = "the condition",
        *,
        limit_s: float = LIMIT_S,
        polling: Iterable[Any] = (),
    ) -> Any:
        """Poll each of `polling` in turn until `condition` holds; returns what it returned. Fails after `limit_s`."""
        polls = [partial(client.poll, _POLL_S) for client in polling] or [partial(self.wait, _POLL_S)]
        return wait_for(condition, what, *polls, timeout_s=limit_s, clock=self.clock)

    def for_a_while(self, seconds: float, *, polling: Iterable[Any] = ()) -> None:
        """Poll each of `polling` in turn for so long."""
        polled = list(polling)
        end_s = self.clock() + seconds
        while self.clock() < end_s:
            for client in polled:
                client.poll(_POLL_S)
            if not polled:
                self.wait(_POLL_S)

    @abstractmethod
    def close(self) -> None:
        """Close every client that is still open."""


class RealBackend(Backend):
    """A real broker, through confluent_kafka."""

    is_simulated = False

    def __init__(self, bootstrap: str, commit_validation: str) -> None:
        super().__init__(commit_validation)
        self.bootstrap = bootstrap
        self._admin = AdminClient({**self._address, "log_level": 0})

    @property
    def _address(self) -> Mapping[str, Any]:
        return {"bootstrap.servers": self.bootstrap}

    def _consumer(self, config: Mapping[str, Any]) -> Any:
        return Consumer(dict(config))

    def _producer(self, config: Mapping[str, Any]) -> Any:
        return Producer(dict(config))

    def unique(self, prefix: str) -> str:
        return f"{prefix}-{uuid.uuid4().hex[:8]}"

    def create_topic(self, name: str, partitions: int = 1) -> None:
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(_ADMIN_S)

        def is_there() -> bool:
            described = self._admin.list_topics(name, _ADMIN_S).topics[name]
            return described.error is None and len(described.partitions) == partitions

        self.until(is_there, f"topic {name} to be known")
        # A broker is named as the leader before it knows that it is, and refuses a producer's first batch then.
        ends = {TopicPartition(name, number): OffsetSpec.latest() for number in range(partitions)}
        settled(lambda: [answer.result(_ADMIN_S) for answer in self._admin.list_offsets(ends).values()])

    def delete_topic(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(_ADMIN_S)
        self.until(lambda: name not in self._admin.list_topics(timeout=_ADMIN_S).topics, f"topic {name} to be gone")

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        place = TopicPartition(topic, partition, before_offset)
        for done in self._admin.delete_records([place]).values():
            done.result(_ADMIN_S)

    def far_member(self, *arguments: Any, **settings: Any) -> Any:
        made = FarMember(self.bootstrap, self.commit_validation, arguments, settings)
        self._clients.append(made)
        return made

    def clock(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a fenced producer's close() cannot abort
            self._close_all()

    def _close_all(self) -> None:
        # side by side, and librdkafka's close() was seen to wait for ever
        closing = [threading.Thread(target=_close, args=(client,), daemon=True) for client in self._clients]
        for thread in closing:
            thread.start()
        deadline_s = self.clock() + _CLOSE_S
        for thread in closing:
            thread.join(max(0.0, deadline_s - self.clock()))


class SimulatedBackend(Backend):
    """The simulated cluster."""

    is_simulated = True

    def __init__(self, seed: int, commit_validation: str) -> None:
        super().__init__(commit_validation)
        self._numbers = itertools.count(1)
        self.cluster = SimulatedCluster(
            seed,
            commit_validation=commit_validation,
            settings=BrokerSettings(
                log_message_timestamp_after_max_s=TIMESTAMP_AFTER_MAX_S,
                group_min_session_timeout_s=1.0,  # as the embedded broker has it
                group_consumer_session_timeout_s=SESSION_S,
                group_consumer_heartbeat_interval_s=HEARTBEAT_S,
                transaction_abort_check_interval_s=TRANSACTION_CHECK_S,
                transactional_id_expiration_s=TRANSACTIONAL_ID_EXPIRATION_S,
            ),
        )

    @property
    def _address(self) -> Mapping[str, Any]:
        return {"bootstrap.servers": "simulated"}

    def _consumer(self, config: Mapping[str, Any]) -> Any:
        return self.cluster.consumer(config)

    def _producer(self, config: Mapping[str, Any]) -> Any:
        return self.cluster.producer(config)

    def far_member(self, *arguments: Any, **settings: Any) -> Any:
        return FreezableMember(self, *arguments, client_id=self.unique("far"), **settings)

    def unique(self, prefix: str) -> str:
        return f"{prefix}-{next(self._numbers)}"

    def create_topic(self, name: str, partitions: int = 1) -> None:
        self.cluster.create_topic(name, partitions)

    def delete_topic(self, name: str) -> None:
        self.cluster.delete_topic(name)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        self.cluster.brokers.log(PartitionKey(topic, partition)).delete_records(before_offset)

    def clock(self) -> float:
        return self.cluster.clock()

    def wait(self, seconds: float) -> None:
        self.cluster.advance(seconds)

    def close(self) -> None:
        for client in self._clients:
            _close(client)


def _close(client: Any) -> None:
    with contextlib.suppress(Exception):  # a test of a broken client has asserted that already
        if isinstance(client, Consumer):
            leave(client)
        else:
            client.close()


@contextlib.contextmanager
def closing(backend: Backend) -> Iterator[Backend]:
    """The backend for one test."""
    try:
        yield backend
    finally:
        backend.close()
