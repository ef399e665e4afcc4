"""``eos-client txn``: its commands and their options. :mod:`eos_client.cli.transactions` does the work."""

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
    named,
    repeated,
)
from eos_client.cli.reporting import reported
from eos_client.cli.settings import cluster_access, parse_names
from eos_client.cli.transactions import end_transaction, list_transactions

txn_app = typer.Typer(no_args_is_help=True, help="Find transactions that hang, and end them (KIP-664).")


@txn_app.command("list")
def txn_list(
    bootstrap: Bootstrap = None,
    topics: Annotated[list[str] | None, repeated("--topic", "Look at this one only.")] = None,
    every: Annotated[bool, flag("--all", "Also transactional ids without an open transaction.")] = False,
    as_json: Json = False,
    config: Config = None,
    config_file: ConfigFile = None,
    profile: Profile = None,
    verbose: Verbose = False,
) -> None:
    """List the open transactions: those that coordinators know, and those that hang because none does."""
    with reported(verbose=verbose):
        access = cluster_access(bootstrap, config, config_file, profile)
        list_transactions(access, parse_names(topics or (), option="--topic"), every=every, as_json=as_json)


@txn_app.command("abort")
def txn_abort(  # noqa: PLR0913, PLR0917  each parameter is an option
    bootstrap: Bootstrap = None,
    topic: Annotated[str | None, named("--topic", "TOPIC", "Where the transaction is open.")] = None,
    partition: Annotated[int | None, typer.Option(metavar="P", help="Its partition.", min=0)] = None,
    start_offset: Annotated[int | None, typer.Option(metavar="O", help="Its first offset there.", min=0)] = None,
    transactional_id: Annotated[
        str | None,
        named("--transactional-id", "ID", "Instead: the id whose transaction is ended and producer fenced."),
    ] = None,
    force: Annotated[bool, flag("--force", "Also if it does not hang.")] = False,
    config: Config = None,
    config_file: ConfigFile = None,
    profile: Profile = None,
    verbose: Verbose = False,
) -> None:
    """End a transaction that hangs: its outputs stay invisible, and read_committed readers can read on past it."""
    with reported(verbose=verbose):
        access = cluster_access(bootstrap, config, config_file, profile)
        end_transaction(access, (topic, partition, start_offset), transactional_id, force=force)
