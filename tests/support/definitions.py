"""What is defined below tests/, without parsing files that cannot matter."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_TESTS = Path(__file__).parents[1]

Definition = ast.FunctionDef | ast.ClassDef


@cache
def _texts() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(_TESTS.rglob("*.py"))}


def definitions(names: set[str], docstring: str = r"(?!)") -> Iterator[Definition]:
    """Functions and classes of these names, or whose docstring may begin as the pattern, and others beside them."""
    lines = re.compile(r"^ *(?:def|class) (\w+)", re.MULTILINE)
    opening = re.compile(rf'"""{docstring}')
    for text in _texts().values():
        if not names.isdisjoint(lines.findall(text)) or opening.search(text):
            yield from (node for node in ast.walk(ast.parse(text)) if isinstance(node, Definition))
