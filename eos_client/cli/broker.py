"""``eos-client broker``: runs an embedded Kafka broker for development until Ctrl-C or SIGTERM."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from eos_client.cli.signals import signals_as_interrupt
from eos_client.errors import EmbeddedKafkaError
from eos_client.testing.embedded_kafka import EmbeddedKafka

_WATCH_INTERVAL_S = 0.5


def serve_broker(version: str, port: int | None, properties: Mapping[str, str]) -> None:
    """Start a broker, print its address on stdout, and keep it until a signal comes.

    :raises EmbeddedKafkaError: it could not start, or died by itself.
    """
    broker = EmbeddedKafka(version=version, port=port, properties=properties, on_progress=print_status)
    started_at = time.monotonic()
    print_status(f"starting Kafka {version} ...")
    with signals_as_interrupt():
        try:
            with broker:
                print(broker.bootstrap_servers, flush=True)
                print_status(
                    f"Kafka {version} serves {broker.bootstrap_servers} after {time.monotonic() - started_at:.1f} s"
                )
                print_status("Ctrl-C or SIGTERM stops it and removes its data")
                while broker.running:
                    time.sleep(_WATCH_INTERVAL_S)
                raise EmbeddedKafkaError(f"the broker died by itself. The end of its log:\n{broker.log_tail()}")
        except KeyboardInterrupt:
            print_status("stopped")


def print_status(line: str) -> None:
    """Print a line for the person at the terminal; stdout is for the address alone."""
    print(line, file=sys.stderr, flush=True)
