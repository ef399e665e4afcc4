"""A pytest plugin that gives all workers of a session of pytest-xdist the same brokers, `kafka_broker` among them.

The session's own process starts each when a test of any worker first asks for it, and stops it at its end. They outlive
a worker that crashes, and do not outlive the session's process, however that ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from eos_client.errors import EmbeddedKafkaError

if TYPE_CHECKING:
    from eos_client.testing.broker import KafkaBroker

_COUNTER = pytest.StashKey["BrokerCounter"]()
_ADDRESS = "session_brokers"
_ASKING_MAX = 64  # workers, at the same time


class _Wanted(NamedTuple):
    """What a worker asks for; without a version it is the one that the session runs."""

    version: str | None
    properties: frozenset[tuple[str, str]]


class SessionBroker(NamedTuple):
    """What a worker knows of a broker: enough to use it, nothing to stop it by."""

    kind: str
    version: str
    bootstrap_servers: str

    @property
    def port(self) -> int:
        """Where it listens for clients."""
        return int(self.bootstrap_servers.rpartition(":")[2])


@dataclass
class _OfAKind:
    """The broker of one kind, and the lock of who starts or stops it."""

    lock: Lock = field(default_factory=Lock)
    broker: KafkaBroker | None = None


class BrokerCounter:
    """Hands brokers out to the workers, in the session's own process; those of several kinds may start side by side."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._lock = Lock()
        self._kinds: dict[_Wanted, _OfAKind] = {}
        self._is_closed = False
        self._listener = Listener(backlog=_ASKING_MAX)
        self.address = str(self._listener.address)
        self._serving = Thread(target=self._serve, name="session-brokers", daemon=True)
        self._serving.start()

    def _serve(self) -> None:
        while not self._is_closed:
            asking = self._listener.accept()
            Thread(target=self._attend, args=(asking,), name="session-brokers-worker", daemon=True).start()

    def _attend(self, asking: Connection[Any, Any]) -> None:
        with suppress(EOFError, OSError), asking:  # a worker may crash while it asks
            asking.send(self._answer(asking.recv()))

    def _answer(self, wanted: _Wanted) -> SessionBroker | EmbeddedKafkaError:
        from eos_client.testing.broker_choice import BrokerChoice  # noqa: PLC0415  not in every test run

        with self._lock:
            kind = self._kinds.setdefault(wanted, _OfAKind())
        with kind.lock:
            if kind.broker is None:
                choice, properties = BrokerChoice(self._config), dict(wanted.properties)
                try:
                    kind.broker = choice.new_broker(version=wanted.version, properties=properties)
                except EmbeddedKafkaError as error:
                    return error
            return SessionBroker(kind.broker.kind, kind.broker.version, kind.broker.bootstrap_servers)

    def close(self) -> None:
        """Stop the brokers; nobody may ask any more."""
        self._is_closed = True
        Client(self.address).close()
        self._serving.join()
        self._listener.close()
        for kind in self._kinds.values():
            with kind.lock:
                if kind.broker is not None:
                    kind.broker.kill()  # an orderly shutdown would write what thousands of partitions hold
                    kind.broker.stop()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker, before it starts, where to ask."""
    if _COUNTER not in node.config.stash:
        node.config.stash[_COUNTER] = BrokerCounter(node.config)
    node.workerinput[_ADDRESS] = node.config.stash[_COUNTER].address


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the brokers when all workers have ended."""
    if _COUNTER in config.stash:
        config.stash[_COUNTER].close()


def session_broker(
    config: pytest.Config, properties: Mapping[str, str], version: str | None = None
) -> SessionBroker | None:
    """Ask for a broker of all workers; None where there are none. Raises `EmbeddedKafkaError` if it does not start."""
    address = getattr(config, "workerinput", {}).get(_ADDRESS)
    if address is None:
        return None
    with Client(address) as asking:
        asking.send(_Wanted(version, frozenset(properties.items())))
        answer: SessionBroker | EmbeddedKafkaError = asking.recv()
    if isinstance(answer, EmbeddedKafkaError):
        raise answer
    return answer


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Any:
    """The broker of all workers; without workers, that of the package's own fixture."""
    try:
        broker = session_broker(request.config, {})
    except EmbeddedKafkaError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    return broker or request.getfixturevalue("kafka_broker")
