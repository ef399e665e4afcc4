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
from eos_client.cli.printable import did_you_mean
from eos_client.config.secret_settings import check_addresses, check_token_settings, is_secret
from eos_client.errors import ConfigurationError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BOOTSTRAP_VARIABLE = "EOS_CLIENT_BOOTSTRAP_SERVERS"
PROFILE_VARIABLE = "EOS_CLIENT_PROFILE"
FILE_VARIABLE = "EOS_CLIENT_CONFIG_FILE"
_PREFIX = "EOS_CLIENT_CONFIG_"
_PROFILES = "profiles"
_ADDRESS = "bootstrap.servers"
_OPTION_OF_KEY = {_ADDRESS: "--bootstrap", "group.id": "--group", "transactional.id": "--transactional-id"}
_BITS_MAX = 64
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


def cluster_access(
    bootstrap: str | None,
    pairs: Sequence[str] | None,
    file: Path | None,
    profile: str | None = None,
    *,
    of_job: bool = False,
) -> ClusterAccess:
    """Return how to reach a cluster: the one that ``bootstrap`` names, that of the profile, the environment, the file.

    :raises CommandLineError: none of them names one, or as `client_settings`.
    :raises ConfigurationError: as `client_settings`.
    """
    settings = client_settings(pairs, file, profile, of_job=of_job, takes_address=True)
    of_file, of_environment = settings.pop(_ADDRESS, None), os.environ.get(BOOTSTRAP_VARIABLE)
    # A profile was chosen for its cluster: its credentials must not go to another one, which was named before.
    named = (bootstrap, of_file if profile is not None else None, of_environment, of_file)
    if (address := next(filter(None, named), None)) is None:
        raise CommandLineError(
            f"no cluster is named: give --bootstrap HOST:PORT, {BOOTSTRAP_VARIABLE}=HOST:PORT in the environment, or "
            f"{_ADDRESS} in --config-file"
        )
    check_addresses({_ADDRESS: address})
    return ClusterAccess(bootstrap_servers=address, settings=settings)


def client_settings(
    pairs: Sequence[str] | None,
    file: Path | None,
    profile: str | None = None,
    *,
    of_job: bool = False,
    takes_address: bool = False,
) -> dict[str, str]:
    """Return librdkafka settings from a TOML file, from the environment, and from ``--config``; the later one wins.

    In the file ``sasl.password = "..."`` and ``[sasl]`` with ``password`` mean the same; in the environment the name is
    ``EOS_CLIENT_CONFIG_SASL_PASSWORD``. Neither is visible in the process list.

    :param profile: settings of the table ``[profiles.NAME]`` of the file win over those that hold for all profiles.
    :param takes_address: ``bootstrap.servers`` may stand in the file, too.
    :param of_job: the command has options for a job's ``group.id`` and ``transactional.id``. For any other command,
        those that a file or the environment holds are the job's, and left out.
    :raises CommandLineError: a file that cannot be read, a value that is no text, number or boolean, a key that has an
        option of its own, or what `parse_settings` refuses.
    :raises ConfigurationError: no name, a callback, credentials in an address, or a bad ``sasl.oauthbearer.config``.
    """
    of_file = list(_settings_in(file, profile))
    allowed = {where for where, key, _ in of_file if takes_address and key == _ADDRESS}
    found = [each for each in (*of_file, *_settings_in_environment()) if of_job or each[1] not in _OF_JOBS]
    found += [(f"--config {key}", key, value) for key, value in parse_settings(pairs or ()).items()]
    for where, key, value in found:
        if key in _OF_JOBS and not of_job:
            raise CommandLineError(f"{where}: this command takes no {key}")
        _require_name(key, where.rstrip(": "))
        check_addresses({key: value})
        if key in _OPTION_OF_KEY and where not in allowed:
            raise CommandLineError(f"{where}: give it as {_OPTION_OF_KEY[key]} {value}")
        if key in _NO_TEXTS or key.startswith("on_"):
            raise ConfigurationError(f"{where}: {key} is no text and can be given in code only. Leave it out.")
    settings = {key: value for _, key, value in found}
    check_token_settings(settings)
    return settings


def _require_name(key: str, where: str) -> None:
    if not key.strip():
        raise ConfigurationError(f"{where}: a setting has no name. Name it, or leave it out.")


def variable_of(key: str) -> str:
    """Return the name of a setting in the environment."""
    return _PREFIX + key.upper().replace(".", "_")


def _settings_in_environment() -> Iterator[tuple[str, str, str]]:
    for name, value in os.environ.items():
        if name.startswith(_PREFIX) and name != FILE_VARIABLE:
            yield name, name.removeprefix(_PREFIX).lower().replace("_", "."), value


def _settings_in(file: Path | None, profile: str | None) -> Iterator[tuple[str, str, str]]:
    """Yield where each setting was found, its key and its value; those of the profile come last."""
    if file is None:
        if profile is not None:
            raise CommandLineError(
                f"--profile {profile}: a profile is a table of a file. Give --config-file FILE.toml with it, or "
                f"{FILE_VARIABLE} in the environment"
            )
        return
    try:
        read = tomllib.loads(file.read_text(encoding="utf-8-sig"))  # some editors mark it
        list(_flat(read))  # which raises RecursionError for tables that are nested too deep
    except (OSError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, no TOML
        raise CommandLineError(f"--config-file {file} cannot be read: {error}") from error
    profiles = read.pop(_PROFILES, {})
    yield from _texts_in(read, f"--config-file {file}: ")
    if profile is not None:
        chosen = _table_of(profiles, profile, file)
        yield from _texts_in(chosen, f"--config-file {file}: {_PROFILES}.{profile}.")


def _table_of(profiles: Any, profile: str, file: Path) -> Mapping[str, Any]:
    known = profiles if isinstance(profiles, Mapping) else {}
    if not isinstance(table := known.get(profile), Mapping):
        names = f"It has: {', '.join(known)}" if known else "It has none"
        meant = did_you_mean(profile, known) or "."
        raise CommandLineError(
            f"--profile {profile}: there is no table [{_PROFILES}.{profile}] in {file}{meant} {names}"
        )
    return table


def _texts_in(table: Mapping[str, Any], place: str) -> Iterator[tuple[str, str, str]]:
    for key, value in _flat(table):
        if what := _why_no_setting(value):
            raise CommandLineError(f"{place}{key} is {what}; give a text or a number")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        yield f"{place}{key}", key, text


def _why_no_setting(value: Any) -> str:
    """Return what ``value`` is if librdkafka has no setting of its kind, else nothing."""
    if isinstance(value, int):
        return f"a number of {value.bit_length()} bits" if value.bit_length() > _BITS_MAX else ""
    if isinstance(value, float):
        return "" if math.isfinite(value) else str(value)
    return "" if isinstance(value, str) else f"a {type(value).__name__}"


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
