"""docs/reference/protocols.md maps every sentence of P1-P5 to existing tests, and leaves out none that names one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.definitions import definitions

PAGES = Path(__file__).parents[2] / "docs"
PAGE = (PAGES / "reference" / "protocols.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| sentence")]
SENTENCE = r"P[1-5][: ]"
SENTENCES_MIN = {"P1": 19, "P2": 7, "P3": 11, "P4": 13, "P5": 8}


def names(row: str) -> list[str]:
    return re.findall(r"`(\w+)`", row.rsplit(" | ", 1)[1])


@cache
def defined() -> dict[str, str]:
    """Functions and classes below tests/ with their docstrings: all that the page names or that name a sentence."""
    on_the_page = {name for row in ROWS for name in names(row)}
    return {node.name: ast.get_docstring(node) or "" for node in definitions(on_the_page, SENTENCE)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:60])
def test_every_sentence_has_tests_and_they_exist(row: str) -> None:
    assert names(row), f"no test holds: {row}"
    on_a_page = re.findall(r"^def (test_\w+)", (PAGES / "how-to" / "testing-your-loop.md").read_text(), re.MULTILINE)
    missing = [name for name in names(row) if name not in defined() and name not in on_a_page]
    assert not missing, f"these tests do not exist: {missing}"


def test_every_test_that_names_a_sentence_stands_on_the_page() -> None:
    told = {name for row in ROWS for name in names(row)}
    forgotten = [name for name, doc in defined().items() if re.match(SENTENCE, doc) and name not in told]
    assert not forgotten


@pytest.mark.parametrize(("text", "sentences"), SENTENCES_MIN.items())
def test_no_sentence_of_the_texts_is_left_out(text: str, sentences: int) -> None:
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)[int(text[1])]
    assert section.startswith(text)
    assert sum(row in section for row in ROWS) >= sentences
