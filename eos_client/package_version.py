"""The version of the package, as it was installed: the tag in git that it was built from."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

NOT_INSTALLED = "0+not.installed"

try:
    __version__ = version("eos-client")
except PackageNotFoundError:  # a folder on the path that nothing was installed from
    __version__ = NOT_INSTALLED
