"""Every block of Python or shell on a page is run by a test.

:data:`RUN_BY` says, for each page, how many such blocks it has and which test modules read them from it. A new block
changes the number: see that one of these modules runs it, or add one, and then write the new number here. A module that
reads a page and executes nothing of it is told, but not one that leaves out a single block.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.code_blocks import PAGES, REPOSITORY, code_blocks
from tests.support.executed_pages import executes

RUNNABLE = ("python", "py", "sh", "bash", "shell", "console")

RUN_BY: dict[str, tuple[int, list[str]]] = {
    "README.md": (4, ["tests/kafka/test_readme.py"]),
    "docs/examples.md": (12, ["tests/pages/test_examples.py"]),
    "docs/explanation/why.md": (1, ["tests/clients/test_readme.py"]),
    "docs/tutorial/first-program.md": (11, ["tests/kafka/test_tutorial.py"]),
    "docs/how-to/asyncio.md": (1, ["tests/clients/test_async_loop.py"]),
    "docs/how-to/batch-jobs.md": (1, ["tests/clients/test_how_to_pages.py"]),
    "docs/how-to/batch-transform.md": (1, ["tests/clients/test_batch_transform.py"]),
    "docs/how-to/blue-green.md": (2, ["tests/kafka/test_blue_green_page.py"]),
    "docs/how-to/database.md": (3, ["tests/databases/test_database_page.py"]),
    "docs/how-to/existing-loop.md": (1, ["tests/clients/test_readme.py"]),
    "docs/how-to/failed-records.md": (3, ["tests/clients/test_failed_records_page.py"]),
    "docs/how-to/kubernetes.md": (2, ["tests/observability/test_pages.py"]),
    "docs/how-to/migrate.md": (2, ["tests/clients/test_how_to_pages.py"]),
    "docs/how-to/migrate-offsets-table.md": (1, ["tests/databases/test_database_page.py"]),
    "docs/how-to/monitoring.md": (4, ["tests/loop/test_prometheus.py", "tests/observability/test_pages.py"]),
    "docs/how-to/operations.md": (2, ["tests/cli/test_operations.py"]),
    "docs/how-to/redrive.md": (1, ["tests/cli/test_redrive.py"]),
    "docs/how-to/replay.md": (4, ["tests/kafka/test_replay_page.py"]),
    "docs/how-to/secure-clusters.md": (
        2,
        ["tests/cli/test_secure_clusters.py", "tests/kafka/test_secure_clients.py"],
    ),
    "docs/how-to/serialisers.md": (2, ["tests/clients/test_serialisers_page.py"]),
    "docs/how-to/several-topics.md": (1, ["tests/clients/test_how_to_pages.py"]),
    "docs/how-to/spark-database.md": (1, ["tests/clients/test_how_to_pages.py"]),
    "docs/how-to/spark-pipeline.md": (9, ["tests/spark/test_pipeline_page.py"]),
    "docs/how-to/spark-sink.md": (2, ["tests/clients/test_how_to_pages.py"]),
    "docs/how-to/start-a-project.md": (1, ["tests/cli/test_init.py"]),
    "docs/how-to/testing-your-loop.md": (
        10,
        ["tests/clients/test_testing_your_loop.py", "tests/kafka/test_testing_page.py"],
    ),
    "docs/how-to/tune.md": (1, ["tests/clients/test_how_to_pages.py"]),
    "docs/how-to/upgrade-brokers.md": (1, ["tests/clients/test_how_to_pages.py"]),
    "docs/reference/command-line.md": (2, ["tests/kafka/test_readme.py"]),
    "docs/reference/events.md": (1, ["tests/clients/test_how_to_pages.py"]),
}

NOT_RUN = re.compile(r"(python3 -m venv [.\w]+\n\. [.\w/]+\n)?pip install '[\w-]+(\[[\w,-]+\])?'( [\w-]+)*\n")
"""Installing. tests/packaging installs the wheel into empty environments; the extras and what else a page installs are
looked at below."""

READERS_CHOICE = {"opentelemetry-exporter-otlp"}
"""What a page installs as one of several that would do: no test needs it."""


def named(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def runnable(page: Path) -> list[str]:
    return [block.code for block in code_blocks(page, *RUNNABLE) if not NOT_RUN.fullmatch(block.code)]


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=named)
def test_each_block_of_the_page_is_run(page: Path) -> None:
    blocks = runnable(page)
    assert named(page) in RUN_BY, f"no test runs these blocks: {blocks}"
    count, modules = RUN_BY[named(page)]
    assert len(blocks) == count, f"has a test run the blocks that were added? {blocks}"
    for module in modules:
        source = (REPOSITORY / module).read_text(encoding="utf-8")
        assert executes(source, page.name), f"{module} executes nothing of {named(page)}"


@pytest.mark.parametrize(
    ("source", "is_executed"),
    [
        ('BLOCK, PRINTED = blocks("docs/page.md")\nassert PRINTED in run(BLOCK)', False),
        ('PAGE = Path("page.md").read_text()\nassert "exec" in PAGE', False),
        ('exec(compile(own, "docs/page.md", "exec"))', False),
        ('exec(code, {"name": "other.md"})', False),
        ('(BLOCK,) = blocks(DOCS / "page.md")\nexec(BLOCK, names)', True),
        ('def run(page):\n    exec(compile(text_of(page), "shown", "exec"))\n\nrun(DOCS / "page.md")', True),
        ('PAGE = "page.md"\ndef shown():\n    return text(PAGE)\n\nfor one in shown():\n    eos_client(*one)', True),
        ('BLOCKS = blocks("page.md")\nsubprocess.run(["sh", "-ec", *[each for each in BLOCKS]])', True),
    ],
)
def test_a_module_that_only_reads_or_compares_a_page_is_told_from_one_that_executes_it(
    source: str, is_executed: bool
) -> None:
    assert executes(source, "page.md") is is_executed


def test_no_page_is_listed_that_has_no_blocks() -> None:
    assert sorted(RUN_BY) == sorted(named(page) for page in PAGES if runnable(page))


def test_every_extra_that_a_page_installs_is_declared() -> None:
    declared = re.findall(r"^([\w-]+) = \[", (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    for page in PAGES:
        for extras in re.findall(r"eos-client\[([\w,-]+)\]", page.read_text(encoding="utf-8")):
            assert set(extras.split(",")) <= set(declared), page


def test_whatever_else_a_page_installs_is_there_for_the_tests_or_the_readers_choice() -> None:
    installed = {
        package
        for page in PAGES
        for block in code_blocks(page, *RUNNABLE)
        for line in re.findall(r"^pip install (.+)$", block.code, re.MULTILINE)
        for package in line.split()
        if not package.startswith("'eos-client")
    }
    names = re.findall(r'"([\w-]+)(?:\[[\w,]+\])?[<>=]', (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    assert {package.strip("'") for package in installed} <= {*names, *READERS_CHOICE}
    assert installed >= READERS_CHOICE


def test_no_block_is_fenced_in_a_way_that_is_overlooked() -> None:
    for page in PAGES:
        fences = re.findall(r"^\s*(?:```|~~~)\S", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) == len([block for block in code_blocks(page) if block.language]), page
