"""Every error in the table of docs/explanation/errors.md is raised, and a test sees it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from eos_client.errors import BatchLedgerError
from scripts.reference import DOCS, error_classes

TESTS = Path(__file__).parents[1]
NEVER_RAISED_ITSELF = {BatchLedgerError.__name__}
"""The base of others, to be caught."""


def seen_in_tests() -> dict[str, list[str]]:
    """Return, for each name in ``pytest.raises(...)``, the tests where it stands."""
    seen: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for test in ast.walk(ast.parse(text)) if "raises(" in text else ():
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                for name in expected_in(test):
                    seen.setdefault(name, []).append(f"{path.relative_to(TESTS)}::{test.name}")
    return seen


def expected_in(test: ast.FunctionDef) -> set[str]:
    calls = (node for node in ast.walk(test) if isinstance(node, ast.Call) and node.args)
    expected = (ast.unparse(call.args[0]) for call in calls if called(call).endswith("raises"))
    return {name for each in expected for name in re.findall(r"\w+", each)}


def called(call: ast.Call) -> str:
    """The last name of what is called: quicker than to unparse each call of all tests."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_each_error_of_the_table_is_raised_in_a_test():
    table = re.findall(r"^\| `(\w+)`", (DOCS / "explanation" / "errors.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert table == [kind.__name__ for kind in error_classes()]
    seen = seen_in_tests()
    assert [name for name in table if name not in seen and name not in NEVER_RAISED_ITSELF] == []
