"""The page of examples shows each program of examples/; those that need no broker run as it says."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from scripts import reference
from tests.support.code_blocks import REPOSITORY, code_blocks

PAGE = REPOSITORY / "docs" / "examples.md"
COMMANDS = [block.code for block in code_blocks(PAGE, "sh")]
ALONE = [command for command in COMMANDS if "--bootstrap" not in command]
RUN_ELSEWHERE = {
    "consume_transform_produce.py": "tests/cli/test_run_command.py",
    "spark_foreach_batch.py": "tests/spark/test_example.py",
    "spark_to_database.py": "tests/spark/test_example.py",
}
"""Those that need a broker, and the tests that run them on one."""


def test_each_program_is_on_the_page_with_its_command() -> None:
    programs = sorted(path.name for path in (REPOSITORY / "examples").glob("*.py"))
    assert programs == sorted(f"{name}.py" for name in reference.EXAMPLES)
    assert programs == sorted(command.split()[1].rpartition("/")[2] for command in COMMANDS)


@pytest.mark.parametrize("command", ALONE)
def test_a_program_that_needs_no_broker_ends_well(command: str) -> None:
    line = command.replace("python ", f"{shlex.quote(sys.executable)} ")
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(["sh", "-ec", line], cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_each_other_program_is_run_by_a_test_on_a_broker() -> None:
    others = {command.split()[1].rpartition("/")[2] for command in COMMANDS if command not in ALONE}
    assert others == RUN_ELSEWHERE.keys()
    for program, module in RUN_ELSEWHERE.items():
        assert program.removesuffix(".py") in (REPOSITORY / module).read_text(encoding="utf-8"), module
