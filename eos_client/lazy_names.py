"""Names of a package that are imported when they are first used (PEP 562).

Every process that starts pytest in an environment with this package imports `eos_client`, and most of them need none of
its clients. `TYPE_CHECKING` imports beside the table tell type checkers what each name is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of ``package``, whose names are defined in the modules ``homes``.

    A home that ends in the name itself is a submodule. A name stays in the package once it was imported.
    """

    def get_attribute(name: str) -> object:
        module = sys.modules[package]
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        found = import_module(home)
        value = found if home == f"{package}.{name}" else getattr(found, name)
        setattr(module, name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get_attribute, list_names
