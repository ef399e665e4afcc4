"""Folders of downloaded files in the user's cache, each filled once and verified at every use.

A folder is filled under a temporary name and renamed with a manifest of checksums, under a lock between processes, so
that no process sees an incomplete one. A folder that does not match its manifest is replaced.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from eos_client.errors import EmbeddedKafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MANIFEST = "SHA256SUMS"
_LOCK_TIMEOUT_S = 900.0
_LOCK_POLL_S = 0.2


def cache_root() -> Path:
    """``$XDG_CACHE_HOME/eos-client``, by default ``~/.cache/eos-client``."""
    configured = os.environ.get("XDG_CACHE_HOME")
    return Path(configured).absolute() / "eos-client" if configured else Path.home() / ".cache" / "eos-client"


def cached_folder(
    name: str, title: str, fill: Callable[[Path, Path], None], on_progress: Callable[[str], None]
) -> Path:
    """Return the folder ``name`` of the cache; ``fill`` downloads its files if it is missing or incomplete.

    ``fill`` is called with the folder for the files, and with one for its own work. Raises `EmbeddedKafkaError` if that
    fails; ``on_progress`` is called with one line a step.
    """
    folder = cache_root() / name
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
            _replace(folder, title, fill, on_progress)
    return folder


def is_whole(folder: Path) -> bool:
    """Whether every file of the folder's manifest exists, unchanged."""
    try:
        listed = (folder / _MANIFEST).read_text().splitlines()
        return bool(listed) and all(
            sha256(folder / name) == digest for digest, name in (line.split("  ", 1) for line in listed)
        )
    except (OSError, ValueError):
        return False


def _replace(folder: Path, title: str, fill: Callable[[Path, Path], None], on_progress: Callable[[str], None]) -> None:
    """Fill the folder with the lock held; removes the files of an earlier, interrupted download."""
    prefix = f".{folder.name}."
    for leftover in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    if folder.exists():
        on_progress(f"the cached files in {folder} are damaged: downloading them again")
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent) as work:
        fresh, trash = Path(work, "files"), Path(work, "replaced")
        fresh.mkdir()
        fill(fresh, Path(work))
        names = sorted(path.relative_to(fresh).as_posix() for path in fresh.rglob("*") if path.is_file())
        (fresh / _MANIFEST).write_text("".join(f"{sha256(fresh / name)}  {name}\n" for name in names))
        if folder.exists():
            folder.rename(trash)
        fresh.rename(folder)
    on_progress(f"{title} is in {folder} ({len(names)} files)")


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
            "to download a server, filelock is needed: pip install 'eos-client[test]' (or eos-client[cli])"
        ) from error
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        on_progress("another process is downloading the same files: waiting for it")
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
