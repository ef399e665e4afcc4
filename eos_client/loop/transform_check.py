"""Checks a transform before its first record: whether the loop can call it at all."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from eos_client.errors import ConfigurationError


def one_transform(transform: Any, transform_batch: Any, *, may_be_async: bool = False) -> Any:
    """Return the one of the two that was given; raises ConfigurationError where the loop cannot call it."""
    given = [each for each in (transform, transform_batch) if each is not None]
    if len(given) != 1:
        raise ConfigurationError(
            f"transform={transform!r} and transform_batch={transform_batch!r}: give the loop one of the two, a "
            "function of one record or a function of a list of records."
        )
    name = "transform_batch" if transform is None else "transform"
    if unfit := why_unfit(given[0], takes_batches=transform is None, may_be_async=may_be_async):
        raise ConfigurationError(f"{name}={given[0]!r}{unfit}")
    return given[0]


def why_unfit(transform: Any, *, takes_batches: bool, may_be_async: bool = False) -> str:
    """Return why the loop cannot call ``transform``, worded to follow its name; empty where it can."""
    if not callable(transform):
        return f" is a {type(transform).__name__}, not a function"
    if _is_async(transform) and not may_be_async:
        return " is async: make it a plain function or generator, or give it to AsyncExactlyOnceLoop"
    try:
        # A decorator may give its function more arguments than it takes itself.
        signature = inspect.signature(transform, follow_wrapped=False)
    except (TypeError, ValueError):  # some builtins have none: let the call show
        return ""
    try:
        signature.bind(object())
    except TypeError as error:
        one, parameter = ("one list of records", "records") if takes_batches else ("one record", "record")
        return f"{signature} cannot be called with {one}: {error}. Give it one parameter, {parameter}"
    return ""


def _is_async(transform: Any) -> bool:
    while isinstance(transform, partial):
        transform = transform.func
    called = (transform, getattr(type(transform), "__call__", None))  # noqa: B004  # of an object, its method
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in called)
