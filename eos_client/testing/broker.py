"""The interface of every broker of the test kit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Self


class KafkaBroker(Protocol):
    """A real single-node Kafka, as a process (`EmbeddedKafka`) or in a container (`ContainerKafka`)."""

    @property
    def kind(self) -> str:
        """``process`` or ``container``."""
        ...

    @property
    def version(self) -> str:
        """The Kafka version that it runs."""
        ...

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, ``HOST:PORT``."""
        ...

    @property
    def running(self) -> bool:
        """Whether it runs."""
        ...

    def start(self) -> Self:
        """Start it and return when it serves clients; `EmbeddedKafkaError` if it does not."""
        ...

    def stop(self, timeout_s: float = ...) -> None:
        """Stop it and remove its data."""
        ...

    def kill(self) -> None:
        """SIGKILL it; its data stay for `restart`."""
        ...

    def restart(self, timeout_s: float = ...) -> None:
        """Start it again on the same port and data, after a clean shutdown if it still runs."""
        ...

    def log_tail(self, lines: int = ...) -> str:
        """Return the last lines of its log."""
        ...
