"""``eos-client offsets``: its commands and their options. :mod:`eos_client.cli.offsets` does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from eos_client.cli.offsets import DatabaseAccess, export_offsets, release_offsets, set_offsets, show_offsets
from eos_client.cli.options import Bootstrap, Config, ConfigFile, Database, Json, Profile, Verbose, named
from eos_client.cli.reporting import reported
from eos_client.cli.settings import cluster_access

offsets_app = typer.Typer(no_args_is_help=True, help="Show and change the positions that a database keeps.")
OffsetsTable = Annotated[str, named("--table", "TABLE", "The offsets table, with its schema where it has one.")]


@offsets_app.command("show")
def offsets_show(
    database: Database,
    group: Annotated[str | None, named("--group", "GROUP", "The rows of this group only.")] = None,
    table: OffsetsTable = "eos_offsets",
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show where each partition of a group goes on, and who has claimed it."""
    with reported(verbose=verbose):
        show_offsets(DatabaseAccess(url=database, table=table), group, as_json=as_json)


@offsets_app.command("set")
def offsets_set(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")],
    places: Annotated[list[str], typer.Argument(metavar="TOPIC[PARTITION]=OFFSET...", help="Where it goes on.")],
    database: Database,
    table: OffsetsTable = "eos_offsets",
    verbose: Verbose = False,
) -> None:
    """Let a group go on elsewhere; a worker that runs meanwhile is fenced."""
    with reported(verbose=verbose):
        set_offsets(DatabaseAccess(url=database, table=table), group, places)


@offsets_app.command("export")
def offsets_export(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group, without members.")],
    database: Database,
    bootstrap: Bootstrap = None,
    table: OffsetsTable = "eos_offsets",
    config: Config = None,
    config_file: ConfigFile = None,
    profile: Profile = None,
    verbose: Verbose = False,
) -> None:
    """Write a group's positions into Kafka, for an application that commits its offsets there."""
    with reported(verbose=verbose):
        cluster = cluster_access(bootstrap, config, config_file, profile)
        export_offsets(DatabaseAccess(url=database, table=table), group, cluster)


@offsets_app.command("release")
def offsets_release(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")],
    database: Database,
    table: OffsetsTable = "eos_offsets",
    verbose: Verbose = False,
) -> None:
    """Let a group that was deleted, or moved to another cluster, claim its rows again."""
    with reported(verbose=verbose):
        release_offsets(DatabaseAccess(url=database, table=table), group)
