"""What the pages take from the code is as the code is now, and nothing public is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eos_client.cli.exit_codes import ExitCode
from scripts import reference

OUT_OF_DATE = f"the page is out of date: run `{reference.COMMAND}` and commit it"


def text(page: str) -> str:
    return (reference.DOCS / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", reference.pages(), ids=lambda page: page.name)
def test_the_page_is_up_to_date(page: Path) -> None:
    written = page.read_text(encoding="utf-8")
    assert written == reference.renewed(written), OUT_OF_DATE


def test_every_part_stands_on_a_page() -> None:
    pages = [page.read_text(encoding="utf-8") for page in reference.pages()]
    marked = [found["part"] for page in pages for found in reference.MARKED.finditer(page)]
    assert sorted(marked) == sorted(reference.PARTS)


def test_the_pages_name_every_public_name_event_error_and_exit_code() -> None:
    names = re.findall(r"^::: [\w.]*\.(\w+)$", text("reference/api.md"), re.MULTILINE)
    assert {name for exported in reference.public_names().values() for name in exported} <= set(names)
    assert len(names) == len(set(names)) > 30
    assert {name for used in reference.USES.values() for name in used} <= set(names)
    events, errors = text("reference/events.md"), text("explanation/errors.md")
    assert [kind for kind in reference.event_classes() if f"\n`{kind.__name__}`, logged" not in events] == []
    assert [kind for kind in reference.error_classes() if f"| `{kind.__name__}`" not in errors] == []
    assert [code for code in ExitCode if f"\n| {code.value} |" not in text("reference/command-line.md")] == []


def test_each_warning_and_error_among_the_events_has_advice() -> None:
    table = text("reference/events.md").partition("## What to do")[2].partition("\n## ")[0]
    advised = {
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    events = {re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind.level for kind in reference.event_classes()}
    assert advised == {name for name, level in events.items() if level in ("warning", "error")}


def test_every_setting_has_a_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", text("reference/settings.md"), re.MULTILINE)
    assert len(rows) > 20
    assert [name for name, meaning in rows if not re.fullmatch(r".{20,}\.", meaning)] == []
