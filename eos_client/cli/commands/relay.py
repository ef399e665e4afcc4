"""``eos-client relay``: its options. :mod:`eos_client.cli.relay` does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.logs import LogFormat
from eos_client.cli.options import (
    Bootstrap,
    CommitInterval,
    Config,
    ConfigFile,
    Database,
    HealthHost,
    HealthPort,
    LogFormatOption,
    MetricsPort,
    Profile,
    Quiet,
    Verbose,
    failure_policy,
    flag,
    named,
    seconds,
)
from eos_client.cli.progress import progress_of
from eos_client.cli.relay import OutboxOptions, relay_config, run_relay
from eos_client.cli.reporting import until_stopped
from eos_client.cli.settings import cluster_access
from eos_client.config import OnError
from eos_client.integration.probes import EVERY_ADDRESS

Buckets = Annotated[int, typer.Option(metavar="N", help="Relays that share the rows at most.", min=1, max=1000)]


def relay_command(  # noqa: PLR0913, PLR0917  each parameter is an option
    database: Database,
    outbox: Annotated[str, named("--outbox", "TABLE", "The outbox table, with its schema where it has one.")],
    group: Annotated[str, named("--group", "GROUP", "Consumer group of all relays of this outbox.")],
    bootstrap: Bootstrap = None,
    target: Annotated[str | None, named("--to", "TOPIC", "Topic of rows that name none.")] = None,
    buckets: Buckets = 16,
    keep: Annotated[bool, flag("--keep", "Leave published rows in the table.")] = False,
    create: Annotated[bool, flag("--create", "Create the outbox table if it is missing.")] = False,
    poll_interval_s: Annotated[float, seconds("--poll-interval", "How soon it looks for new rows again.")] = 0.1,
    commit_interval_s: CommitInterval = 0.1,
    on_error: Annotated[OnError, typer.Option(help="What becomes of a row that cannot be published.")] = OnError.STOP,
    dead_letter_topic: Annotated[str | None, named("--dead-letter-topic", "TOPIC", "For dead letters.")] = None,
    until_end: Annotated[bool, flag("--until-end", "Stop once what is committed at the start is published.")] = False,
    config: Config = None,
    config_file: ConfigFile = None,
    profile: Profile = None,
    health_port: HealthPort = None,
    metrics_port: MetricsPort = None,
    health_host: HealthHost = EVERY_ADDRESS,
    log_format: LogFormatOption = LogFormat.CONSOLE,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Publish the rows of an outbox table to Kafka, each exactly once, and in order per key.

    Relays of one group share the rows and take over from each other. Signals and exit status are those of `run`.
    """
    is_done = False
    with until_stopped(verbose=verbose, log_format=log_format, quiet=quiet):
        policy = failure_policy(on_error, dead_letter_topic)
        rows = OutboxOptions(database, outbox, target, buckets, poll_interval_s, keep=keep, create=create)
        access = cluster_access(bootstrap, config, config_file, profile, of_job=True)
        job = relay_config(access, group_id=group, commit_interval_s=commit_interval_s, **policy)
        served_at = health_host, health_port, metrics_port
        progress = progress_of(f"{group}: rows of {outbox}", log_format, None, quiet=quiet)
        is_done = run_relay(rows, job, served_at, progress, until_end=until_end)
    if until_end and not is_done:
        raise SystemExit(ExitCode.INTERRUPTED)
