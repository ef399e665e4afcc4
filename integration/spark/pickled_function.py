"""Pickles a function of the application for the executors, as a value that is equal wherever it is unpickled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark import cloudpickle

from eos_client.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class PickledFunction:
    """A function, pickled as Spark pickles: by content, or by name where executors can import its module."""

    content: bytes = field(repr=False)

    @classmethod
    def of(cls, name: str, function: Callable[..., Any]) -> PickledFunction:
        """Pickle ``function``, the setting ``name``; raises ConfigurationError when it holds what cannot be pickled."""
        try:
            return cls(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
        except Exception as error:
            raise ConfigurationError(
                f"{name} cannot go to executors: {error}. Create what it needs inside the function, or in a module "
                "that executors can import."
            ) from error

    def function(self) -> Callable[..., Any]:
        """Return the function: one object per process, so that it can cache a token, for example."""
        return _unpickled(self.content)


@functools.cache
def _unpickled(content: bytes) -> Callable[..., Any]:
    function: Callable[..., Any] = cloudpickle.loads(content)
    return function
