"""Loads the application's transform from ``FILE.py:FUNC``.

The file is imported as Python runs a script: its folder comes first on ``sys.path``, so that sibling modules import.
"""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from eos_client.cli.failures import TransformLoadError
from eos_client.loop.transform_check import why_unfit

Transform = Callable[[Any], Any]


def load_transform(reference: str, *, takes_batches: bool = False) -> Transform:
    """Return the function that ``reference`` names, such as ``billing/price.py:price``.

    :raises TransformLoadError: bad syntax, no such file, the file raised while imported, no such function, or the
        function cannot take one record or, with ``takes_batches``, one list of records.
    """
    file_text, separator, name = reference.rpartition(":")
    if not separator or not file_text or not name:
        raise TransformLoadError(f"{reference!r} is not FILE.py:FUNC, for example price.py:price")
    path = Path(file_text)
    if not path.is_file():
        raise TransformLoadError(f"{reference}: there is no file {path.absolute()}. Check the path before the ':'")
    transform: Transform = _attribute_of(_import_file(path.resolve(), reference), name, reference)
    if unfit := why_unfit(transform, takes_batches=takes_batches):
        raise TransformLoadError(f"{reference}: {name}{unfit}")
    return transform


def _import_file(path: Path, reference: str) -> ModuleType:
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_transform"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TransformLoadError(f"{reference}: {path.name} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    sys.modules[name] = module  # dataclasses and pickle look their module up by name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise TransformLoadError(
            f"{reference}: {path.name} raised {type(error).__name__} while imported, {_place_in(path, error)}: {error}"
        ) from error
    return module


def _place_in(path: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"line {lines[-1]}" if lines else "line unknown"


def _attribute_of(module: ModuleType, dotted_name: str, reference: str) -> Any:
    found: Any = module
    for part in dotted_name.split("."):
        if not hasattr(found, part):
            raise TransformLoadError(f"{reference}: {module.__file__} has no {part!r}{_suggestion(module, part)}")
        found = getattr(found, part)
    return found


def _suggestion(module: ModuleType, name: str) -> str:
    functions = [
        key
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_")
    ]
    close = difflib.get_close_matches(name, functions, n=1)
    if close:
        return f". Did you mean {close[0]!r}?"
    return f". Its functions: {', '.join(functions)}" if functions else ". It defines no function"
