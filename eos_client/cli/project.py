"""``eos-client init``: a folder with a worker, its test, its image, and what runs and watches it.

The files are those of ``project_files/``. Two words in them are replaced: the project's name, and the version of
eos-client that it asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from eos_client import __version__
from eos_client.cli.failures import CommandLineError

TEMPLATE = Path(__file__).with_name("project_files")
NAME_IN_FILES = "job-name"
VERSION_IN_FILES = "eos-client-version"

# Of a Service (RFC 1035), and of a StatefulSet, which makes a label of at most 63 with a hash behind it.
_NAME_CHARACTERS_MAX = 52
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


def create_project(name: str, parent: Path) -> list[Path]:
    """Write the folder ``name`` below ``parent``, and return its files.

    :raises CommandLineError: the name fits no Kubernetes object, something is there already, or cannot be written.
        Nothing that exists is changed, and what was written before the error is removed.
    """
    _require_name(name)
    folder = parent / name
    try:
        _require_empty(folder)
        return _write_files(folder, name)
    except OSError as error:
        raise CommandLineError(f"the folder {folder} cannot be written: {error}") from error


def _require_name(name: str) -> None:
    if len(name) > _NAME_CHARACTERS_MAX or not _NAME.fullmatch(name):
        raise CommandLineError(
            f"the name {name!r} cannot be that of the project's Kubernetes objects: take at most "
            f"{_NAME_CHARACTERS_MAX} lower-case letters, digits and '-', beginning with a letter and not ending with "
            "'-', for example billing"
        )


def _require_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        raise CommandLineError(f"{folder} exists already and is left as it is: choose another name, or move it away")


def _template_files() -> Iterator[Path]:
    for path in sorted(TEMPLATE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:  # an installer compiles the modules
            yield path


def _write_files(folder: Path, name: str) -> list[Path]:
    """Write all files, or leave none."""
    with ExitStack() as undo:
        files = {source: folder / source.relative_to(TEMPLATE) for source in _template_files()}
        written = [_write(source, target, name, undo) for source, target in files.items()]
        undo.pop_all()
    return written


def _write(source: Path, target: Path, name: str, undo: ExitStack) -> Path:
    """Write ``target``; ``undo`` removes it, and the folders that were made for it."""
    text = source.read_text(encoding="utf-8")
    for folder in reversed([each for each in target.parents if not each.exists()]):
        folder.mkdir()
        undo.callback(_remove, folder.rmdir)
    with target.open("x", encoding="utf-8") as file:
        undo.callback(_remove, target.unlink)
        file.write(text.replace(NAME_IN_FILES, name).replace(VERSION_IN_FILES, __version__))
    return target


def _remove(remove: Callable[[], None]) -> None:
    with suppress(OSError):  # the error that has come before is the one to report
        remove()
