"""Reads settings from a file, the environment and ``--config key=value``, and names from ``--from a,b``."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eos_client.cli.failures import CommandLineError
from eos_client.config.secret_settings import check_addresses, check_token_settings, is_secret
from eos_client.errors import ConfigurationError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PREFIX = "EOS_CLIENT_CONFIG_"
_OPTION_OF_KEY = {"bootstrap.servers": "--bootstrap", "group.id": "--group", "transactional.id": "--transactional-id"}
_OF_JOBS = frozenset({"group.id", "transactional.id"})
_NO_TEXTS = frozenset({"default.topic.config", "dr_cb", "error_cb", "logger", "oauth_cb", "stats_cb", "throttle_cb"})


@dataclass(frozen=True, kw_only=True)
class ClusterAccess:
    """How to reach a cluster."""

    bootstrap_servers: str
    settings: Mapping[str, str] = field(default_factory=dict)


def parse_settings(pairs: Sequence[str], *, option: str = "--config") -> dict[str, str]:
    """Return librdkafka settings (or broker properties) from ``key=value`` texts; the value may hold ``=``.

    :raises CommandLineError: no ``=``, or a repeated key.
    :raises ConfigurationError: no key.
    """
    settings: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        key = key.strip()
        if not separator:
            shown = "(not shown)" if is_secret(pair) else repr(pair)
            raise CommandLineError(f"{option} {shown} is not KEY=VALUE, for example {option} client.id=billing")
        _require_name(key, option)
        if key in settings:
            values = "" if is_secret(key) else f": {settings[key]!r} and {value!r}"
            raise CommandLineError(f"{option} {key} is given twice{values}. Keep one")
        settings[key] = value
    return settings


def client_settings(pairs: Sequence[str] | None, file: Path | None, *, of_job: bool = False) -> dict[str, str]:
    """Return librdkafka settings from a TOML file, from the environment, and from ``--config``; the later one wins.

    In the file ``sasl.password = "..."`` and ``[sasl]`` with ``password`` mean the same; in the environment the name is
    ``EOS_CLIENT_CONFIG_SASL_PASSWORD``. Neither is visible in the process list.

    :param of_job: the command has options for a job's ``group.id`` and ``transactional.id``. For any other command,
        those that a file or the environment holds are the job's, and left out.
    :raises CommandLineError: a file that cannot be read, a value that is no text, number or boolean, a key that has an
        option of its own, or what `parse_settings` refuses.
    :raises ConfigurationError: no name, a callback, credentials in an address, or a bad ``sasl.oauthbearer.config``.
    """
    found = [each for each in (*_settings_in(file), *_settings_in_environment()) if of_job or each[1] not in _OF_JOBS]
    found += [(f"--config {key}", key, value) for key, value in parse_settings(pairs or ()).items()]
    for where, key, value in found:
        if key in _OF_JOBS and not of_job:
            raise CommandLineError(f"{where}: this command takes no {key}")
        _require_name(key, where.rstrip(": "))
        check_addresses({key: value})
        if key in _OPTION_OF_KEY:
            raise CommandLineError(f"{where}: give it as {_OPTION_OF_KEY[key]} {value}")
        if key in _NO_TEXTS or key.startswith("on_"):
            raise ConfigurationError(f"{where}: {key} is no text and can be given in code only. Leave it out.")
    settings = {key: value for _, key, value in found}
    check_token_settings(settings)
    return settings


def _require_name(key: str, where: str) -> None:
    if not key.strip():
        raise ConfigurationError(f"{where}: a setting has no name. Name it, or leave it out.")


def _settings_in_environment() -> Iterator[tuple[str, str, str]]:
    for name, value in os.environ.items():
        if name.startswith(_PREFIX):
            yield name, name.removeprefix(_PREFIX).lower().replace("_", "."), value


def _settings_in(file: Path | None) -> Iterator[tuple[str, str, str]]:
    """Yield where each setting was found, its key and its value."""
    if file is None:
        return
    try:
        read = tomllib.loads(file.read_text(encoding="utf-8-sig"))  # some editors mark it
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, no TOML
        raise CommandLineError(f"--config-file {file} cannot be read: {error}") from error
    for key, value in _flat(read):
        is_number = isinstance(value, (int, float)) and math.isfinite(value)
        if not is_number and not isinstance(value, str):
            what = value if isinstance(value, float) else f"a {type(value).__name__}"
            raise CommandLineError(f"--config-file {file}: {key} is {what}; give a text or a number")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        yield f"--config-file {file}: {key}", key, text


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def parse_names(values: Sequence[str], *, option: str) -> list[str]:
    """Return the names of a repeatable, comma-separated option, in order, without repeats.

    :raises CommandLineError: an empty one, as in ``orders,,refunds``.
    """
    names = [name.strip() for value in values for name in value.split(",")]
    if not all(names):
        raise CommandLineError(f"{option} {','.join(values)!r} holds an empty name: give TOPIC or TOPIC,TOPIC")
    return list(dict.fromkeys(names))
