"""Loads the application's transform from ``FILE.py:FUNC`` or ``package.module:FUNC``.

A file is imported as Python runs a script: its folder comes first on ``sys.path``, so that sibling modules import. A
module is imported as by ``python -m``: the current directory comes first.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from eos_client.cli.failures import TransformLoadError
from eos_client.errors import text_of
from eos_client.loop.transform_check import why_unfit

Transform = Callable[[Any], Any]


def load_transform(reference: str, *, takes_batches: bool = False) -> Transform:
    """Return the function that ``reference`` names, such as ``billing/price.py:price`` or ``billing.price:price``.

    What is before the colon is a file if there is one, or if it ends in ``.py``, has a slash or begins with a dot.

    :raises TransformLoadError: bad syntax, no such file or module, an exception while it was imported, no such
        function, or the function cannot take one record or, with ``takes_batches``, one list of records.
    """
    source, separator, name = reference.rpartition(":")
    if not separator or not source or not name:
        raise TransformLoadError(
            f"{reference!r} is neither FILE.py:FUNC nor package.module:FUNC, for example price.py:price or "
            "billing.price:price"
        )
    path = Path(source)
    is_file = path.is_file() or source.endswith(".py") or "/" in source or source.startswith(".")
    try:
        module = _import_file(path, reference) if is_file else _import_module(source, reference)
        transform: Transform = _attribute_of(module, name, reference)
    except TransformLoadError:
        raise
    except (Exception, SystemExit, GeneratorExit) as error:
        imported, (kind, _, message) = path.name if is_file else source, text_of(error).partition(": ")
        raise TransformLoadError(
            f"{reference}: {imported} raised {kind} while imported, {_place_of(error)}: {message}"
        ) from error
    if unfit := why_unfit(transform, takes_batches=takes_batches):
        raise TransformLoadError(f"{reference}: {name}{unfit}")
    return transform


def _import_file(given: Path, reference: str) -> ModuleType:
    if not given.is_file():
        raise TransformLoadError(f"{reference}: there is no file {given.absolute()}. Check the path before the ':'")
    path = given.resolve()
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_transform"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TransformLoadError(f"{reference}: {path.name} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    sys.modules[name] = module  # dataclasses and pickle look their module up by name
    spec.loader.exec_module(module)
    return module


def _import_module(name: str, reference: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # what the module imports is missing, not the module
        raise TransformLoadError(
            f"{reference}: there is no module {error.name!r} in {Path.cwd()} or among the installed packages. Check "
            "the name before the ':', start in the directory that holds it, or name its file: FILE.py:FUNC"
        ) from error


def _place_of(error: BaseException) -> str:
    """Return the line of the file that was being imported, which is the first one below the import system."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in {__file__, importlib.__file__} and not frame.filename.startswith("<frozen importlib")
    ]
    if frames:
        path = frames[0].filename
        return f"line {[frame.lineno for frame in frames if frame.filename == path][-1]} of {path}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"line {error.lineno} of {error.filename}"
    return "line unknown"


def _attribute_of(module: ModuleType, dotted_name: str, reference: str) -> Any:
    found: Any = module
    for part in dotted_name.split("."):
        if not hasattr(found, part):
            where = getattr(module, "__file__", None) or module.__name__
            raise TransformLoadError(f"{reference}: {where} has no {part!r}{_suggestion(module, part)}")
        found = getattr(found, part)
    return found


def _suggestion(module: ModuleType, name: str) -> str:
    functions = [
        key
        for key, value in vars(module).items()
        if inspect.isfunction(value) and not key.startswith("_")
        if f"{value.__module__}.".startswith(f"{module.__name__}.")  # of the module, or of its package
    ]
    close = difflib.get_close_matches(name, functions, n=1)
    if close:
        return f". Did you mean {close[0]!r}?"
    return f". Its functions: {', '.join(functions)}" if functions else ". It defines no function"
