"""Whether a test module executes what it reads from a page: follows the text by name, from the page's to a call.

Names are followed through assignments, loops, returned values and arguments, within one module and without regard to
where a name is in scope. So a module that only reads or compares a page is told from one that runs something of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_TAKE_CODE = {"exec", "eval", "compile"}
"""Their first argument is run; the second of ``compile`` only says where it comes from."""
_TAKE_COMMANDS = {"Popen", "subprocess.run", "subprocess.Popen", "eos_client", "typed", "self.command"}
"""Run whatever they are given; ``eos_client`` and ``typed`` are the fixtures that run the program, in a process of its
own and in that of the tests, and an `Operator` keeps one of them."""


def executes(source: str, page: str) -> bool:
    """Whether something that this module gets from a string that ends in ``page`` is run as code or as a command."""
    tree = ast.parse(source)
    functions = {each.name: each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    followed: set[str] = set()
    while True:
        found = followed | {name for node in ast.walk(tree) for name in _given_on(node, followed, page, functions)}
        if found == followed:
            break
        followed = found
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    return any(_is_of(given, followed, page) for call in calls for given in _run_by(call))


def _is_of(node: ast.AST | None, followed: set[str], page: str) -> bool:
    for each in _parts(node) if node is not None else ():
        match each:
            case ast.Constant(value=str(text)) if text.rpartition("/")[2] == page:
                return True
            case ast.Name(id=name) if name in followed:
                return True
    return False


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    inner = _run_by(node) if isinstance(node, ast.Call) and _name_of(node) == "compile" else ast.iter_child_nodes(node)
    for each in inner:
        yield from _parts(each)


def _given_on(
    node: ast.AST, followed: set[str], page: str, functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef]
) -> Iterator[str]:
    """The names that get something of the page by this statement or call."""
    match node:
        case ast.Assign(targets=targets, value=value) if _is_of(value, followed, page):
            yield from (name for target in targets for name in _names(target))
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value) if _is_of(
            value, followed, page
        ):
            yield from _names(target)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            returns = (each.value for each in ast.walk(node) if isinstance(each, ast.Return | ast.Yield))
            if any(_is_of(value, followed, page) for value in returns):
                yield name
        case ast.Call() if (called := functions.get(_name_of(node).rpartition(".")[2])) and any(
            _is_of(given, followed, page) for given in _arguments(node)
        ):
            parameters = called.args
            named = (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)
            others = (each for each in (parameters.vararg, parameters.kwarg) if each is not None)
            yield from (each.arg for each in (*named, *others) if each.arg != "self")


def _names(target: ast.expr) -> Iterator[str]:
    return (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _name_of(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]


def _run_by(call: ast.Call) -> list[ast.expr]:
    name = _name_of(call)
    if name in _TAKE_CODE:
        return call.args[:1]
    return _arguments(call) if name in _TAKE_COMMANDS else []
