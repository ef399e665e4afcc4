"""Downloads the jars of each Kafka version once into the user's cache (`cached_folder`), and checks what came."""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing.cached_folder import cached_folder
from eos_client.testing.jar_resolvers import JarSet, resolve_jars

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eos_client.testing.java_runtime import JavaRuntime

_SLF4J_SIMPLE = (
    "org.slf4j",
    "slf4j-simple",
    "1.7.36",
)  # the server's jars have a logging interface without an implementation
_VERSION = re.compile(r"\d+\.\d+\.\d+(-\w+)?")


def kafka_jars(version: str, java: JavaRuntime, on_progress: Callable[[str], None]) -> Path:
    """Return the folder with the jars of this Kafka version; downloads them if it is missing or incomplete.

    Raises `EmbeddedKafkaError` if that fails; ``on_progress`` is called with one line a step.
    """
    return cached_jars(kafka_jar_set(version), java, on_progress)


def kafka_jar_set(version: str) -> JarSet:
    """Return the jars of a broker of this version; raises `EmbeddedKafkaError` if it is no version."""
    if _VERSION.fullmatch(version) is None:
        raise EmbeddedKafkaError(f"{version!r} is no Kafka version: give one like 4.3.1")
    return JarSet(
        title=f"Kafka {version}",
        folder=f"kafka-{version}",
        artifacts=(("org.apache.kafka", "kafka_2.13", version), _SLF4J_SIMPLE),
        landmark=rf"kafka_.*-{re.escape(version)}\.jar",
        size_mb=45,
    )


def cached_jars(jars: JarSet, java: JavaRuntime, on_progress: Callable[[str], None]) -> Path:
    """Return the folder with these jars; downloads them if it is missing or incomplete.

    Raises `EmbeddedKafkaError` if that fails; ``on_progress`` is called with one line a step.
    """

    def fill(folder: Path, work: Path) -> None:
        resolve_jars(jars, folder, work, java, on_progress)
        _check(jars, folder)

    return cached_folder(jars.folder, jars.title, fill, on_progress)


def _check(wanted: JarSet, folder: Path) -> None:
    """Raise an error if the landmark is missing or a jar cannot be opened."""
    jars = sorted(folder.glob("*.jar"))
    names = {jar.name for jar in jars}
    if not any(re.fullmatch(wanted.landmark, name) for name in names):
        raise EmbeddedKafkaError(f"the download of {wanted.title} lacks {wanted.landmark}: {sorted(names)}")
    for jar in jars:
        if not zipfile.is_zipfile(jar):
            raise EmbeddedKafkaError(f"the download of {wanted.title} is damaged: {jar.name} is no jar; try again")
