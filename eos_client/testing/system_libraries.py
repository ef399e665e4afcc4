"""Gets shared libraries that a downloaded program lacks from Debian's or Ubuntu's packages, without installing them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from eos_client.errors import EmbeddedKafkaError

_TIMEOUT_S = 120.0
_MISSING = re.compile(r"error while loading shared libraries: (\S+): cannot open shared object file")
_PACKAGES = {
    "libaio.so.1": ("libaio1", "libaio1t64"),  # t64: Debian 13 and Ubuntu 24.04, under another name of the file
    "libnuma.so.1": ("libnuma1",),
}


def add_missing_libraries(program: Path, folder: Path, work: Path) -> None:
    """Put the libraries without which ``program --version`` does not run into ``folder``, where it looks for them.

    Raises `EmbeddedKafkaError` that names what is to be installed where that does not work.
    """
    for _ in range(len(_PACKAGES) + 1):
        ran = _run([str(program), "--version"], work)
        if ran is None or ran.returncode == 0:
            break
        found = _MISSING.search(ran.stderr)
        if found is None or not _add(found[1], folder, work):
            missing = found[1] if found else ran.stderr.strip()
            raise EmbeddedKafkaError(
                f"{program.name} does not run here: {missing} is missing. Install the libraries libaio and libnuma "
                "(Debian and Ubuntu: apt-get install libaio1 libnuma1, or libaio1t64; Fedora: dnf install libaio "
                "numactl-libs)"
            )
    else:
        ran = None
    if ran is None:
        raise EmbeddedKafkaError(f"{program.name} does not run here: it is for Linux with the GNU C library")


def _add(library: str, folder: Path, work: Path) -> bool:
    """Put one library into the folder; returns whether a package has it."""
    lists, cache = work / "lists", work / "cache"
    for folder_of_apt in (lists / "partial", cache / "archives" / "partial"):  # made by apt-get for root only
        folder_of_apt.mkdir(parents=True, exist_ok=True)
    private = (f"-oDir::State::lists={lists}", f"-oDir::Cache={cache}")
    for package in _PACKAGES.get(library, ()):
        if _unpacked(package, (), library, folder, work):
            return True
    # A container may have no lists of packages: these are our own.
    if _PACKAGES.get(library) and _succeeds(["apt-get", *private, "update"], work):
        return any(_unpacked(package, private, library, folder, work) for package in _PACKAGES[library])
    return False


def _unpacked(package: str, options: tuple[str, ...], library: str, folder: Path, work: Path) -> bool:
    unpacked = work / package
    if not _succeeds(["apt-get", *options, "download", package], work):
        return False
    archives = [str(path) for path in work.glob(f"{package}_*.deb")]
    if not archives or not _succeeds(["dpkg-deb", "--extract", archives[0], str(unpacked)], work):
        return False
    files = sorted(path for path in unpacked.rglob(f"{library}*") if path.is_file() and not path.is_symlink())
    if files:
        shutil.copyfile(files[0], folder / library)
    return bool(files)


def _succeeds(command: list[str], work: Path) -> bool:
    ran = _run(command, work)
    return ran is not None and ran.returncode == 0


def _run(command: list[str], work: Path) -> subprocess.CompletedProcess[str] | None:
    """Run a command; None if it is not there, or does not end."""
    try:
        return subprocess.run(  # noqa: S603  arguments are ours
            command, cwd=work, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
