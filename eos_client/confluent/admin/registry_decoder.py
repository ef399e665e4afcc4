"""Decodes keys and values whose schema is in a Schema Registry, for tools; needs confluent-kafka's extra ``[avro]``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from eos_client.errors import ClusterUnavailableError, ConfigurationError

_MAGIC = 0
_PREFIX_BYTES = 5  # the magic byte, and the schema's id in four


class RegistryDecoder:
    """Decodes what begins with the id of an Avro or JSON schema; each schema is asked for once.

    :param settings: those of confluent-kafka's ``SchemaRegistryClient``, such as ``url``.
    :raises ConfigurationError: the client refuses them.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        try:
            self._client = SchemaRegistryClient.new_client(dict(settings))
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"the Schema Registry cannot be asked: {error}") from error
        made_by: Any = AvroDeserializer  # whose constructor type checkers cannot see behind its decorator
        self._avro = made_by(self._client)

    def decoded(self, content: bytes, topic: str) -> Any:
        """Return the decoded ``content``, or ``content`` itself if it has no schema, or one of another format.

        :raises ClusterUnavailableError: the registry does not answer, or does not have the schema.
        """
        if len(content) < _PREFIX_BYTES or content[0] != _MAGIC:
            return content
        kind = self._kind_of(int.from_bytes(content[1:_PREFIX_BYTES], "big"), topic)
        try:
            if kind == "AVRO":
                return self._avro(content, SerializationContext(topic, MessageField.VALUE))
            return json.loads(content[_PREFIX_BYTES:]) if kind == "JSON" else content
        except (SerializationError, ValueError):
            return content  # the zero at its beginning was a value's own

    def _kind_of(self, number: int, topic: str) -> str | None:
        try:
            return self._client.get_schema(number).schema_type
        except Exception as error:  # refused, or the errors of whatever library speaks HTTP
            raise ClusterUnavailableError(
                f"the Schema Registry does not give the schema {number} of a record of {topic}: {error}. Check its "
                "address and login, or leave --schema-registry out"
            ) from error
