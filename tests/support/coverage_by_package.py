"""Prints the percentage of lines that the tests have run, by package, from the report of ``coverage json``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


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


if __name__ == "__main__":
    print("\n".join(table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["files"])))
