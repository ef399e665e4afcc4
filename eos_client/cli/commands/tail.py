"""``eos-client tail``: its options. :mod:`eos_client.cli.topics` does the work."""

from __future__ import annotations

import time
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
    named,
    not_empty,
)
from eos_client.cli.reporting import until_stopped
from eos_client.cli.settings import cluster_access
from eos_client.cli.tail_start import tail_start
from eos_client.cli.topics import TailOptions, tail

FromOffset = Annotated[
    int | None, typer.Option("--from-offset", metavar="O", help="From this offset of each partition.", min=0)
]
Registry = Annotated[
    str | None, named("--schema-registry", "URL", "Decode what names an Avro or JSON schema of this registry.")
]


def tail_command(  # noqa: PLR0913, PLR0917  each parameter is an option
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", callback=not_empty)],
    bootstrap: Bootstrap = None,
    partition: Annotated[int | None, typer.Option(metavar="P", help="This partition alone.", min=0)] = None,
    new: Annotated[bool, flag("--new", "Only what is written from now on.")] = False,
    offset: FromOffset = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From 30s, 15m, 2h or 1d ago, or from 2026-11-30T17:00.")
    ] = None,
    last: Annotated[
        int | None, typer.Option(metavar="N", help="From the last N records of each partition.", min=1)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on after the end of the topic.")] = True,
    count: Annotated[int | None, typer.Option(metavar="N", help="Stop after so many records.", min=1)] = None,
    uncommitted: Annotated[bool, flag("--uncommitted", "Also of open and aborted transactions.")] = False,
    registry: Registry = None,
    as_json: Json = False,
    config: Config = None,
    config_file: ConfigFile = None,
    profile: Profile = None,
    verbose: Verbose = False,
) -> None:
    r"""Print the committed records of a topic: PARTITION@OFFSET, key, value and headers, with tabs between them.

    \N stands for null, and what cannot be printed is escaped. In JSON, what is no UTF-8 is {"base64": "..."}.
    """
    with until_stopped(verbose=verbose):
        access = cluster_access(bootstrap, config, config_file, profile)
        options = TailOptions(
            topic=topic,
            start=tail_start(only_new=new, offset=offset, since=since, last=last, now_s=time.time()),
            partition=partition,
            count=count,
            follow=follow,
            committed_only=not uncommitted,
            registry_url=registry,
        )
        tail(access, options, as_json=as_json)
