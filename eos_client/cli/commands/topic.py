"""``eos-client topic``: its commands and their options. :mod:`eos_client.cli.topics` does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from eos_client.cli.options import Bootstrap, Config, ConfigFile, Json, Profile, Verbose, flag
from eos_client.cli.reporting import reported
from eos_client.cli.settings import cluster_access, parse_names
from eos_client.cli.topics import create_topics, list_topics

topic_app = typer.Typer(no_args_is_help=True, help="List and create topics.")


@topic_app.command("create")
def topic_create(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics.")],
    bootstrap: Bootstrap = None,
    partitions: Annotated[int, typer.Option(help="Partitions of each topic.", min=1, max=100_000)] = 1,
    config: Config = None,
    config_file: ConfigFile = None,
    profile: Profile = None,
    verbose: Verbose = False,
) -> None:
    """Create topics with the cluster's replication. --config takes settings of this client, not of the topics."""
    with reported(verbose=verbose):
        access = cluster_access(bootstrap, config, config_file, profile)
        create_topics(access, parse_names(names, option="TOPIC"), partitions)


@topic_app.command("list")
def topic_list(
    bootstrap: Bootstrap = None,
    internal: Annotated[bool, flag("--internal", "Kafka's own topics, too.")] = False,
    as_json: Json = False,
    config: Config = None,
    config_file: ConfigFile = None,
    profile: Profile = None,
    verbose: Verbose = False,
) -> None:
    """List the topics that this user may see, each with the number of its partitions."""
    with reported(verbose=verbose):
        access = cluster_access(bootstrap, config, config_file, profile)
        list_topics(access, internal=internal, as_json=as_json)
