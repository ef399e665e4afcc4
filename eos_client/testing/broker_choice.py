"""The kind of broker that the fixtures of `pytest_plugin` start, chosen when the first test needs one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eos_client.testing.broker_settings import DEFAULT_VERSION
from eos_client.testing.container_kafka import ContainerKafka
from eos_client.testing.docker_engine import engine_version
from eos_client.testing.embedded_kafka import EmbeddedKafka
from eos_client.testing.terminal_lines import write_terminal_line

if TYPE_CHECKING:
    import pytest

    from eos_client.testing.broker import KafkaBroker


class BrokerChoice:
    """The kind of broker of this session, and the reason for it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.kind: str = str(config.getoption("--eos-kafka"))
        self.version: str = str(config.getoption("--eos-kafka-version") or DEFAULT_VERSION)
        self.reason = f"--eos-kafka={self.kind}"
        self.started: list[str] = []
        if self.kind == "auto":
            self.kind, self.reason = _available_kind()

    def new_broker(self, **options: Any) -> KafkaBroker:
        """Start one broker of the chosen kind and report it in the terminal."""
        options["version"] = options.get("version") or self.version
        broker: KafkaBroker
        if self.kind == "container":
            broker = container = ContainerKafka(**options).start()
            what = f"container of {container.image}"
        else:
            broker = EmbeddedKafka(on_progress=self._report, **options).start()
            what = f"process, Kafka {broker.version}"
        line = f"{what} ({self.reason})"
        if line not in self.started:
            self.started.append(line)
            self._report(line)
        return broker

    def _report(self, line: str) -> None:
        write_terminal_line(self._config, f"kafka: {line}")


def _available_kind() -> tuple[str, str]:
    version = engine_version()
    if version is None:
        return "process", "--eos-kafka=auto: no Docker engine answers"
    return "container", f"--eos-kafka=auto: Docker engine {version} answers"
