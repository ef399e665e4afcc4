"""Reads settings from a file, the environment and ``--config key=value``, and names from ``--from a,b``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eos_client.cli.failures import CommandLineError
from eos_client.config import check_token_settings, is_secret

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PREFIX = "EOS_CLIENT_CONFIG_"
_OPTION_OF_KEY = {
    "bootstrap.servers": "--bootstrap",
    "group.id": "--group",
    "transactional.id": "--transactional-id",
}


def parse_settings(pairs: Sequence[str], *, option: str = "--config") -> dict[str, str]:
    """Return librdkafka settings (or broker properties) from ``key=value`` texts; the value may hold ``=``.

    :raises CommandLineError: no ``=``, an empty or repeated key, or a key that has an option of its own.
    """
    settings: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        key = key.strip()
        if not separator or not key:
            shown = "(not shown)" if is_secret(pair) else repr(pair)
            raise CommandLineError(f"{option} {shown} is not KEY=VALUE, for example {option} client.id=billing")
        if key in settings:
            values = "" if is_secret(key) else f": {settings[key]!r} and {value!r}"
            raise CommandLineError(f"{option} {key} is given twice{values}. Keep one")
        if option == "--config":
            _refuse_key_with_an_option(f"--config {key}={value}", key, value)
        settings[key] = value
    return settings


def client_settings(pairs: Sequence[str], file: Path | None) -> dict[str, str]:
    """Return librdkafka settings from a TOML file, from the environment, and from ``--config``; the later one wins.

    In the file ``sasl.password = "..."`` and ``[sasl]`` with ``password`` mean the same; in the environment the name is
    ``EOS_CLIENT_CONFIG_SASL_PASSWORD``. Neither stands in the list of processes.

    :raises CommandLineError: a file that cannot be read, a value that is no text, number or boolean, or what
        `parse_settings` refuses.
    :raises ConfigurationError: a ``sasl.oauthbearer.config`` that cannot be read.
    """
    settings = {**_settings_in(file), **_settings_in_environment(), **parse_settings(pairs)}
    check_token_settings(settings)
    return settings


def _refuse_key_with_an_option(where: str, key: str, value: str) -> None:
    if key in _OPTION_OF_KEY:
        raise CommandLineError(f"{where}: give it as {_OPTION_OF_KEY[key]} {value}")


def _settings_in_environment() -> dict[str, str]:
    settings = {}
    for name, value in os.environ.items():
        if name.startswith(_PREFIX):
            key = name.removeprefix(_PREFIX).lower().replace("_", ".")
            _refuse_key_with_an_option(name, key, value)
            settings[key] = value
    return settings


def _settings_in(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        read = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, no TOML
        raise CommandLineError(f"--config-file {file} cannot be read: {error}") from error
    settings = {}
    for key, value in _flat(read):
        if not isinstance(value, (str, int, float)):
            raise CommandLineError(f"--config-file {file}: {key} is a {type(value).__name__}; give a text or a number")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        _refuse_key_with_an_option(f"--config-file {file}: {key}", key, text)
        settings[key] = text
    return settings


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def parse_names(values: Sequence[str], *, option: str) -> list[str]:
    """Return the names of a repeatable, comma-separated option, in order, without repeats.

    :raises CommandLineError: no name at all, or an empty one as in ``orders,,refunds``.
    """
    names = [name.strip() for value in values for name in value.split(",")]
    if not names or not all(names):
        raise CommandLineError(f"{option} {','.join(values)!r} holds an empty name: give TOPIC or TOPIC,TOPIC")
    return list(dict.fromkeys(names))
