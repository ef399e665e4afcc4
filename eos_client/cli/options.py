"""Declares the options that several commands share, and checks what is typed for them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from eos_client.cli.failures import CommandLineError, failures_reported
from eos_client.cli.logs import LogFormat
from eos_client.cli.settings import BOOTSTRAP_VARIABLE, FILE_VARIABLE, PROFILE_VARIABLE
from eos_client.config import OnError
from eos_client.config.secret_settings import check_addresses


def _address(given: str | None) -> str | None:
    """Return ``given`` where there are no credentials in it."""
    if not_empty(given) is not None:
        with failures_reported(verbose=False):
            check_addresses({"bootstrap.servers": given})
    return given


def not_empty(given: str | None) -> str | None:
    """Return ``given``, the value of an option or argument that names something.

    :raises BadParameter: it is empty.
    """
    if given is not None and not given.strip():  # None: the option was left out
        raise typer.BadParameter("a name cannot be empty")
    return given


def flag(name: str, text: str) -> Any:
    """Return an option that is either given or not, with ``text`` as its help."""
    return typer.Option(name, help=text, show_default=False)


def named(name: str, metavar: str, text: str) -> Any:
    """Return an option that takes a name, which must not be empty."""
    return typer.Option(name, metavar=metavar, help=text, callback=not_empty)


def repeated(name: str, text: str) -> Any:
    """Return an option that takes a topic each time that it is given."""
    return typer.Option(name, metavar="TOPIC", help=f"{text} May be repeated.")


def seconds(name: str, text: str) -> Any:
    """Return an option that takes a time in seconds, at least a millisecond."""
    return typer.Option(name, metavar="S", help=text, min=0.001)


def brokers(text: str) -> Any:
    """Return ``--bootstrap``, which takes no address with credentials in it."""
    return typer.Option("--bootstrap", metavar="HOST:PORT", help=text, callback=_address)


Bootstrap = Annotated[
    str | None, brokers(f"One or more brokers of the cluster; so may {BOOTSTRAP_VARIABLE}, or the file.")
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="The table [profiles.NAME] of the file, too.",
        envvar=PROFILE_VARIABLE,
        callback=not_empty,
    ),
]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="A librdkafka setting by its dotted name. May be repeated."),
]
_OF_FILE = "Settings; so may EOS_CLIENT_CONFIG_SASL_PASSWORD=..."
ConfigFile = Annotated[
    Path | None, typer.Option("--config-file", metavar="FILE.toml", help=_OF_FILE, envvar=FILE_VARIABLE)
]
DemoConfigFile = Annotated[Path | None, typer.Option("--config-file", metavar="FILE.toml", help=_OF_FILE)]
Json = Annotated[bool, flag("--json", "One JSON object a line.")]
Verbose = Annotated[bool, flag("--verbose", "Log every transaction; show the traceback of an error.")]
Quiet = Annotated[bool, flag("--quiet", "Warnings and errors only.")]
CommitInterval = Annotated[float, seconds("--commit-interval", "Seconds of work in one transaction.")]
HealthPort = Annotated[
    int | None, typer.Option("--health-port", metavar="PORT", help="Answer /livez and /readyz there.", min=0, max=65535)
]
MetricsPort = Annotated[
    int | None, typer.Option("--metrics-port", metavar="PORT", help="Serve Prometheus metrics there.", min=0, max=65535)
]
HealthHost = Annotated[
    str, typer.Option("--health-host", metavar="HOST", help="The address of --health-port and --metrics-port.")
]
LogFormatOption = Annotated[LogFormat, typer.Option(help="How log lines look on stderr.")]
Database = Annotated[
    str,
    typer.Option(
        "--database",
        metavar="URL",
        help="The database, as SQLAlchemy takes it.",
        envvar="EOS_CLIENT_DATABASE",
        callback=not_empty,
    ),
]


def failure_policy(on_error: OnError, dead_letter_topic: str | None) -> dict[str, str | None]:
    """Return these two options as settings of `EosConfig`.

    :raises CommandLineError: one of the two options is given without the other.
    """
    if on_error is OnError.DEAD_LETTER and dead_letter_topic is None:
        raise CommandLineError("--on-error dead_letter: give --dead-letter-topic TOPIC with it")
    if on_error is not OnError.DEAD_LETTER and dead_letter_topic is not None:
        raise CommandLineError("--dead-letter-topic: give --on-error dead_letter with it")
    return {"on_error": on_error.value, "dead_letter_topic": dead_letter_topic}
