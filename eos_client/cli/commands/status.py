"""``eos-client status``: its options. :mod:`eos_client.cli.status` does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from eos_client.cli.options import (
    Bootstrap,
    Config,
    ConfigFile,
    Json,
    Profile,
    Verbose,
    flag,
    not_empty,
    seconds,
)
from eos_client.cli.reporting import reported, result_console, until_stopped
from eos_client.cli.settings import cluster_access
from eos_client.cli.status import show_status, watch_status


def status_command(  # noqa: PLR0913, PLR0917  each parameter is an option
    group: Annotated[str, typer.Argument(metavar="GROUP", help="A consumer group, of any client.", callback=not_empty)],
    bootstrap: Bootstrap = None,
    watch: Annotated[bool, flag("--watch", "Look again and again, until Ctrl-C.")] = False,
    interval_s: Annotated[float, seconds("--interval", "Seconds between two looks of --watch.")] = 2.0,
    as_json: Json = False,
    config: Config = None,
    config_file: ConfigFile = None,
    profile: Profile = None,
    verbose: Verbose = False,
) -> None:
    """Show where a group stands: members, committed and stable offsets, lag, and transactions that hold readers.

    The lag counts the records that a read_committed reader still gets; a large one is given as "<= offsets".
    """
    with until_stopped(verbose=verbose) if watch else reported(verbose=verbose):
        access = cluster_access(bootstrap, config, config_file, profile)
        if watch:
            watch_status(access, group, result_console(), as_json=as_json, interval_s=interval_s)
        else:
            show_status(access, group, result_console(), as_json=as_json)
