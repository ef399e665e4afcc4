"""docs/file-map.md names every module and every folder of tests, and is up to date."""

from __future__ import annotations

import re
from pathlib import Path

from scripts import file_map

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "file-map.md"
OUT_OF_DATE = f"docs/file-map.md is out of date: run `{file_map.COMMAND}` and commit the page"


def source_files() -> list[Path]:
    """The modules of the product, each once: the links inside the package are not followed."""
    roots = [REPOSITORY / name for name in ("eos_client", "listeners", "integration")]
    linked = {path for root in roots for path in root.iterdir() if path.is_symlink()}
    return [path for root in roots for path in sorted(root.rglob("*.py")) if linked.isdisjoint(path.parents)]


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == file_map.file_map(), OUT_OF_DATE


def test_the_page_names_every_module():
    sections = re.split(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = dict(zip(sections[1::2], sections[2::2], strict=True))
    files = source_files()
    assert len(files) > 100
    missing = [
        str(path.relative_to(REPOSITORY))
        for path in files
        if path.name != "__init__.py"
        and f"| `{path.name}` |" not in text.get(str(path.parent.relative_to(REPOSITORY)), "")
    ]
    packages = [str(path.parent.relative_to(REPOSITORY)) for path in files if path.name == "__init__.py"]
    assert missing + [package for package in packages if package not in text] == [], OUT_OF_DATE


def test_every_module_says_in_its_first_line_what_it_is_for():
    lines = {path: file_map.first_line(path) for path in source_files()}
    assert [str(path) for path, line in lines.items() if not re.search(r"\w{3}.*[.?]$", line)] == []


def test_every_folder_of_tests_has_a_readme_that_says_what_is_in_it():
    root = REPOSITORY / "tests"
    silent = [folder for folder in file_map.folders(root) if not file_map.first_line(folder / "README.md")]
    assert [f"{folder}/README.md is missing" for folder in silent if folder != root] == []
