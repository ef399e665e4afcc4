"""Puts deserialisers before the application's transform and serialisers after it.

They run as a part of the transform, so that what they raise is the failure of its record: ``on_error`` applies, the
attempts count, and a dead letter has the record's own bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eos_client.config import EosConfig
from eos_client.confluent.serialisation import Deserializers, Serializers
from eos_client.loop.concurrent_transform import event_loop_of
from eos_client.loop.transform_results import SINGLE_OUTPUT_TYPES, as_given, each_output


def reader(config: EosConfig[Any, Any]) -> Callable[[Any], Any] | None:
    """Return a function that turns a message into the transform's record; None if that is the message itself."""
    deserializers = Deserializers(config.key_deserializer, config.value_deserializer)

    def read(message: Any) -> Any:
        record = deserializers.record(message)
        record.read()
        return record

    return read if deserializers else None


def writer(config: EosConfig[Any, Any], default_topic: str | None) -> Callable[[Any], Any] | None:
    """Return a function that serialises an output to bytes; None if outputs are written as they are."""
    serializers = Serializers(config.key_serializer, config.value_serializer)
    return (lambda output: as_given(serializers.output(output, default_topic))) if serializers else None


def with_serialisers(
    transform: Any, config: EosConfig[Any, Any], default_topic: str | None, *, takes_batches: bool
) -> Any:
    """Return ``transform`` between the deserialisers and the serialisers of ``config``, as it is without any.

    A record is deserialised before ``transform`` is called, even if that does not use it. ``takes_batches``:
    ``transform`` is called with a list of records.
    """
    if event_loop_of(transform) is not None:  # it reads and writes by itself
        return transform
    read, write = reader(config), writer(config, default_topic)
    inner = transform if read is None else _deserialised(transform, read, takes_batches=takes_batches)
    return inner if write is None else _serialised(inner, write)


def _serialised(transform: Callable[[Any], Any], write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def serialised(given: Any) -> Any:
        made = transform(given)
        return write(made) if isinstance(made, SINGLE_OUTPUT_TYPES) else [*map(write, each_output(made))]

    return serialised


def _deserialised(transform: Any, read: Callable[[Any], Any], *, takes_batches: bool) -> Callable[[Any], Any]:
    if takes_batches:
        return lambda messages: transform([read(message) for message in messages])
    return lambda message: transform(read(message))
