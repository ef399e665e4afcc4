"""Runs the tests without a broker, and prints the percentage of lines that they have run, by package.

``python -m tests.support.coverage_by_package [TESTS]``: without TESTS all of them, and fewer lines than `FLOOR` fail.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

REPORT = Path(".runs/coverage.json")
FLOOR = 0.72
"""The least part of all lines; tests with brokers, databases and Spark run others. Only ever raise it.

Without the tests of commands, pages, packages, random applications and most of those of the clients it was 72.4%.
"""


def package_of(file: str) -> str:
    """``eos_client/core/model.py`` belongs to ``eos_client/core``, a module at the top to the folder that it is in."""
    folders = Path(file).parent.parts
    return "/".join(folders[:2])


def table(files: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """One line for each package, in the order of their names, and one for all of them."""
    lines, covered = Counter[str](), Counter[str]()
    for file, report in files.items():
        for package in (package_of(file), "all"):
            lines[package] += report["summary"]["num_statements"]
            covered[package] += report["summary"]["covered_lines"]
    width = max(map(len, lines))
    for package in [*sorted(each for each in lines if each != "all"), "all"]:
        share = covered[package] / lines[package] if lines[package] else 1.0
        yield f"{package:{width}}  {share:6.1%}  {covered[package]:5d} of {lines[package]:5d} lines"


def share(files: Mapping[str, Mapping[str, Any]]) -> float:
    """Which part of all lines was run."""
    lines, covered = (
        sum(report["summary"][part] for report in files.values()) for part in ("num_statements", "covered_lines")
    )
    return covered / lines if lines else 1.0


def main(tests: Sequence[str]) -> int:
    """Run the tests and print the table; return pytest's exit code, or 1 below the floor."""
    selected = ["-m", "not soak and not spark and not kafka", *tests]
    command = [sys.executable, "-m", "pytest", "--numprocesses", "3", "--dist", "loadfile", *selected]
    exit_code = subprocess.run([*command, "--cov", f"--cov-report=json:{REPORT}"], check=False).returncode
    files = json.loads(REPORT.read_text(encoding="utf-8"))["files"]
    print("\n".join(table(files)))
    if not tests and share(files) < FLOOR:
        print(f"fewer lines than {FLOOR:.0%} were run: test what is new, or say in FLOOR why it cannot be")
        return exit_code or 1
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
