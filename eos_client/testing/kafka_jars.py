"""Downloads the jars of each Kafka version once into the user's cache and verifies them.

A set is resolved into a temporary folder and renamed with a manifest of checksums, under a lock between processes, so
that no process sees an incomplete set. A folder that does not match its manifest is replaced.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing.jar_resolvers import JarSet, resolve_jars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eos_client.testing.java_runtime import JavaRuntime

_MANIFEST = "SHA256SUMS"
_LOCK_TIMEOUT_S = 900.0
_LOCK_POLL_S = 0.2
_SLF4J_SIMPLE = (
    "org.slf4j",
    "slf4j-simple",
    "1.7.36",
)  # the server's jars have a logging interface without an implementation
_VERSION = re.compile(r"\d+\.\d+\.\d+(-\w+)?")


def cache_root() -> Path:
    """``$XDG_CACHE_HOME/eos-client``, by default ``~/.cache/eos-client``."""
    configured = os.environ.get("XDG_CACHE_HOME")
    return Path(configured).absolute() / "eos-client" if configured else Path.home() / ".cache" / "eos-client"


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
    folder = cache_root() / jars.folder
    if is_whole(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EmbeddedKafkaError(
            f"the cache folder {folder.parent} cannot be made: {error}; set XDG_CACHE_HOME"
        ) from error
    with _locked(folder.with_name(folder.name + ".lock"), on_progress):
        if not is_whole(folder):
            _download(jars, folder, java, on_progress)
    return folder


def is_whole(folder: Path) -> bool:
    """Whether every jar of the folder's manifest exists, unchanged."""
    try:
        listed = (folder / _MANIFEST).read_text().splitlines()
        return bool(listed) and all(
            sha256(folder / name) == digest for digest, name in (line.split("  ", 1) for line in listed)
        )
    except (OSError, ValueError):
        return False


def _download(wanted: JarSet, folder: Path, java: JavaRuntime, on_progress: Callable[[str], None]) -> None:
    """Download with the lock held; removes the files of an earlier, interrupted download."""
    prefix = f".{folder.name}."
    for leftover in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    if folder.exists():
        on_progress(f"the cached jars in {folder} are damaged: downloading them again")
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent) as work:
        fresh, trash = Path(work, "jars"), Path(work, "replaced")
        fresh.mkdir()
        resolve_jars(wanted, fresh, Path(work), java, on_progress)
        jars = _checked(wanted, fresh)
        (fresh / _MANIFEST).write_text("".join(f"{sha256(jar)}  {jar.name}\n" for jar in jars))
        if folder.exists():
            folder.rename(trash)
        fresh.rename(folder)
    on_progress(f"{wanted.title} is in {folder} ({len(jars)} jars)")


def _checked(wanted: JarSet, folder: Path) -> list[Path]:
    """Return the resolved jars; raises an error if the landmark is missing or one cannot be opened."""
    jars = sorted(folder.glob("*.jar"))
    names = {jar.name for jar in jars}
    if not any(re.fullmatch(wanted.landmark, name) for name in names):
        raise EmbeddedKafkaError(f"the download of {wanted.title} lacks {wanted.landmark}: {sorted(names)}")
    for jar in jars:
        if not zipfile.is_zipfile(jar):
            raise EmbeddedKafkaError(f"the download of {wanted.title} is damaged: {jar.name} is no jar; try again")
    return jars


def sha256(path: Path) -> str:
    """Return the checksum of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def _locked(path: Path, on_progress: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock between processes, which the system releases if its holder dies."""
    try:
        from filelock import FileLock, Timeout  # noqa: PLC0415  an optional dependency
    except ImportError as error:
        raise EmbeddedKafkaError(
            "to download jars, filelock is needed: pip install 'eos-client[test]' (or eos-client[cli])"
        ) from error
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        on_progress("another process is downloading the same jars: waiting for it")
        try:
            lock.acquire(_LOCK_TIMEOUT_S, _LOCK_POLL_S)
        except Timeout as error:
            raise EmbeddedKafkaError(
                f"another process has held {path} for {_LOCK_TIMEOUT_S:.0f} s: end it, then try again"
            ) from error
    try:
        yield
    finally:
        lock.release()
