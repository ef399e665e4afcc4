"""``eos-client run``: its options. :mod:`eos_client.cli.run` does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.failures import CommandLineError
from eos_client.cli.logs import LogFormat
from eos_client.cli.options import (
    Bootstrap,
    CommitInterval,
    Config,
    ConfigFile,
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
from eos_client.cli.reporting import until_stopped
from eos_client.cli.run import LoopWork, run_loop
from eos_client.cli.settings import cluster_access, parse_names
from eos_client.config import OnError
from eos_client.integration.probes import EVERY_ADDRESS

Reference = Annotated[
    str, typer.Argument(metavar="TRANSFORM", help="The function of one record: FILE.py:FUNC or package.module:FUNC.")
]
Sources = Annotated[
    list[str], typer.Option("--from", metavar="TOPIC", help="Input topic. May be repeated, or TOPIC,TOPIC.")
]
Progress = Annotated[
    float | None, seconds("--progress-interval", "Without a terminal. Default: 10; 1 with --log-format json.")
]
OnRecordError = Annotated[OnError, typer.Option(help="What becomes of a record that FUNC or the cluster refuses.")]
DeadLetters = Annotated[
    str | None, named("--dead-letter-topic", "TOPIC", "Where --on-error dead_letter writes such a record.")
]
Attempts = Annotated[
    int, typer.Option(metavar="N", help="How often FUNC is called before the record counts as failed.", min=1)
]
UntilEnd = Annotated[
    bool, flag("--until-end", "Stop once the group has committed all that the topics hold at the start.")
]
PinnedId = Annotated[str | None, named("--transactional-id", "ID", "Pin it, one per worker; generated when left out.")]


def run(  # noqa: PLR0913, PLR0917  each parameter is an option
    reference: Reference,
    group: Annotated[str, named("--group", "GROUP", "Consumer group of all workers of this job.")],
    sources: Sources,
    target: Annotated[str, named("--to", "TOPIC", "Topic of outputs that name none.")],
    bootstrap: Bootstrap = None,
    transactional_id: PinnedId = None,
    commit_interval_s: CommitInterval = 0.1,
    start_timeout_s: Annotated[float, seconds("--start-timeout", "How long the cluster may take to answer.")] = 10.0,
    on_error: OnRecordError = OnError.STOP,
    dead_letter_topic: DeadLetters = None,
    attempts: Attempts = 1,
    batch: Annotated[bool, flag("--batch", "FUNC takes a list of records, not one.")] = False,
    keep_key: Annotated[bool, flag("--keep-key", "Outputs that are bytes get the key of their record.")] = False,
    until_end: UntilEnd = False,
    config: Config = None,
    config_file: ConfigFile = None,
    profile: Profile = None,
    health_port: HealthPort = None,
    metrics_port: MetricsPort = None,
    health_host: HealthHost = EVERY_ADDRESS,
    log_format: LogFormatOption = LogFormat.CONSOLE,
    progress_interval_s: Progress = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run one exactly-once worker: FUNC(record) returns or yields OutputRecords, or bytes for the --to topic.

    With --batch it is FUNC(records), and returns or yields the outputs of all of them.

    SIGTERM, SIGHUP or Ctrl-C: finish or abort the open transaction, leave the group, exit 0 (with --until-end: 130). A
    second one: at once.
    """
    is_read = False
    # SIGTERM before the loop handles it: nothing is open yet, so the process may simply end.
    with until_stopped(verbose=verbose, log_format=log_format, quiet=quiet):
        policy = failure_policy(on_error, dead_letter_topic)
        _require_one_record(keep_key=keep_key, batch=batch)
        topics = parse_names(sources, option="--from")
        work = LoopWork(reference, topics, target, takes_batches=batch, keep_key=keep_key)
        access = cluster_access(bootstrap, config, config_file, profile, of_job=True)
        served_at = health_host, health_port, metrics_port
        title = f"{group}: {', '.join(topics)} -> {target}"
        progress = progress_of(title, log_format, progress_interval_s, quiet=quiet)
        pace = {"commit_interval_s": commit_interval_s, "start_timeout_s": start_timeout_s}
        job = {"group_id": group, "transactional_id": transactional_id, "transform_attempts_max": attempts, **policy}
        is_read = run_loop(work, access, served_at, progress, until_end=until_end, **job, **pace)
    if until_end and not is_read:
        raise SystemExit(ExitCode.INTERRUPTED)


def _require_one_record(*, keep_key: bool, batch: bool) -> None:
    if keep_key and batch:
        raise CommandLineError(
            "--keep-key: an output of a batch belongs to no single record. Leave it out, and yield "
            "OutputRecord(key=record.key(), value=...)"
        )
