"""What counts as an output: a transform gives one, an iterable of them, or nothing."""

from __future__ import annotations

import inspect
from array import array
from collections.abc import Iterable, Mapping
from types import GeneratorType
from typing import Any, NamedTuple

from eos_client.confluent.producer.output_arguments import as_written
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
    return TypeError(f"{reason}: return a list, or yield")


def require_no_awaitable(given: Any, reason: str) -> None:
    """Raise TransformUnfitError, beginning with ``reason``, where a transform's result would have to be awaited."""
    if inspect.iscoroutine(given):
        given.close()  # or Python warns that nobody awaits it
    if any(hasattr(given, name) for name in _OF_AWAITABLES):
        raise TransformUnfitError(
            f"{reason}, and is not awaited: make it a plain function or generator, or await what it makes in an async "
            "one, which AsyncExactlyOnceLoop takes. No record was given up."
        )


class InvalidOutput(NamedTuple):
    """Stands for an output that can never be written, for ``reason``, until it is to be written."""

    reason: str


def invalid_output(given: Any) -> InvalidOutput:
    """Return what stands for ``given``, which is no output; raises TransformUnfitError for an awaitable one."""
    if isinstance(given, InvalidOutput):
        return given
    reason = f"the transform gave {repr_of(given)}; it must return or yield OutputRecord objects or bytes"
    require_no_awaitable(given, reason)
    return InvalidOutput(reason)


def each_output(made: Any) -> Iterable[Output]:
    """Return an iterable of the outputs in a transform's result; raises TypeError for an invalid result."""
    if (wrong := invalid_result_error(made)) is not None:
        raise wrong
    if isinstance(made, SINGLE_OUTPUT_TYPES):
        return (made,)
    given: Iterable[Output] = made if hasattr(made, "__iter__") else ()  # an array has no truth value
    return given


def outputs_of(made: Any) -> list[Output]:
    """Return the outputs in a transform's result, those of a generator as they were yielded; raises TypeError."""
    if isinstance(made, SINGLE_OUTPUT_TYPES):
        return [made]
    given = each_output(made)
    return list(given) if isinstance(given, (list, tuple)) else [as_given(each) for each in given]


def as_given(output: Any) -> Any:
    """Return ``output`` as it is now: the application may use it, its content and its headers, for the next one.

    Instead of one whose key or value is an array of objects, what is refused when it is to be written.
    """
    if not isinstance(output, OutputRecord):
        return output
    headers = output.headers
    if type(headers) is list:  # the usual ones, without asking what they are, which takes as long as all the rest
        headers = [*headers]
    elif headers is not None and isinstance(headers, Iterable):
        headers = dict(headers) if isinstance(headers, Mapping) else [*headers]
    try:
        value, key = as_written(output.value), as_written(output.key)
    except TypeError as error:
        return InvalidOutput(str(error))
    return OutputRecord(
        output.topic,
        value=value,
        key=key,
        headers=headers,
        partition=output.partition,
        timestamp_ms=output.timestamp_ms,
    )
