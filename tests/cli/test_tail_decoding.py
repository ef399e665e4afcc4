"""`eos-client tail --schema-registry`: what a record shows whose schema is in a registry."""

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from eos_client.cli import topics
from eos_client.cli.failures import ExtraMissingError
from eos_client.confluent.admin import registry_decoder
from eos_client.confluent.admin.registry_decoder import RegistryDecoder
from eos_client.errors import ClusterUnavailableError

FIELDS = [{"name": "item", "type": "string"}, {"name": "raw", "type": "bytes"}]
ORDER = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
MOCK = "mock://"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Any:
    client = SchemaRegistryClient.new_client({"url": MOCK})
    monkeypatch.setattr(registry_decoder, "SchemaRegistryClient", SimpleNamespace(new_client=lambda _settings: client))
    return client


def named(number: int, content: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + content


AVRO_ORDER = b"\x0capples" + b"\x04\xff\x00"


def record(key: bytes | None, value: bytes | None) -> Any:
    parts = {"partition": 0, "offset": 7, "key": key, "value": value, "headers": None, "timestamp": (1, 1000)}
    return SimpleNamespace(**{name: (lambda part=part: part) for name, part in parts.items()})


def test_avro_and_json_are_shown_decoded(registry: Any) -> None:
    avro = registry.register_schema("orders-value", Schema(ORDER, "AVRO"))
    as_json = registry.register_schema("orders-key", Schema('{"type": "object"}', "JSON"))
    decode = topics._decoder(MOCK, "orders")
    one = record(named(as_json, b'{"id": 1}'), named(avro, AVRO_ORDER))
    assert topics._text_line(one, decode).split("\t")[1:] == [
        '{"id": 1}',
        '{"item": "apples", "raw": {"base64": "/wA="}}',
    ]
    line = json.loads(topics._json_line(one, decode))
    assert (line["key"], line["value"]["item"]) == ({"id": 1}, "apples")


@pytest.mark.parametrize("content", [b"", b"plain", b"\0", b"\0\0\0\0", b"\1\0\0\0\1x"])
def test_what_names_no_schema_stays_as_it_is(registry: Any, content: bytes) -> None:
    assert RegistryDecoder({"url": MOCK}).decoded(content, "orders") == content


def test_a_value_that_does_not_fit_its_schema_stays_as_it_is(registry: Any) -> None:
    number = registry.register_schema("orders-value", Schema('{"type": "object"}', "JSON"))
    broken = named(number, b"{")
    assert RegistryDecoder({"url": MOCK}).decoded(broken, "orders") == broken


def test_a_schema_that_the_registry_does_not_have_is_named(registry: Any) -> None:
    with pytest.raises(ClusterUnavailableError, match="does not give the schema 99 of a record of orders"):
        RegistryDecoder({"url": MOCK}).decoded(named(99, b"x"), "orders")


def test_a_registry_that_does_not_answer_is_told_with_the_way_out() -> None:
    settings = {"url": "http://127.0.0.1:1", "max.retries": 0}
    with pytest.raises(ClusterUnavailableError, match="Check its address and login, or leave --schema-registry out"):
        RegistryDecoder(settings).decoded(named(1, b"x"), "orders")


def test_without_the_packages_the_way_to_install_them_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "eos_client.confluent.admin.registry_decoder", raising=False)
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry.avro", None)
    with pytest.raises(ExtraMissingError, match=r"pip install 'confluent-kafka\[avro\]'"):
        topics._decoder("http://127.0.0.1:1", "orders")
