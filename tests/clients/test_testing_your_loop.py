"""The how-to's tests run as they stand in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eos_client import OutputRecord

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "how-to" / "testing-your-loop.md"
BEGINNING, UNIT_TEST, *STORIES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
LINES_MAX = 20


def price(record: Any) -> Any:
    yield OutputRecord("invoices", value=record.value())


def names() -> dict[str, Any]:
    found: dict[str, Any] = {"price": price}
    exec(compile(BEGINNING, str(PAGE), "exec"), found)
    return found


def run_block(block: str, *arguments: Any) -> None:
    found = names()
    exec(compile(block, str(PAGE), "exec"), found)
    (name,) = re.findall(r"^def (test_\w+)", block, re.MULTILINE)
    found[name](*arguments)


def test_the_unit_test_of_the_transform_holds() -> None:
    run_block(UNIT_TEST)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.split("(")[0].removeprefix("def "))
def test_each_story_of_the_page_holds(story: str, simulated_cluster: Any) -> None:
    run_block(story, simulated_cluster)


def test_the_page_has_the_three_stories_in_twenty_lines_each() -> None:
    assert len(STORIES) == 3
    assert all(len(story.splitlines()) <= LINES_MAX for story in STORIES)


def test_the_example_survives_its_rebalance() -> None:
    program = REPOSITORY / "examples" / "survive_a_rebalance.py"
    run = subprocess.run([sys.executable, program, "--seed", "3"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] == "20 orders, 20 invoices: EXACTLY ONCE"
