"""The outputs among a transform's results: one, an iterable of them, or nothing."""

from __future__ import annotations

import inspect
from array import array
from collections.abc import Iterable, Mapping, Sequence
from types import GeneratorType
from typing import Any

import msgspec

from eos_client.confluent.producer.output_arguments import UNCHANGEABLE, as_written
from eos_client.errors import ConfigurationError, repr_of
from eos_client.ports import Output, OutputRecord

SINGLE_OUTPUT_TYPES = (bytes, OutputRecord)
"""What a transform may return instead of an iterable of outputs."""

NOT_OUTPUT_COLLECTIONS = (str, bytearray, memoryview, array, Mapping)
"""Iterables that are not collections of outputs: an empty one would be taken for no output, a mapping for its keys."""

USUAL_COLLECTIONS = frozenset({list, tuple, GeneratorType})
"""Collections of outputs that need no further question."""

_OF_AWAITABLES = ("__await__", "__aiter__", "add_done_callback")  # the last of futures that a thread waits for


class TransformUnfitError(ConfigurationError):
    """The transform does not fit the loop that it was given to, which is no failure of a record."""


def invalid_result_error(made: Any) -> TypeError | None:
    """Return the error for a transform's result that is neither an output nor an iterable of them, else None.

    Raises TransformUnfitError for what would have to be awaited.
    """
    if type(made) in USUAL_COLLECTIONS:
        return None
    is_iterable = hasattr(made, "__iter__") and not isinstance(made, NOT_OUTPUT_COLLECTIONS)
    if isinstance(made, SINGLE_OUTPUT_TYPES) or is_iterable or made is None:
        return None
    reason = f"the transform returned {repr_of(made)}; it must return an output or an iterable of them"
    require_no_awaitable(made, reason)
    return TypeError(f"{reason} (return bytes, an OutputRecord or a list of them, or yield)")


def require_no_awaitable(given: Any, reason: str) -> None:
    """Raise TransformUnfitError, beginning with ``reason``, where a transform's result would have to be awaited."""
    if inspect.iscoroutine(given):
        given.close()  # or Python warns that nobody awaits it
    if any(hasattr(given, name) for name in _OF_AWAITABLES):
        raise TransformUnfitError(
            f"{reason}, and is not awaited: make it a plain function or generator, or await what it makes in an async "
            "one, which AsyncExactlyOnceLoop takes. No record was given up."
        )


def no_output(given: Any) -> TypeError:
    """Return the error for ``given``, which is no output; raises TransformUnfitError for an awaitable one."""
    reason = f"the transform gave {repr_of(given)}; it must return or yield OutputRecord objects or bytes"
    require_no_awaitable(given, reason)
    return TypeError(reason)


def each_output(made: Any) -> Iterable[Output]:
    """Return an iterable of the outputs in a transform's result; raises TypeError for an invalid result."""
    if (wrong := invalid_result_error(made)) is not None:
        raise wrong
    if isinstance(made, SINGLE_OUTPUT_TYPES):
        return (made,)
    given: Iterable[Output] = made if hasattr(made, "__iter__") else ()  # an array has no truth value
    return given


def collected(made: Any) -> Sequence[Output]:
    """Return the outputs in a transform's result once all of them are made; raises TypeError for an invalid result.

    What is made one after another is stored as it was given. What was made as a whole is to be written before the
    transform is called again.
    """
    outputs: Any = made if type(made) in USUAL_COLLECTIONS else each_output(made)
    return outputs if isinstance(outputs, (list, tuple)) else [as_given(each) for each in outputs]


def as_given(output: Any) -> Any:
    """Return ``output`` as it is now: the application may use its headers, and a buffer in it, for the next one.

    Raises TypeError for what is no output, and for an array of objects.
    """
    kind = type(output)
    if kind is OutputRecord:
        if output.headers is None and type(output.value) in UNCHANGEABLE and type(output.key) in UNCHANGEABLE:
            return output
    elif isinstance(output, bytes):
        return output
    elif not isinstance(output, OutputRecord):
        raise no_output(output)
    value, key = as_written(output.value), as_written(output.key)
    return msgspec.structs.replace(output, value=value, key=key, headers=_copied(output.headers))


def _copied(headers: Any) -> Any:
    if isinstance(headers, Mapping):
        return dict(headers)
    return [*headers] if isinstance(headers, Sequence) and not isinstance(headers, (str, bytes)) else headers
