"""Reads the values of repeatable options: ``--config key=value`` and ``--from a,b``."""

from __future__ import annotations

from collections.abc import Sequence

from eos_client.cli.failures import CommandLineError
from eos_client.config import is_secret

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
        if option == "--config" and key in _OPTION_OF_KEY:
            raise CommandLineError(f"--config {key}={value}: give it as {_OPTION_OF_KEY[key]} {value}")
        settings[key] = value
    return settings


def parse_names(values: Sequence[str], *, option: str) -> list[str]:
    """Return the names of a repeatable, comma-separated option, in order, without repeats.

    :raises CommandLineError: no name at all, or an empty one as in ``orders,,refunds``.
    """
    names = [name.strip() for value in values for name in value.split(",")]
    if not names or not all(names):
        raise CommandLineError(f"{option} {','.join(values)!r} holds an empty name: give TOPIC or TOPIC,TOPIC")
    return list(dict.fromkeys(names))
