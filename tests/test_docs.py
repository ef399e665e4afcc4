"""The pages of this repository: their links lead somewhere, and the files and tests that they name exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.definitions import definitions

REPOSITORY = Path(__file__).parents[1]
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
# The change log speaks of names as they were.
PRESENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
SOURCE_ROOTS = ("", "eos_client", "eos_client/cli/project_files", "integration/spark", "tests", "tests/spark")


@cache
def prose(page: Path) -> str:
    """The page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[str]:
    """What the page links to inside the repository."""
    for target in re.findall(r"\]\(([^)]+)\)", prose(page)):
        if not re.match(r"[a-z]+:", target):
            yield target


def names_on(page: Path) -> set[str]:
    return set(re.findall(r"`(test_\w+)`", prose(page)))


@cache
def names_that_exist() -> set[str]:
    """Of those that any page names."""
    named = {name for page in PRESENT for name in names_on(page)}
    return {node.name for node in definitions(named) if isinstance(node, ast.FunctionDef)}


@cache
def defined_on_pages() -> set[str]:
    return {name for page in PAGES for name in re.findall(r"^def (test_\w+)", page.read_text(), re.MULTILINE)}


def test_there_are_pages_and_links_to_look_at():
    assert len(PAGES) > 20
    assert sum(1 for page in PAGES for _ in links(page)) > 40


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page: Path):
    dead = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


def test_the_architecture_page_links_to_every_decision_record():
    linked = set(links(REPOSITORY / "ARCHITECTURE.md"))
    records = sorted((REPOSITORY / "docs" / "decisions").glob("*.md"))
    assert [record.name for record in records if f"docs/decisions/{record.name}" not in linked] == []


@pytest.mark.parametrize("page", PRESENT, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_test_that_a_page_names_exists(page: Path):
    # A name may also be that of a file, or of a test that is part of a page.
    assert sorted(names_on(page) - names_that_exist() - defined_on_pages()) == []


@pytest.mark.parametrize("page", PRESENT, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_source_file_or_folder_that_a_page_names_exists(page: Path):
    if page.name == "file-map.md":
        return  # written from the files themselves
    named = re.findall(r"`((?:[\w.-]+/)+(?:[\w*-]+\.(?:py|sh|md|toml))?)`", prose(page))
    missing = [path for path in named if not any(list((REPOSITORY / root).glob(path)) for root in SOURCE_ROOTS)]
    assert missing == []
