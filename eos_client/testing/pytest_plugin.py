"""pytest fixtures with a real Kafka broker: ``kafka_broker`` for the session, ``make_kafka_broker`` for more.

``--eos-kafka=container`` runs them in containers of a Docker engine, ``--eos-kafka=process`` as child processes;
``auto``, the default, uses a container if a Docker engine answers, and the terminal reports which it was.
The traceback of a failing test leaves out this package's own frames; ``--full-trace`` shows them.
Every pytest session in an environment with this package loads this plugin, so it imports nothing before a test
uses a broker.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eos_client.testing.broker import KafkaBroker
    from eos_client.testing.broker_choice import BrokerChoice

pytest_plugins = ["eos_client.testing.database_plugin", "eos_client.testing.simulation_plugin"]
_KINDS = ("auto", "container", "process")
_CHOICE = pytest.StashKey["BrokerChoice"]()


class MakeKafkaBroker(Protocol):
    """The type of the fixture ``make_kafka_broker``: a function that starts one more broker for the test."""

    def __call__(
        self, *, version: str | None = None, properties: Mapping[str, str] | None = None, **options: Any
    ) -> KafkaBroker:
        """Start a broker of Kafka ``version``, with ``properties`` of ``server.properties``; it has served a client.

        ``options``: ``port``, ``advertised_port``, ``heap_mb`` and ``start_timeout_s`` of `EmbeddedKafka`, which
        `ContainerKafka` has, too. Raises `EmbeddedKafkaError` where it cannot be started.
        """
        ...


def _choice(config: pytest.Config) -> BrokerChoice:
    from eos_client.testing.broker_choice import BrokerChoice  # noqa: PLC0415  not in every test run

    if _CHOICE not in config.stash:
        config.stash[_CHOICE] = BrokerChoice(config)
    return config.stash[_CHOICE]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--eos-kafka``, ``--eos-kafka-version`` and the ini option ``eos_client_frames``."""
    group = parser.getgroup("eos-client", "real Kafka brokers (eos-client)")
    group.addoption(
        "--eos-kafka",
        choices=_KINDS,
        default="auto",
        help="run the brokers of the Kafka fixtures in containers or as child processes; "
        "auto: containers where a Docker engine answers (default: %(default)s)",
    )
    group.addoption("--eos-kafka-version", help="Kafka version of these brokers (default: that of EmbeddedKafka)")
    parser.addini("eos_client_frames", "show the frames of eos_client in tracebacks", type="bool", default=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Hide this package's frames from the traceback of a failure, but not those of its fixtures."""
    if call.excinfo is None or item.config.getini("eos_client_frames"):
        return
    for name, module in list(sys.modules.items()):
        if name.startswith("eos_client.") and not name.endswith("_plugin"):
            vars(module).setdefault("__tracebackhide__", True)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Report at the end on which brokers the tests ran."""
    if _CHOICE in config.stash:
        for line in config.stash[_CHOICE].started:
            terminalreporter.write_line(f"kafka: {line}")


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config) -> Iterator[KafkaBroker]:
    """Run one real broker for all tests of the session; each test needs its own topic and group names.

    Under pytest-xdist a session is one worker: each of them starts a broker of its own when a test first asks for it.
    """
    from eos_client.errors import EmbeddedKafkaError  # noqa: PLC0415  not in every test run

    try:
        broker = _choice(pytestconfig).new_broker()
    except EmbeddedKafkaError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None  # no line of a test is to blame
    yield broker
    broker.stop()


@pytest.fixture
def make_kafka_broker(pytestconfig: pytest.Config) -> Iterator[MakeKafkaBroker]:
    """Return a function that starts further brokers, which stop at the end of the test."""
    with ExitStack() as stack:

        def make(
            *, version: str | None = None, properties: Mapping[str, str] | None = None, **options: Any
        ) -> KafkaBroker:
            """Start one more broker, as `MakeKafkaBroker` says."""
            broker = _choice(pytestconfig).new_broker(version=version, properties=properties, **options)
            stack.callback(broker.stop)
            return broker

        yield make
