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
    monkeypatch.chdir(tmp_path)

    def write(name: Any, text: Any) -> Any:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
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


@pytest.mark.parametrize("reference", ["price.py", "price.py:", ":price", "price", "billing.price"])
def test_a_reference_without_both_parts_says_what_is_expected(reference: Any) -> None:
    with pytest.raises(TransformLoadError, match=r"is neither FILE.py:FUNC nor package.module:FUNC"):
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


def test_whatever_is_raised_at_import_is_named(write: Any) -> None:
    path = write("pricing_j.py", "raise GeneratorExit('odd')\n")
    with pytest.raises(TransformLoadError, match=r"raised GeneratorExit while imported, line 1 of .*: odd"):
        load_transform(f"{path}:price")
    path = write("pricing_k.py", "class E(ValueError):\n    def __str__(self):\n        exit(0)\nraise E\n")
    with pytest.raises(TransformLoadError, match=r"raised E while imported, line 4 of .*: no text, because"):
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


def test_loads_a_function_of_a_module_of_a_package_in_the_current_directory(write: Any) -> None:
    write("billing_a/rates.py", "RATE = 3\n")
    write("billing_a/price.py", "from .rates import RATE\ndef price(record): return [record * RATE]\n")
    assert load_transform("billing_a.price:price")(2) == [6]
    assert "billing_a.price" in sys.modules


def test_the_current_directory_comes_before_the_installed_packages(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path / "installed")
    write("installed/billing_b.py", "class Pricer:\n    def price(self, record): return record\npricer = Pricer()\n")
    write("installed/billing_c.py", "def price(record): return [b'installed']\n")
    write("billing_c.py", "def price(record): return [b'here']\n")
    assert load_transform("billing_b:pricer.price")(3) == 3
    assert load_transform("billing_c:price")(3) == [b"here"]


@pytest.mark.parametrize("name", ["no_price.py", "billing_d/price", "./billing_d", ".billing_d"])
def test_a_name_that_ends_in_py_or_looks_like_a_path_is_a_file(write: Any, name: str) -> None:
    write("billing_d/price.py", "def price(record): ...\n")
    with pytest.raises(TransformLoadError, match="there is no file"):
        load_transform(f"{name}:price")


def test_a_file_of_that_very_name_comes_before_a_module(write: Any) -> None:
    write("billing_e.py", "def price(record): ...\n")
    write("billing_e", "")
    with pytest.raises(TransformLoadError, match=r"its name must end in .py"):
        load_transform("billing_e:price")


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("no_such_package", "no_such_package"),
        ("no_such_package.price", "no_such_package"),
        ("billing_f.prise", "billing_f.prise"),
        ("billing_f.price.price", "billing_f.price.price"),
        ("billing-f", "billing-f"),
    ],
)
def test_a_missing_module_is_named_with_where_it_was_looked_for(
    write: Any, tmp_path: Path, name: str, missing: str
) -> None:
    write("billing_f/price.py", "def price(record): ...\n")
    looked_for = f"there is no module '{missing}' in {tmp_path} or among the installed packages. .* FILE.py:FUNC"
    with pytest.raises(TransformLoadError, match=looked_for):
        load_transform(f"{name}:price")


@pytest.mark.parametrize(
    ("name", "text", "raised", "place"),
    [
        (
            "price",
            "\nimport no_such_module_anywhere\n",
            "ModuleNotFoundError",
            "line 2 of .*/price.py: No module named",
        ),
        ("price", "from . import no_such_sibling\n", "ImportError", "line 1 of .*/price.py: cannot import name"),
        ("price", "from .no_such_sibling import f\n", "ModuleNotFoundError", "line 1 of .*/price.py: No module named"),
        ("price", "def rate(): return 1 / 0\n\nrate()\n", "ZeroDivisionError", "line 1 of .*/price.py: division"),
        ("price", "import json\n\njson.loads('?')\n", "JSONDecodeError", "line 3 of .*/price.py: Expecting value"),
        ("price", "def price(record:\n", "SyntaxError", "line 1 of .*/price.py: "),
        ("price", "import sys\nsys.exit(0)\n", "SystemExit", "line 2 of .*/price.py: 0"),
        ("__init__", "\n1 / 0\n", "ZeroDivisionError", "line 2 of .*/__init__.py: division"),
        ("__init__", "from .no_such_sibling import f\n", "ModuleNotFoundError", "line 1 of .*/__init__.py: No module"),
    ],
)
def test_an_error_inside_a_module_names_its_line_and_is_not_taken_for_a_missing_module(
    write: Any, request: Any, name: str, text: str, raised: str, place: str
) -> None:
    package = f"billing_g{request.node.callspec.indices['text']}"
    write(f"{package}/price.py", "def price(record): ...\n")
    write(f"{package}/{name}.py", text)
    complaint = rf"^{package}.price:price: {package}.price raised {raised} while imported, {place}"
    with pytest.raises(TransformLoadError, match=complaint) as error:
        load_transform(f"{package}.price:price")
    assert type(error.value.__cause__).__name__ == raised


@pytest.mark.parametrize("reference", ["price_k.py:price", "price_l:price"])
def test_an_error_at_import_without_a_line_is_named_too(write: Any, reference: str) -> None:
    write("price_k.py", "\0")
    write("price_l.py", "\0")
    with pytest.raises(TransformLoadError, match=r"raised (SyntaxError|ValueError) while imported, line unknown: "):
        load_transform(reference)


def test_what_a_package_imports_only_when_it_is_asked_for_may_fail_too(write: Any) -> None:
    write("billing_h.py", "def __getattr__(name):\n    import no_such_module_anywhere\n")
    with pytest.raises(TransformLoadError, match=r"billing_h raised ModuleNotFoundError while imported, line 2 of"):
        load_transform("billing_h:price")


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("billing_i:prise", r"billing_i/__init__.py has no 'prise'. Did you mean 'price'\?"),
        ("billing_i:zebra", "has no 'zebra'. Its functions: price$"),
        ("billing_j:price", "billing_j has no 'price'. It defines no function$"),
        ("sys:price", "sys has no 'price'"),
        ("billing_i:pricing", "pricing is a module, not a function"),
        ("billing_i:RATE", "RATE is a int, not a function"),
    ],
)
def test_what_a_module_lacks_or_cannot_be_called_is_named(write: Any, reference: str, complaint: str) -> None:
    write("billing_i/__init__.py", "from .pricing import price\nRATE = 7\n")
    write("billing_i/pricing.py", "def price(record): ...\n")
    write("billing_j/other.py", "")
    with pytest.raises(TransformLoadError, match=complaint):
        load_transform(reference)
