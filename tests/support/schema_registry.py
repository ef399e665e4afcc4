"""A real Schema Registry on loopback: Apicurio Registry, a Java program that answers to Confluent's API, too.

Its archive is downloaded once into the cache of the brokers' jars, from the repository that these come from.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from eos_client.testing.broker_settings import CHEAP_JVM, HOST
from eos_client.testing.cached_folder import cache_root, sha256
from eos_client.testing.free_ports import free_ports
from eos_client.testing.java_runtime import find_java
from eos_client.testing.kept_process import KeptProcess
from eos_client.testing.pinned_jars import PinnedJar, download_pinned
from tests.support.waiting import WAIT_S, wait_for

VERSION = "3.0.9"
_HEAP_MB = 256
_ANSWER_S = 5.0
_TAIL_CHARACTERS = 2_000


class _PinnedArchive(PinnedJar):
    @property
    def coordinates(self):
        return (*super().coordinates, "all", "tar.gz")


_ARCHIVE = _PinnedArchive(
    f"io/apicurio/apicurio-registry-app/{VERSION}/apicurio-registry-app-{VERSION}-all.tar.gz",
    "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43",
)


class SchemaRegistry:
    """One registry, with all that it keeps in ``folder``: its schemas are still there when it is started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "log"
        (port,) = free_ports(1)
        self._options = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": port,
            "apicurio.datasource.url": f"jdbc:h2:file:{folder / 'schemas'}",
        }
        self.url = f"http://{HOST}:{port}/apis/ccompat/v7"

    def start(self) -> None:
        """Return when it answers."""
        options = [f"-D{name}={value}" for name, value in self._options.items()]
        jar = self._folder / f"apicurio-registry-app-{VERSION}-runner.jar"
        command = [str(find_java().executable), f"-Xmx{_HEAP_MB}m", *CHEAP_JVM, *options, "-jar", str(jar)]
        self._process = KeptProcess(command, log_path=self._log, paths=[self._folder])
        try:
            wait_for(self._answers, lambda: f"the registry answers; it said {self._said()}")
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """Shut it down in order; what does not end by itself is killed."""
        self._process.send_signal(signal.SIGTERM)
        self._process.exit_code(WAIT_S)
        self.close()

    def freeze(self) -> None:
        """Let it take connections and answer nobody."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._process.dismiss()

    def _answers(self) -> bool:
        if self._process.exit_code() is not None:
            raise RuntimeError(f"the registry has ended; it said {self._said()}")
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=_ANSWER_S):
                return True
        except OSError:
            return False

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-_TAIL_CHARACTERS:]


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    """Run a registry that knows no schema yet."""
    with tempfile.TemporaryDirectory(prefix="eos-schema-registry-") as folder:
        shutil.unpack_archive(_archive(), folder, filter="data")
        registry = SchemaRegistry(Path(folder))
        registry.start()
        try:
            yield registry
        finally:
            registry.close()


def _archive() -> Path:
    """Return the archive in the cache, downloaded now if it is not there whole."""
    archive = cache_root() / _ARCHIVE.file_name
    archive.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{archive}.lock"):
        if not archive.exists() or sha256(archive) != _ARCHIVE.sha256:
            with tempfile.TemporaryDirectory(dir=archive.parent) as work:
                download_pinned((_ARCHIVE,), f"Apicurio Registry {VERSION}", Path(work), print)
                Path(work, archive.name).replace(archive)
    return archive
