import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from eos_client.cli.failures import TransformLoadError
from eos_client.cli.transform_file import load_transform


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("sys.path", list(sys.path))

    def write(name: Any, text: Any) -> Any:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


def test_loads_the_named_function(write: Any) -> None:
    path = write("pricing_a.py", "def price(record):\n    return [record * 2]\n")
    assert load_transform(f"{path}:price")(21) == [42]


def test_sibling_modules_of_the_file_can_be_imported(write: Any) -> None:
    write("tax_rates_b.py", "RATE = 3\n")
    path = write("pricing_b.py", "import tax_rates_b\ndef price(record):\n    return [record * tax_rates_b.RATE]\n")
    assert load_transform(f"{path}:price")(2) == [6]


def test_a_dataclass_in_the_file_works_because_its_module_is_registered(write: Any) -> None:
    path = write(
        "pricing_c.py",
        """
        from __future__ import annotations
        from dataclasses import dataclass
        @dataclass
        class Total:
            cents: int
        def price(record: Any) -> Any:
            return [Total(record)]
        """,
    )
    assert load_transform(f"{path}:price")(5)[0].cents == 5


def test_a_file_named_like_a_loaded_module_does_not_replace_it(write: Any) -> None:
    path = write("json.py", "def price(record):\n    return [record]\n")
    assert load_transform(f"{path}:price")(1) == [1]
    assert sys.modules["json"] is json


def test_a_method_of_an_object_in_the_file_may_be_named(write: Any) -> None:
    path = write(
        "pricing_d.py", "class Pricer:\n    def price(self, record):\n        return [record]\npricer = Pricer()\n"
    )
    assert load_transform(f"{path}:pricer.price")(3) == [3]


@pytest.mark.parametrize("reference", ["price.py", "price.py:", ":price", "price"])
def test_a_reference_without_both_parts_says_what_is_expected(reference: Any) -> None:
    with pytest.raises(TransformLoadError, match=r"is not FILE.py:FUNC"):
        load_transform(reference)


def test_a_missing_file_is_named_with_its_full_path(tmp_path: Path) -> None:
    with pytest.raises(TransformLoadError, match=f"there is no file {tmp_path}/nowhere.py"):
        load_transform(f"{tmp_path}/nowhere.py:price")


def test_a_misspelt_function_is_answered_with_the_near_one(write: Any) -> None:
    path = write("pricing_e.py", "def price(record): ...\ndef other(record): ...\n")
    with pytest.raises(TransformLoadError, match=r"has no 'prise'. Did you mean 'price'\?"):
        load_transform(f"{path}:prise")


def test_an_unknown_function_is_answered_with_those_the_file_defines(write: Any) -> None:
    path = write("pricing_f.py", "from os.path import join\ndef price(record): ...\ndef _hidden(record): ...\n")
    with pytest.raises(TransformLoadError, match=r"has no 'zebra'. Its functions: price$"):
        load_transform(f"{path}:zebra")


def test_an_error_at_import_names_the_file_the_line_and_the_error_and_keeps_it_as_cause(write: Any) -> None:
    path = write("pricing_g.py", "import json\n\nimport no_such_module_anywhere\n")
    with pytest.raises(TransformLoadError, match=r"pricing_g.py raised ModuleNotFoundError .* line 3") as raised:
        load_transform(f"{path}:price")
    assert isinstance(raised.value.__cause__, ModuleNotFoundError)


def test_a_syntax_error_names_its_line(write: Any) -> None:
    path = write("pricing_h.py", "x = 1\ndef price(record:\n")
    with pytest.raises(TransformLoadError, match=r"raised SyntaxError while imported, line 2"):
        load_transform(f"{path}:price")


@pytest.mark.parametrize(
    "leaving", ["import sys\nsys.exit(0)", "raise SystemExit", "raise SystemExit('bye')", "exit()"], ids=repr
)
def test_a_file_that_exits_at_import_does_not_end_the_program_silently(write: Any, leaving: str) -> None:
    path = write("pricing_i.py", f"{leaving}\n")
    with pytest.raises(TransformLoadError, match="raised SystemExit while imported"):
        load_transform(f"{path}:price")


def test_a_function_of_batches_is_asked_to_take_a_list(write: Any) -> None:
    path = write("pricing_k.py", "def price(): ...\ndef price_all(records): ...\n")
    assert load_transform(f"{path}:price_all", takes_batches=True).__name__ == "price_all"
    with pytest.raises(TransformLoadError, match=r"with one list of records: .* Give it one parameter, records"):
        load_transform(f"{path}:price", takes_batches=True)


@pytest.mark.parametrize(
    ("definition", "complaint"),
    [
        ("price = 7", "price is a int, not a function"),
        ("async def price(record): ...", "price is async"),
        ("async def price(record):\n    yield 1", "price is async"),
        ("def price(): ...", r"price\(\) cannot be called with one record"),
        ("def price(record, rate): ...", r"price\(record, rate\) cannot be called with one record"),
    ],
)
def test_what_cannot_take_one_record_is_refused_before_anything_is_consumed(
    write: Any, definition: Any, complaint: Any
) -> None:
    path = write("pricing_j.py", definition + "\n")
    with pytest.raises(TransformLoadError, match=complaint):
        load_transform(f"{path}:price")
