"""``eos-client doctor``: its options. :mod:`eos_client.cli.doctor` does the work."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

import typer

from eos_client.cli.doctor import DoctorOptions, diagnose, errors_as_findings, report
from eos_client.cli.logs import LogFormat
from eos_client.cli.options import Bootstrap, Config, ConfigFile, Json, Profile, Verbose, named, repeated
from eos_client.cli.reporting import reported, result_console
from eos_client.cli.settings import cluster_access, parse_names

_PAUSE_HOURS_MAX = 1_000_000


def doctor(  # noqa: PLR0913, PLR0917  each parameter is an option
    bootstrap: Bootstrap = None,
    group: Annotated[str | None, named("--group", "GROUP", "A consumer group to look at.")] = None,
    topics: Annotated[list[str] | None, repeated("--topic", "A topic to look at.")] = None,
    sources: Annotated[list[str] | None, repeated("--from", "An input topic of the job.")] = None,
    targets: Annotated[list[str] | None, repeated("--to", "A topic that the job writes to, also dead letters.")] = None,
    transactional_id: Annotated[str | None, named("--transactional-id", "ID", "The job's, where it is pinned.")] = None,
    longest_pause_h: Annotated[
        float,
        typer.Option(
            "--longest-pause",
            metavar="H",
            help="Hours that pass at most without a record or job.",
            min=0,
            max=_PAUSE_HOURS_MAX,
        ),
    ] = 72.0,
    as_json: Json = False,
    config: Config = None,
    config_file: ConfigFile = None,
    profile: Profile = None,
    verbose: Verbose = False,
) -> None:
    """Say whether this configuration and cluster are fit for exactly-once, and what to do where not."""
    log_format = LogFormat.JSON if as_json else LogFormat.CONSOLE
    with reported(verbose=verbose, log_format=log_format):
        with errors_as_findings() if as_json else nullcontext():
            access = cluster_access(bootstrap, config, config_file, profile, of_job=True)
            options = DoctorOptions(
                bootstrap_servers=access.bootstrap_servers,
                group_id=group,
                topics=parse_names(topics or (), option="--topic"),
                input_topics=parse_names(sources or (), option="--from"),
                output_topics=parse_names(targets or (), option="--to"),
                transactional_id=transactional_id,
                longest_pause_s=longest_pause_h * 3600,
                settings=access.settings,
            )
            findings = diagnose(options)
        report(findings, result_console(), as_json=as_json)
