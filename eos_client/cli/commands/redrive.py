"""``eos-client redrive``: its options. :mod:`eos_client.cli.redrive` does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from eos_client.cli.options import Bootstrap, Config, ConfigFile, Profile, Verbose, named, not_empty
from eos_client.cli.redrive import RedriveOptions, redrive
from eos_client.cli.reporting import until_stopped
from eos_client.cli.settings import cluster_access


def redrive_command(  # noqa: PLR0913, PLR0917  # each parameter is an option
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of the dead letters.", callback=not_empty)],
    bootstrap: Bootstrap = None,
    target: Annotated[str | None, named("--to", "TOPIC", "Default: where each record came from.")] = None,
    match: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only letters whose error holds TEXT; the others are kept.")
    ] = None,
    count_max: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="Send N letters at most.", min=1)
    ] = None,
    group: Annotated[
        str | None, named("--group", "GROUP", "Remembers what was sent. Default: eos-redrive-TOPIC.")
    ] = None,
    config: Config = None,
    config_file: ConfigFile = None,
    profile: Profile = None,
    verbose: Verbose = False,
) -> None:
    """Send dead letters back, each exactly once, up to the last one that is there now.

    A letter that cannot be sent is named and stays, and the exit status says so.
    """
    with until_stopped(verbose=verbose):
        access = cluster_access(bootstrap, config, config_file, profile)
        options = RedriveOptions(
            bootstrap_servers=access.bootstrap_servers,
            topic=topic,
            group_id=group or f"eos-redrive-{topic}",
            target=target,
            match=match,
            count_max=count_max,
            settings=access.settings,
        )
        redrive(options)
