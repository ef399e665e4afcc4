"""``eos-client broker``: its options. :mod:`eos_client.cli.broker` does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from eos_client.cli.options import Verbose, flag
from eos_client.cli.reporting import reported
from eos_client.cli.settings import parse_settings
from eos_client.testing.broker_settings import DEFAULT_VERSION


def broker(
    version: Annotated[str, typer.Option(help="Kafka version, fetched once.")] = DEFAULT_VERSION,
    port: Annotated[int | None, typer.Option(help="Where it listens; a free port when left out.", min=1)] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="KEY=VALUE", help="A broker property. May be repeated.")
    ] = None,
    sasl: Annotated[bool, flag("--sasl", "Clients have to log in (SASL PLAIN); how is printed on stderr.")] = False,
    verbose: Verbose = False,
) -> None:
    """Start an embedded real Kafka for development; its address is all that it prints on stdout."""
    from eos_client.cli.broker import serve_broker  # noqa: PLC0415  no other command needs it

    with reported(verbose=verbose):
        serve_broker(version, port, parse_settings(properties or (), option="--property"), with_login=sasl)
