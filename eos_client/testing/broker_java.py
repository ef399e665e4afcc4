"""The Java commands of an embedded broker, and the archive of classes that makes all starts but the first faster.

The archive is Java's dynamic class data sharing (JEP 350): a broker writes it at an orderly shutdown, and others map it
instead of loading and verifying the same classes again. Java ignores an archive of another Java or class path, and
crashes or hangs with a damaged one, so its name contains its checksum.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from eos_client.testing.broker_settings import CHEAP_JVM
from eos_client.testing.cached_folder import sha256

if TYPE_CHECKING:
    from pathlib import Path

    from eos_client.testing.java_runtime import JavaRuntime

_LOG = "-Dorg.slf4j.simpleLogger."
_LOG_TIMES = (f"{_LOG}showDateTime=true", f"{_LOG}dateTimeFormat=[yyyy-MM-dd HH:mm:ss,SSS]")
_CHECKSUM_DIGITS = 16
_QUIET_ARCHIVE = "-Xlog:cds*=off"  # a class that is not archived or mapped only costs time


class BrokerJava:
    """The commands for one folder of Kafka's jars and one Java."""

    def __init__(self, java: JavaRuntime, jars: Path, heap_mb: int) -> None:
        self._java = java
        self._jars = jars
        self._heap_mb = heap_mb
        self._archive = next((path for path in self._archives() if path == self._archive_name(path)), None)

    @property
    def has_archive(self) -> bool:
        """Whether its commands map an archive of classes."""
        return self._archive is not None

    def format_command(self, cluster_id: str, properties: Path) -> list[str]:
        """Return the command that formats a data directory, as ``kafka-storage format`` does."""
        arguments = ("format", "--cluster-id", cluster_id, "--config", str(properties))
        options = (f"{_LOG}defaultLogLevel=warn", *self._mapped_archive())
        return self._command(options, "kafka.tools.StorageTool", *arguments)

    def broker_command(self, properties: Path, classes: Path) -> list[str]:
        """Return the command of a broker; without an archive, the broker writes one to ``classes`` at its shutdown."""
        archive = self._mapped_archive() or (_QUIET_ARCHIVE, f"-XX:ArchiveClassesAtExit={classes}")
        return self._command((*_LOG_TIMES, *archive), "kafka.Kafka", str(properties))

    def keep_archive(self, classes: Path) -> None:
        """Move the archive of a broker into the jars' folder; if that is not writable, delete it."""
        if not classes.exists():
            return
        arriving, replaced = self._jars / f".classes-{os.getpid()}-{id(self)}", self._archives()
        with suppress(OSError):
            shutil.move(classes, arriving)
            self._archive = arriving.replace(self._archive_name(arriving))
            for path in replaced:
                path.unlink(missing_ok=True)
        classes.unlink(missing_ok=True)

    def _archives(self) -> list[Path]:
        return sorted(self._jars.glob(f"classes-{self._java.build}-*.jsa"))

    def _archive_name(self, archive: Path) -> Path:
        return self._jars / f"classes-{self._java.build}-{sha256(archive)[:_CHECKSUM_DIGITS]}.jsa"

    def _mapped_archive(self) -> tuple[str, ...]:
        return (_QUIET_ARCHIVE, f"-XX:SharedArchiveFile={self._archive}") if self._archive else ()

    def _command(self, options: tuple[str, ...], main_class: str, *arguments: str) -> list[str]:
        return [
            *(str(self._java.executable), f"-Xmx{self._heap_mb}m", *CHEAP_JVM, *options),
            *("-cp", f"{self._jars}/*", main_class, *arguments),
        ]
