"""The source keeps house rules, as a test: sizes, names, units, no leftovers, no dead files."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

REPOSITORY = Path(__file__).parents[1]
PACKAGE = "eos_client"
# listeners/ and integration/ are reached through links inside the package; here they are looked at once, as they are.
ROOTS = {"eos_client": PACKAGE, "listeners": f"{PACKAGE}.listeners", "integration": f"{PACKAGE}.integration"}
# What `eos-client init` writes is the user's, and has a test in it.
OF_USERS = REPOSITORY / PACKAGE / "cli" / "project_files"

OPENING_LINES_MAX = 8
FUNCTION_LINES_MAX = 70
FUNCTION_LINES_PREFERRED = 40
LONG_FUNCTIONS_MAX = 4  # how many may exceed the preferred length; only ever lower this

BANNED_WORDS = {"utils", "util", "helpers", "helper", "manager", "impl"}
BANNED_ALONE = {"data", "info", "handler", "process"}  # of modules, classes and functions; within a name they may do
BANNED_PROSE = ("exactly-once delivery", "exactly once delivery")

ERROR_CODES = {KafkaError(getattr(KafkaError, name)).name() for name in dir(KafkaError) if name.strip("_").isupper()}

LIMIT_WORDS = {"timeout", "limit", "interval", "backoff", "delay", "budget", "max", "min"}
UNITS = {"s", "ms", "max", "min", "bytes", "mb", "kb", "lines", "records", "rounds", "attempts"}
# Given by confluent_kafka, our command line and KIP texts.
GIVEN_NAMES = {"timeout", "commit_interval", "max_in_flight_sequence_number_per_connection"}


@dataclass(frozen=True)
class Module:
    """One source file."""

    path: Path
    name: str

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def comments(self) -> list[tuple[int, str]]:
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(REPOSITORY)}:{line}"


def _modules() -> Iterator[Module]:
    for root, package in ROOTS.items():
        left_out = {OF_USERS, *(path for path in (REPOSITORY / root).iterdir() if path.is_symlink())}
        for path in sorted((REPOSITORY / root).rglob("*.py")):
            if left_out.isdisjoint(path.parents) and "__pycache__" not in path.parts:
                parts = path.relative_to(REPOSITORY / root).with_suffix("").parts
                yield Module(path, ".".join((package, *(part for part in parts if part != "__init__"))))


MODULES = list(_modules())
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(module: Module) -> Iterator[Function]:
    yield from (node for node in ast.walk(module.tree) if isinstance(node, Function))


def length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def defined_names(module: Module) -> Iterator[tuple[int, str]]:
    """Every name that the module gives to something."""
    for node in ast.walk(module.tree):
        if isinstance(node, Function | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def words(name: str) -> list[str]:
    """``commitTimeout_s`` is made of commit, timeout and s."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def test_there_is_source_to_look_at_and_nothing_is_looked_at_twice():
    assert len(MODULES) > 40
    assert len({module.path.resolve() for module in MODULES}) == len(MODULES)
    assert {"eos_client", "eos_client.core.commit_gate", "eos_client.listeners.compose", "eos_client.integration"} < {
        module.name for module in MODULES
    }


# -- sizes -----------------------------------------------------------------------------------------------------------


def functions_longer_than(lines_max: int) -> list[str]:
    return [
        f"{module.at(function.lineno)} {function.name}: {length(function)} lines"
        for module in MODULES
        for function in functions(module)
        if length(function) > lines_max
    ]


def test_no_function_is_longer_than_a_page():
    assert functions_longer_than(FUNCTION_LINES_MAX) == []


def test_few_functions_are_longer_than_preferred():
    assert len(functions_longer_than(FUNCTION_LINES_PREFERRED)) <= LONG_FUNCTIONS_MAX, functions_longer_than(
        FUNCTION_LINES_PREFERRED
    )


# -- words -----------------------------------------------------------------------------------------------------------


def test_every_module_opens_with_why_it_exists_and_only_the_core_with_an_essay():
    openings = {module.name: (ast.get_docstring(module.tree) or "").split("\n") for module in MODULES}
    assert [name for name, lines in openings.items() if not lines[0]] == []
    essays = [name for name, lines in openings.items() if len([line for line in lines if line]) > OPENING_LINES_MAX]
    assert [name for name in essays if not name.startswith("eos_client.core")] == []


def test_every_public_class_and_function_says_what_it_means():
    nameless = [
        f"{module.at(node.lineno)} {node.name}"
        for module in MODULES
        for node in module.tree.body
        if isinstance(node, Function | ast.ClassDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
    ]
    assert nameless == []


def test_no_name_is_an_empty_word():
    empty = [f"module {m.name}" for m in MODULES for part in m.name.split(".") if part in BANNED_WORDS | BANNED_ALONE]
    for module in MODULES:
        empty += [f"{module.at(at)} {name}" for at, name in defined_names(module) if BANNED_WORDS & set(words(name))]
        empty += [
            f"{module.at(node.lineno)} {node.name}"
            for node in ast.walk(module.tree)
            if isinstance(node, Function | ast.ClassDef) and node.name.lower().strip("_") in BANNED_ALONE
        ]
    assert empty == []


def test_the_gate_alone_rules_on_commits():
    assert [module.name for module in MODULES if "CommitRuling(" in module.text] == [f"{PACKAGE}.core.commit_gate"]


def spelt_error_codes(module: Module) -> Iterator[int]:
    """Lines with an error code's name, with a part of one, or where a constant of confluent_kafka's is compared."""
    for node in (node for node in ast.walk(module.tree) if isinstance(node, ast.expr)):
        is_name = isinstance(node, ast.Constant) and node.value in ERROR_CODES
        is_part = isinstance(node, ast.Attribute) and re.search(r"\.name\(\)\.(starts|ends)with$", ast.unparse(node))
        is_compared = isinstance(node, ast.Compare) and re.search(r"\bKafkaError\._?[A-Z]", ast.unparse(node))
        if is_name or is_part or is_compared:
            yield node.lineno


def test_one_module_spells_the_error_codes_and_says_what_each_means():
    spelt = {module.name: [module.at(line) for line in spelt_error_codes(module)] for module in MODULES}
    assert spelt.pop(f"{PACKAGE}.core.error_codes")
    assert [at for name, places in spelt.items() if not name.startswith(f"{PACKAGE}.testing.") for at in places] == []


def test_nothing_promises_exactly_once_delivery():
    said = {module.name: " ".join(module.text.lower().split()) for module in MODULES}
    assert [(name, each) for name, text in said.items() for each in BANNED_PROSE if each in text] == []


def limits(module: Module) -> Iterator[tuple[int, str]]:
    """Public names of what ends something: parameters and fields that are numbers, and constants."""
    for node in ast.walk(module.tree):
        if isinstance(node, Function) and (not node.name.startswith("_") or node.name == "__init__"):
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            yield from ((each.lineno, each.arg) for each in arguments if _is_number(each.annotation))
        elif isinstance(node, ast.ClassDef):
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and _is_number(each.annotation)]
            yield from ((each.lineno, each.target.id) for each in fields if isinstance(each.target, ast.Name))
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and type(node.value.value) is not bool:
            names = [target for target in node.targets if isinstance(target, ast.Name)]
            yield from ((node.lineno, each.id) for each in names if isinstance(node.value.value, int | float))


def _is_number(annotation: ast.expr | None) -> bool:
    return annotation is not None and bool({"int", "float"} & set(re.findall(r"\w+", ast.unparse(annotation))))


def test_every_limit_ends_in_its_unit():
    unitless = [
        f"{module.at(line)} {name}"
        for module in MODULES
        for line, name in limits(module)
        if LIMIT_WORDS & set(words(name)) and words(name)[-1] not in UNITS and name not in GIVEN_NAMES
    ]
    assert unitless == []


def test_the_limits_that_are_looked_at_are_many():
    names = {name for module in MODULES for _, name in limits(module) if LIMIT_WORDS & set(words(name))}
    assert {"hold_limit_s", "transform_attempts_max", "timeout_s", "_SERVE_ROUNDS_MAX"} < names


# -- leftovers -------------------------------------------------------------------------------------------------------


def test_nothing_is_left_to_be_done_later():
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK|WIP)\b")
    left = [m.at(n) for m in MODULES for n, line in enumerate(m.text.splitlines(), 1) if marks.search(line)]
    assert left == []


CODE = (ast.Assign, ast.AugAssign, ast.Import, ast.ImportFrom, ast.Return, ast.Raise, ast.Delete, ast.Assert, ast.Call)


def is_code(comment: str) -> bool:
    """Whether a comment is a statement that was put to sleep."""
    text = comment.lstrip("#").strip()
    if re.match(r"(noqa|type:|pyright:|pragma:|--|!)", text):
        return False
    if re.match(r"(if|for|while|with|def|class|try|else|elif|except)\b.*:$", text):
        return True
    try:
        (statement,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False
    return isinstance(statement.value if isinstance(statement, ast.Expr) else statement, CODE)


def test_no_code_is_put_to_sleep_in_comments():
    assert [f"{m.at(line)} {text}" for m in MODULES for line, text in m.comments if is_code(text)] == []


@pytest.mark.parametrize(
    ("comment", "code"),
    [
        ("# self.commit()", True),
        ("# offset = 3", True),
        ("# return None", True),
        ("# if done:", True),
        ("# import time", True),
        ("# confluent_kafka gives None here", False),
        ("# Callbacks queue up behind fetched records.", False),
        ("# noqa: SLF001", False),
        ("# type: ignore[assignment]", False),
        ("# one", False),
        ("# if the gate is closed: wait", False),
    ],
)
def test_sleeping_code_is_told_from_prose(comment, code):
    assert is_code(comment) is code


# -- dead files ------------------------------------------------------------------------------------------------------


def mentioned() -> str:
    """All of what could bring a module to life: imports, also by applications, and names of modules and files."""
    texts = [(REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")]
    for page in (REPOSITORY / "docs").rglob("*.md"):
        texts += re.findall(r"^from (eos_client[\w.]*) import", page.read_text(encoding="utf-8"), re.MULTILINE)
    for module in MODULES:
        package = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                texts += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                    base = ".".join([*parent, *([base] if base else [])])
                texts += [base, *(f"{base}.{alias.name}" for alias in node.names)]
            elif (
                isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w./]+", node.value)
            ):
                texts.append(node.value)
    return "\n".join(texts)


def test_every_module_is_used_by_the_source_itself():
    used = mentioned()
    dead = [
        module.name
        for module in MODULES
        if module.path.name not in {"__init__.py", "__main__.py"}
        and not re.search(rf"\b{re.escape(module.name)}\b", used)
        and not re.search(rf"(^|/){re.escape(module.path.name)}$", used, re.MULTILINE)
    ]
    assert dead == []


def test_no_package_is_empty():
    empty = [
        str(path.relative_to(REPOSITORY))
        for root in ROOTS
        for path in (REPOSITORY / root).rglob("*")
        if path.is_dir() and path.name != "__pycache__" and not any(path.glob("*"))
    ]
    assert empty == []


def test_every_public_name_is_shown_to_the_type_checkers():
    # tests/typing/api.py uses the public names as an application would; mypy and pyright read it.
    public = ast.parse((REPOSITORY / "eos_client/__init__.py").read_text(encoding="utf-8"))
    (names,) = (
        ast.literal_eval(node.value)
        for node in public.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    api = (REPOSITORY / "tests/typing/api.py").read_text(encoding="utf-8")
    assert [name for name in names if not re.search(rf"\b{name}\b", api)] == []
