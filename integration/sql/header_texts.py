"""Headers of a record as a text, which a column of a table can hold."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from eos_client.ports import Headers

_BASE64 = "base64"


def encode_headers(headers: Headers | None) -> str | None:
    """Return ``headers`` as outboxes and tables of dead letters keep them; None where there are none."""
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return msgspec.json.encode([[name, _as_json(value)] for name, value in pairs]).decode()


def _as_json(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    content = bytes(memoryview(value))
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(content).decode()}


def decode_headers(text: bytes | str | None) -> list[tuple[str, bytes | None]]:
    """Return the headers that ``text`` holds; raises ValueError where it holds none."""
    if text is None:
        return []
    try:
        found = msgspec.json.decode(text)
    except RecursionError as error:
        raise ValueError("headers are a JSON list of [name, value], and not one of so many levels") from error
    pairs = list(found.items()) if isinstance(found, dict) else found
    if not isinstance(pairs, list) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in pairs):  # noqa: PLR2004
        raise ValueError(f"headers are a JSON list of [name, value], or a JSON object, and not {text!r}")
    return [(_name(name), _from_json(value)) for name, value in pairs]


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueError(f"the name of a header is a text, and not {name!r}")  # noqa: TRY004  # of what a row holds
    return name


def _from_json(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {_BASE64} and isinstance(value[_BASE64], str):
        return base64.b64decode(value[_BASE64], validate=True)
    raise ValueError(f'the value of a header is a text, null or {{"base64": ...}}, and not {value!r}')
