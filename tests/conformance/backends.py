"""Where a conformance test runs: on the simulated cluster or on a real broker, behind one surface.

A test knows confluent_kafka's API and this surface only. What differs by Kafka's version is told by
``commit_validation``: the simulated cluster runs as each of the versions that are compared.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys
import threading
import time
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public by its documentation, not by __all__
    AdminClient,
    NewTopic,
    OffsetSpec,
)

from eos_client.core.model import UNJOINED
from eos_client.testing import SimulatedCluster
from eos_client.testing.simulated_clients.group_metadata import decode
from eos_client.testing.simulation.model import PartitionKey
from eos_client.testing.simulation.settings import BrokerSettings
from tests.support.protocols import CONSUMER, settings_of
from tests.support.waiting import wait_for
from tests.verification.answers import settled
from tests.verification.leaving import leave

SESSION_S = 12.0  # shorter than the time after which ids are forgotten
HEARTBEAT_S = 0.1
TRANSACTIONAL_ID_EXPIRATION_S = 15.0
TRANSACTION_CHECK_S = 1.0
LIMIT_S = 60.0
_POLL_S = 0.02
_ADMIN_S = 60.0
_CLOSE_S = 5.0
_CLASSIC_TIMES = {
    "session.timeout.ms": round(SESSION_S * 1000),
    "heartbeat.interval.ms": round(HEARTBEAT_S * 1000),
}
_CALLBACKS = ("on_assign", "on_revoke", "on_lost")
QUICK = {"reconnect.backoff.ms": 10, "log_level": 0}
_CALLBACK_SETTINGS = ("on_commit", "on_delivery", "error_cb", "stats_cb", "logger")
_ROOT = Path(__file__).parents[2]

EXACT, ASSIGNMENT_EPOCH = "exact", "assignment_epoch"
VERSIONS = {"4.1.2": EXACT, "4.3.1": ASSIGNMENT_EPOCH}
BROKER_PROPERTIES = {
    "auto.create.topics.enable": "false",
    "group.consumer.session.timeout.ms": str(round(SESSION_S * 1000)),
    "group.consumer.heartbeat.interval.ms": str(round(HEARTBEAT_S * 1000)),
    # Kafka 4.3 collects what changes for a second before it assigns anew
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transactional.id.expiration.ms": str(round(TRANSACTIONAL_ID_EXPIRATION_S * 1000)),
    "transaction.remove.expired.transaction.cleanup.interval.ms": str(round(TRANSACTION_CHECK_S * 1000)),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(round(TRANSACTION_CHECK_S * 1000)),
}


def waits_long(test: Callable[..., Any]) -> Callable[..., Any]:
    """Run this test on real brokers only when asked for (``-m soak``): it waits for seconds there."""
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
        made = self._consumer({**self._address, **QUICK, "fetch.wait.max.ms": 20, **config})
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
        """A `Member` that can be `frozen()` and `kill()`ed; on real brokers a process of its own."""
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
    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Move the start of the partition's log."""

    def fill(self, topic: str, counts: int | Mapping[int, int], *, start: int = 0) -> None:
        """Write `p-n`, n = start, start + 1, ..., into each partition p; `counts` by partition, or for partition 0."""
        producer = self.producer({})
        for partition, count in ({0: counts} if isinstance(counts, int) else counts).items():
            for number in range(start, start + count):
                producer.produce(topic, f"{partition}-{number}".encode(), partition=partition)
        assert producer.flush(LIMIT_S) == 0

    def read(
        self, topic: str, partitions: int = 1, *, isolation: str = "read_committed", limit_s: float = LIMIT_S
    ) -> list[Any]:
        """The messages of the topic as a new reader with that isolation level sees them now, by partition."""
        reader = self._reader(isolation)
        reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        unfinished, found = set(range(partitions)), []
        deadline_s = self.clock() + limit_s
        while unfinished:
            assert self.clock() < deadline_s, f"the end of {topic} {sorted(unfinished)} is not reached"
            for message in reader.consume(500, 0.1):
                if message.error() is None:
                    found.append(message)
                else:
                    unfinished.discard(message.partition())
        reader.close()
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    def values(self, topic: str, partitions: int = 1, *, isolation: str = "read_committed") -> list[bytes]:
        """The values of what `read` returns."""
        return [message.value() for message in self.read(topic, partitions, isolation=isolation)]

    def _reader(self, isolation: str) -> Any:
        return self.consumer(
            {
                "group.id": self.unique("reader"),
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )

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


# -- members ---------------------------------------------------------------------------------------------------------


class Member:
    """A consumer subscribed to a topic; notes what its callbacks saw and what it was handed."""

    def __init__(
        self, backend: Backend, protocol: str, group: str, topic: str, *, without: Iterable[str] = (), **settings: Any
    ) -> None:
        by_protocol = settings_of(protocol) | ({} if protocol == CONSUMER else _CLASSIC_TIMES)
        self.backend = backend
        self.consumer = backend.consumer(
            {
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **by_protocol,
                **dotted(settings),
            }
        )
        self.seen: list[tuple[str, list[int], int]] = []  # (callback, partitions, generation inside)
        self.got: list[Any] = []
        self.errors: list[Any] = []
        self.inside: Callable[[str, list[Any]], Any] = lambda kind, partitions: None
        self._closing = False
        self._callbacks = {name: self._noting(name) for name in _CALLBACKS if name not in without}
        if topic:
            self.subscribe(topic)

    def _noting(self, name: str) -> Callable[[Any, list[Any]], None]:
        def callback(_: Any, partitions: list[Any]) -> None:
            self.seen.append((name, sorted(p.partition for p in partitions), self._generation_inside()))
            self.inside(name, partitions)

        return callback

    def _generation_inside(self) -> int:
        try:
            return self.generation
        except RuntimeError:
            if not self._closing:
                raise
            return UNJOINED.generation_id  # librdkafka may serve a callback of close() when it has left the group

    def subscribe(self, *topics: str) -> None:
        """Subscribe, with the callbacks that note."""
        self.consumer.subscribe(list(topics), **self._callbacks)

    def poll(self, timeout: float = _POLL_S) -> None:
        """Serve callbacks, and keep what is handed over."""
        for message in self.consumer.consume(500, timeout):
            (self.got if message.error() is None else self.errors).append(message)

    @property
    def metadata(self) -> bytes:
        return bytes(self.consumer.consumer_group_metadata())

    @property
    def generation(self) -> int:
        return decode(self.metadata)[1].generation

    @property
    def member_id(self) -> str:
        return decode(self.metadata)[1].member_id

    @property
    def owned(self) -> list[int]:
        return sorted(p.partition for p in self.consumer.assignment())

    @property
    def topics(self) -> set[str]:
        return {p.topic for p in self.consumer.assignment()}

    @property
    def values(self) -> list[str]:
        return [message.value().decode() for message in self.got]

    @property
    def codes(self) -> list[str]:
        """The names of the errors that were handed over."""
        return [message.error().name() for message in self.errors]

    def told(self, since: int = 0) -> list[tuple[str, list[int]]]:
        """What the callbacks were told, without the generations."""
        return [(name, numbers) for name, numbers, _ in self.seen[since:]]

    def commit(self, **given: Any) -> str | None:
        """Commit synchronously, the present positions unless others are given; the name of the error, if any."""
        try:
            self.consumer.commit(asynchronous=False, **given)
        except KafkaException as refused:
            return str(refused.args[0].name())
        return None

    def close(self) -> None:
        self._closing = True
        self.consumer.close()


def dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments as librdkafka's properties; callbacks keep their names."""
    return {key if key in _CALLBACK_SETTINGS else key.replace("_", "."): value for key, value in settings.items()}


class FreezableMember(Member):
    """A member on the simulated cluster that a test stops as a signal would."""

    def __init__(self, backend: SimulatedBackend, *arguments: Any, client_id: str, **settings: Any) -> None:
        super().__init__(backend, *arguments, client_id=client_id, **settings)
        self._cluster = backend.cluster
        self._client_id = client_id

    def frozen(self) -> contextlib.AbstractContextManager[None]:
        """Stopped as by SIGSTOP until the block ends."""
        return self._cluster.zombie(self._client_id)

    def kill(self) -> None:
        """Ended as by SIGKILL."""
        self._cluster.kill(self._client_id)


class FarMember:
    """A member in a process of its own. Attributes and calls that take and return plain values, nothing else."""

    def __init__(self, bootstrap: str, commit_validation: str, arguments: Any, settings: Any) -> None:
        given = json.dumps([bootstrap, commit_validation, arguments, settings])
        program = "import sys; from tests.conformance.backends import serve; serve(sys.argv[1])"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT
        )
        self._ask("owned")  # it is there

    def _ask(self, name: str, *arguments: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([name, *arguments]) + "\n")
        stdin.flush()
        return json.loads(stdout.readline())

    def poll(self, timeout: float = _POLL_S) -> None:
        self._ask("poll", timeout)

    def told(self, since: int = 0) -> list[tuple[str, list[int]]]:
        return [(name, numbers) for name, numbers in self._ask("told", since)]

    def __getattr__(self, name: str) -> Any:
        return self._ask(name)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(_CLOSE_S)

    def close(self) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def serve(given: str) -> None:
    """Be the process of a `FarMember`."""
    bootstrap, commit_validation, arguments, settings = json.loads(given)
    member = Member(RealBackend(bootstrap, commit_validation), *arguments, **settings)
    for line in sys.stdin:
        name, *values = json.loads(line)
        found = getattr(member, name)
        print(json.dumps(found(*values) if callable(found) else found), flush=True)
