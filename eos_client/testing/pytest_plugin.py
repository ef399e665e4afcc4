"""pytest fixtures with a real Kafka broker: ``kafka_broker`` for the session, ``make_kafka_broker`` for more.

``--kafka=container`` runs them in containers of a Docker engine, ``--kafka=process`` as child processes;
``auto``, the default, takes a container where a Docker engine answers, and the terminal says which it was.
Nothing is decided or started before a test asks for a broker.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from eos_client.testing.broker_settings import DEFAULT_VERSION
from eos_client.testing.container_kafka import ContainerKafka
from eos_client.testing.docker_engine import engine_version
from eos_client.testing.embedded_kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eos_client.testing.broker import KafkaBroker

pytest_plugins = ["eos_client.testing.simulation_plugin"]
_KINDS = ("auto", "container", "process")
_CHOICE = pytest.StashKey["BrokerChoice"]()


class MakeKafkaBroker(Protocol):
    """What the fixture ``make_kafka_broker`` is: a function that starts one more broker for the test."""

    def __call__(
        self, *, version: str | None = None, properties: Mapping[str, str] | None = None, **options: Any
    ) -> KafkaBroker:
        """Start a broker; ``options`` are further arguments of `EmbeddedKafka` that `ContainerKafka` has, too."""
        ...


class BrokerChoice:
    """Which kind of broker this session runs, decided when the first is wanted, and why."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.kind: str = str(config.getoption("--kafka"))
        self.version: str = str(config.getoption("--kafka-version"))
        self.reason = f"--kafka={self.kind}"
        self.started: list[str] = []
        if self.kind == "auto":
            self.kind, self.reason = _answering_kind()

    def new_broker(self, **options: Any) -> KafkaBroker:
        """Start one broker of the chosen kind and say so in the terminal."""
        options.setdefault("version", self.version)
        broker: KafkaBroker
        if self.kind == "container":
            broker = container = ContainerKafka(**options).start()
            what = f"container of {container.image}"
        else:
            broker = EmbeddedKafka(on_progress=self._say, **options).start()
            what = f"process, Kafka {broker.version}"
        line = f"{what} ({self.reason})"
        if line not in self.started:
            self.started.append(line)
            self._say(line)
        return broker

    def _say(self, line: str) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        with ExitStack() as stack:
            if capture is not None:
                stack.enter_context(capture.global_and_fixture_disabled())
            if terminal is not None:
                terminal.ensure_newline()
                terminal.write_line(f"kafka: {line}")


def _answering_kind() -> tuple[str, str]:
    version = engine_version()
    if version is None:
        return "process", "--kafka=auto: no Docker engine answers"
    return "container", f"--kafka=auto: Docker engine {version} answers"


def _choice(config: pytest.Config) -> BrokerChoice:
    if _CHOICE not in config.stash:
        config.stash[_CHOICE] = BrokerChoice(config)
    return config.stash[_CHOICE]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--kafka`` and ``--kafka-version``."""
    group = parser.getgroup("eos-client", "real Kafka brokers (eos-client)")
    group.addoption(
        "--kafka",
        choices=_KINDS,
        default="auto",
        help="run the brokers of the Kafka fixtures in containers or as child processes; "
        "auto: containers where a Docker engine answers (default: %(default)s)",
    )
    group.addoption("--kafka-version", default=DEFAULT_VERSION, help="Kafka version of these brokers (%(default)s)")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say at the end, too, on which brokers the tests ran."""
    if _CHOICE in config.stash:
        for line in config.stash[_CHOICE].started:
            terminalreporter.write_line(f"kafka: {line}")


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config) -> Iterator[KafkaBroker]:
    """Run one real broker for all tests of the session; choose topic and group names of your own on it."""
    broker = _choice(pytestconfig).new_broker()
    yield broker
    broker.stop()


@pytest.fixture
def make_kafka_broker(pytestconfig: pytest.Config) -> Iterator[MakeKafkaBroker]:
    """Return a function that starts further brokers, which stop at the end of the test."""
    with ExitStack() as stack:

        def make(
            *, version: str | None = None, properties: Mapping[str, str] | None = None, **options: Any
        ) -> KafkaBroker:
            if version is not None:
                options["version"] = version
            broker = _choice(pytestconfig).new_broker(properties=properties, **options)
            stack.callback(broker.stop)
            return broker

        yield make
