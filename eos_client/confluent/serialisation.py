"""Calls serialisers and deserialisers as confluent_kafka's own clients do, and names what they refuse.

Any callable of a value and a ``SerializationContext`` will do. Those of ``confluent_kafka.schema_registry`` are among
them; that package is the application's to import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic

import msgspec
from confluent_kafka import Message
from confluent_kafka.error import (
    KeyDeserializationError,
    KeySerializationError,
    ValueDeserializationError,
    ValueSerializationError,
)
from confluent_kafka.serialization import MessageField, SerializationContext

from eos_client.config.client_settings import check_serialiser
from eos_client.confluent.record_headers import readable_headers
from eos_client.errors import InputUnreadableError, OutputNotSerializedError, text_of
from eos_client.ports import (
    AsyncBatchTransform,
    AsyncOutputs,
    BatchTransform,
    Deserializer,
    K_co,
    OutputRecord,
    Outputs,
    Serializer,
    V_co,
)


class _MessageMixin:
    """Says in a sentence what happened; ``args[0]`` stays confluent_kafka's error."""

    message: str

    def __str__(self) -> str:
        return self.message


class KafkaKeyUnreadableError(_MessageMixin, KeyDeserializationError, InputUnreadableError):
    """See InputUnreadableError."""


class KafkaValueUnreadableError(_MessageMixin, ValueDeserializationError, InputUnreadableError):
    """See InputUnreadableError."""


class KafkaKeyNotSerializedError(_MessageMixin, KeySerializationError, OutputNotSerializedError):
    """See OutputNotSerializedError."""


class KafkaValueNotSerializedError(_MessageMixin, ValueSerializationError, OutputNotSerializedError):
    """See OutputNotSerializedError."""


class Serialized(bytes):
    """A key or a value that is serialised already."""


class DeserializedRecord(Generic[K_co, V_co]):
    """One consumed record whose ``key()`` and ``value()`` are what the deserialisers have made of it.

    They run at the first look, the key's first, and once. ``raw`` is confluent_kafka's ``Message``, unchanged: the
    record may be consumed again, or dead-lettered. Raises InputUnreadableError from ``key()`` and ``value()``.
    """

    __slots__ = ("_both", "_read", "raw")

    def __init__(self, raw: Message, read: Callable[[Message], tuple[K_co, V_co]]) -> None:
        self.raw = raw
        self._read = read
        self._both: tuple[K_co, V_co] | None = None

    def read(self) -> tuple[K_co, V_co]:
        """Return the key and the value."""
        if self._both is None:
            self._both = self._read(self.raw)
        return self._both

    def key(self) -> K_co:
        """Return what the key's deserialiser has made of the key; without one, the raw key."""
        return self.read()[0]

    def value(self) -> V_co:
        """Return what the value's deserialiser has made of the value; without one, the raw value."""
        return self.read()[1]

    deserialized_key, deserialized_value = key, value

    def topic(self) -> Any:
        """Return the topic."""
        return self.raw.topic()

    def partition(self) -> Any:
        """Return the number of the partition."""
        return self.raw.partition()

    def offset(self) -> Any:
        """Return the offset in the partition."""
        return self.raw.offset()

    def headers(self) -> Any:
        """Return the headers as pairs of name and bytes, None without any."""
        return readable_headers(self.raw)

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp, and milliseconds since the epoch."""
        return self.raw.timestamp()

    def leader_epoch(self) -> int | None:
        """Return the leader epoch, None where the broker gave none."""
        return self.raw.leader_epoch()

    def error(self) -> None:
        """Return None: an error event is never deserialised."""

    def __len__(self) -> int:
        return len(self.raw)


DeserializedTransform = Callable[[DeserializedRecord[K_co, V_co]], Outputs]
"""A transform of records whose keys and values have the types of their deserialisers."""
Messages = list[Message]
"""Records typed as confluent_kafka's ``Message``."""
MessageTransform = Callable[[Message], Outputs]
"""A transform whose records are typed as confluent_kafka's ``Message``."""
AnyBatchTransform = (
    BatchTransform[K_co, V_co]
    | Callable[[list[DeserializedRecord[K_co, V_co]]], Outputs]
    | Callable[[Messages], Outputs]
)
"""A transform of a list of records, named by any of their types: for type checkers, lists are invariant."""
AnyAsyncTransform = Callable[[DeserializedRecord[K_co, V_co]], AsyncOutputs] | Callable[[Message], AsyncOutputs]
"""An async transform of a record, of the type of its deserialisers or ``Message``."""
AnyAsyncBatchTransform = (
    AsyncBatchTransform[K_co, V_co]
    | Callable[[list[DeserializedRecord[K_co, V_co]]], AsyncOutputs]
    | Callable[[Messages], AsyncOutputs]
)
"""As ``AnyBatchTransform``, for an async function."""


def raw_record(record: Any) -> Any:
    """Return the client library's own message, of which ``record`` may be the deserialised form."""
    return record.raw if isinstance(record, DeserializedRecord) else record


@dataclass(frozen=True, slots=True)
class Deserializers(Generic[K_co, V_co]):
    """The deserialisers of one consumer, None for what stays as it is."""

    key: Deserializer[K_co] | None
    value: Deserializer[V_co] | None

    @classmethod
    def taken_from(cls, settings: dict[str, Any]) -> Deserializers[Any, Any]:
        """Take them out of a consumer's ``settings``; raises ConfigurationError for one that cannot be called."""
        return Deserializers(*_taken(settings, "key.deserializer", "value.deserializer"))

    def __bool__(self) -> bool:
        return not self.key is self.value is None

    def record(self, message: Any) -> DeserializedRecord[K_co, V_co]:
        """Return ``message`` with what the deserialisers make of it."""
        return DeserializedRecord(message, self._read)

    def records(self, batch: list[Any]) -> list[Any]:
        """Return ``batch`` with its records deserialised, and its error events as they are."""
        return [self.record(each) if each.error() is None else each for each in batch] if self else batch

    def _read(self, message: Any) -> tuple[Any, Any]:
        # One context, the key first: a key's deserialiser may leave something in it for the value's.
        context = SerializationContext(message.topic(), MessageField.KEY, readable_headers(message))
        key = _read_by(self.key, message.key(), context, message, KafkaKeyUnreadableError)
        context.field = MessageField.VALUE
        return key, _read_by(self.value, message.value(), context, message, KafkaValueUnreadableError)


@dataclass(frozen=True, slots=True)
class Serializers:
    """The serialisers of one producer, None for what is written as it is."""

    key: Serializer | None
    value: Serializer | None

    @classmethod
    def taken_from(cls, settings: dict[str, Any]) -> Serializers:
        """Take them out of a producer's ``settings``; raises ConfigurationError for one that cannot be called."""
        return cls(*_taken(settings, "key.serializer", "value.serializer"))

    def __bool__(self) -> bool:
        return not self.key is self.value is None

    def apply(self, topic: str, key: Any, value: Any, headers: Any) -> tuple[Any, Any, Any]:
        """Return key, value and headers as they are written; None is null, and no serialiser is asked.

        Serialisers may add headers, such as the id of a schema. Raises OutputNotSerializedError.
        """
        own: Any = dict(headers) if isinstance(headers, Mapping) else list(headers or ())
        context = SerializationContext(topic, MessageField.KEY, own)
        key = _written_by(self.key, key, context, KafkaKeyNotSerializedError)
        context.field = MessageField.VALUE
        value = _written_by(self.value, value, context, KafkaValueNotSerializedError)
        return key, value, own or headers

    def output(self, output: Any, default_topic: str | None) -> Any:
        """Return a transform's output with key and value as bytes; an invalid one, to be refused later, as it is."""
        record = OutputRecord(value=output) if isinstance(output, bytes) else output
        if not isinstance(record, OutputRecord) or isinstance(record.headers, Iterator):
            return output
        if (topic := record.topic or default_topic) is None:
            return output
        key, value, headers = self.apply(topic, record.key, record.value, record.headers)
        return msgspec.structs.replace(record, key=key, value=value, headers=headers)

    def messages(self, topic: str, messages: Any) -> Any:
        """Return copies of a batch's messages with key and value as bytes; an invalid one stays as it is."""
        if not isinstance(messages, list):
            return messages
        return [self.arguments(topic, each) if isinstance(each, dict) else each for each in messages]

    def arguments(self, topic: str, named: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of ``produce`` with bytes in them."""
        key, value, headers = self.apply(topic, named.get("key"), named.get("value"), named.get("headers"))
        return {**named, "key": key, "value": value, **({} if headers is None else {"headers": headers})}


def _taken(settings: dict[str, Any], *names: str) -> list[Any]:
    for name in names:
        check_serialiser(name, settings.get(name))
    return [settings.pop(name, None) for name in names]


def _read_by(call: Any, content: Any, context: SerializationContext, message: Any, refused: Any) -> Any:
    if call is None:
        return content
    try:
        return call(content, context)
    except Exception as cause:
        error = refused(_text_for_library(cause), message)
        error.exception = cause
        error.topic, error.partition, error.offset = message.topic(), message.partition(), message.offset()
        error.message = (
            f"the {context.field} of {error.topic}[{error.partition}]@{error.offset} cannot be deserialised by "
            f"{_name(call)}: {text_of(cause)}"
        )
        raise error from cause


def _written_by(call: Any, content: Any, context: SerializationContext, refused: Any) -> Any:
    if call is None or content is None or isinstance(content, Serialized):
        return content
    try:
        return call(content, context)
    except Exception as cause:
        error = refused(_text_for_library(cause))
        error.exception = cause
        error.message = (
            f"the {context.field} of an output for topic {context.topic!r} cannot be serialised by "
            f"{_name(call)}: {text_of(cause)}"
        )
        raise error from cause


def _text_for_library(cause: Exception) -> str:
    """Return the text of ``cause`` as a KafkaError takes it: UTF-8 without a NUL."""
    return text_of(cause).encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def _name(call: Any) -> str:
    return str(getattr(call, "__name__", type(call).__name__))
