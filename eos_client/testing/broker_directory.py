"""The files of one embedded broker: beside its log and its data, its properties and its class archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos_client.testing.server_directory import ServerDirectory

if TYPE_CHECKING:
    from pathlib import Path

_PROPERTIES, _CLASSES = "server.properties", "classes.jsa"


class BrokerDirectory(ServerDirectory):
    """A broker's log, properties, data and class archive, in the caller's folder or in a temporary one."""

    def __init__(self, directory: Path | None, *, keep: bool) -> None:
        super().__init__(
            directory,
            keep=keep,
            server="broker",
            prefix="eos-client-kafka-",
            log="broker.log",
            further=(_PROPERTIES, _CLASSES),
        )
        self.properties = self.base / _PROPERTIES
        self.classes = self.base / _CLASSES

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster that formatted the directory; None before that."""
        try:
            lines = (self.data / "meta.properties").read_text().splitlines()
        except FileNotFoundError:
            return None
        return next((line.split("=", 1)[1] for line in lines if line.startswith("cluster.id=")), None)

    def log_errors(self, lines: int) -> str:
        """Return the first lines of the log that report an error; after a long shutdown they are not in its tail."""
        found = [line for line in self.log_from(0).splitlines() if " ERROR " in line or "Exception: " in line]
        return "\n".join(found[:lines])
