"""``eos-client broker``: runs an embedded Kafka broker for development until Ctrl-C or SIGTERM."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping

from eos_client.cli.failures import CommandLineError
from eos_client.cli.settings import BOOTSTRAP_VARIABLE, variable_of
from eos_client.cli.signals import signals_as_interrupt
from eos_client.errors import EmbeddedKafkaError
from eos_client.testing.broker_settings import owned_properties
from eos_client.testing.embedded_kafka import EmbeddedKafka

_WATCH_INTERVAL_S = 0.5
_USER, _PASSWORD = "developer", "development-only"
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": _USER,
    "sasl.password": _PASSWORD,
}
"""The settings of a client that logs in to a broker that asks for it."""


def serve_broker(version: str, port: int | None, properties: Mapping[str, str], *, with_login: bool) -> None:
    """Start a broker, print its address on stdout, and keep it until a signal comes.

    :param with_login: clients have to log in by SASL PLAIN, as `LOGIN` says.
    :raises CommandLineError: a property is one that the broker sets itself.
    :raises EmbeddedKafkaError: it could not start, or died by itself.
    """
    if owned := owned_properties(properties):
        raise CommandLineError(
            f"--property {owned[0]}: the broker sets it by itself. Leave it out; --port chooses where it listens, and "
            "--sasl whether clients log in"
        )
    passwords = {_USER: _PASSWORD} if with_login else None
    broker = EmbeddedKafka(
        version=version, port=port, properties=properties, passwords=passwords, on_progress=print_status
    )
    started_at = time.monotonic()
    print_status(f"starting Kafka {version} ...")
    with signals_as_interrupt():
        try:
            with broker:
                print(broker.bootstrap_servers, flush=True)
                print_status(
                    f"Kafka {version} serves {broker.bootstrap_servers} after {time.monotonic() - started_at:.1f} s"
                )
                for line in how_to_use(broker.bootstrap_servers, with_login=with_login):
                    print_status(line)
                while broker.running:
                    time.sleep(_WATCH_INTERVAL_S)
                raise EmbeddedKafkaError(f"the broker died by itself. The end of its log:\n{broker.log_tail()}")
        except KeyboardInterrupt:
            print_status("stopped")


def how_to_use(address: str, *, with_login: bool) -> Iterator[str]:
    """Yield what a person types in another terminal."""
    yield "in another terminal:"
    yield f"  export {BOOTSTRAP_VARIABLE}={address}"
    for key, value in LOGIN.items() if with_login else ():
        yield f"  export {variable_of(key)}={value}"
    yield "  eos-client topic create orders invoices"
    yield "Ctrl-C or SIGTERM stops it and removes its data"


def print_status(line: str) -> None:
    """Print a line for the person at the terminal; stdout is for the address alone."""
    print(line, file=sys.stderr, flush=True)
