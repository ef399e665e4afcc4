"""Writes docs/file-map.md: every module and test folder with the sentence that says what it is for.

python scripts/file_map.py

The sentences are the first lines of the docstrings, so the map is renewed, not edited. Nothing is listed here by name:
a new, moved or renamed module is found where it lies. tests/test_file_map.py fails when the page is out of date.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "file-map.md"
COMMAND = "python scripts/file_map.py"

SOURCES = ("eos_client", "listeners", "integration", "examples")
TESTS = "tests"
OPENING = f"""\
# File map

Every module with the first line of its docstring, and every folder of tests with the first line of its README.md. This
page is generated: change those lines and run `{COMMAND}`.
[ARCHITECTURE.md](../ARCHITECTURE.md) tells how the parts work together.

`eos_client/listeners` and `eos_client/integration` are links to the folders at the root.
"""


def first_line(path: Path) -> str:
    """Return the first line of a module's docstring, or of a text."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    return text.partition("\n")[0]


def folders(root: Path) -> Iterator[Path]:
    """``root`` and every folder below it that is no link and holds a module, sorted by path."""
    linked = {path for path in root.rglob("*") if path.is_symlink()}
    for folder in (root, *sorted(path for path in root.rglob("*") if path.is_dir())):
        if linked.isdisjoint((folder, *folder.parents)) and modules(folder):
            yield folder


def modules(folder: Path) -> list[Path]:
    """Return the modules directly in ``folder``."""
    return sorted(folder.glob("*.py"))


def section(folder: Path) -> str:
    """Return the part of the page about one folder of source: what its package is for, then its modules."""
    package = folder / "__init__.py"
    lines = [f"## {folder.relative_to(REPOSITORY)}", ""]
    if package.exists():
        lines += [first_line(package), ""]
    if rows := [f"| `{path.name}` | {first_line(path)} |" for path in modules(folder) if path != package]:
        lines += ["| module | what it is for |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def test_section() -> str:
    """Return the part of the page about the tests: one row for each folder."""
    root = REPOSITORY / TESTS
    below = [folder for folder in folders(root) if folder != root]
    rows = [f"| `{folder.relative_to(root)}` | {first_line(folder / 'README.md')} |" for folder in below]
    return "\n".join([f"## {TESTS}", "", "| folder | what is in it |", "|---|---|", *rows, ""])


def file_map() -> str:
    """Return the whole page as it should be."""
    sections = [section(folder) for root in SOURCES for folder in folders(REPOSITORY / root)]
    return "\n".join([OPENING, *sections, test_section()])


if __name__ == "__main__":
    PAGE.write_text(file_map(), encoding="utf-8")
