"""Declares the commands and their options; each command's work is in its own module."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from eos_client import __version__
from eos_client.cli.demo.options import DemoOptions, GroupProtocol
from eos_client.cli.doctor import DoctorOptions, diagnose, errors_as_findings, report
from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.failures import CommandLineError, exit_code_table
from eos_client.cli.logs import LogFormat
from eos_client.cli.offsets import DatabaseAccess, export_offsets, release_offsets, set_offsets, show_offsets
from eos_client.cli.options import (
    Bootstrap,
    CommitInterval,
    Config,
    ConfigFile,
    Database,
    DemoConfigFile,
    HealthHost,
    HealthPort,
    Json,
    LogFormatOption,
    MetricsPort,
    Profile,
    Quiet,
    Verbose,
    brokers,
    flag,
    named,
    not_empty,
    repeated,
    require_both,
    seconds,
)
from eos_client.cli.progress import progress_of
from eos_client.cli.project import create_project
from eos_client.cli.redrive import RedriveOptions, redrive
from eos_client.cli.relay import OutboxOptions, relay_config, run_relay
from eos_client.cli.reporting import reported, result_console, until_stopped, until_the_verdict
from eos_client.cli.run import run_loop
from eos_client.cli.settings import (
    client_settings,
    cluster_access,
    parse_names,
    parse_settings,
)
from eos_client.cli.status import show_status, watch_status
from eos_client.cli.tail_start import tail_start
from eos_client.cli.topics import TailOptions, create_topics, list_topics, tail
from eos_client.cli.transactions import end_transaction, list_transactions
from eos_client.config import OnError
from eos_client.integration.probes import EVERY_ADDRESS
from eos_client.testing.broker_settings import DEFAULT_VERSION

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Exactly-once consume-transform-produce on Apache Kafka.",
    epilog=f"\b\nExit status:\n{exit_code_table()}",
)

topic_app = typer.Typer(no_args_is_help=True, help="List and create topics.")
app.add_typer(topic_app, name="topic")
offsets_app = typer.Typer(no_args_is_help=True, help="Show and change the positions that a database keeps.")
app.add_typer(offsets_app, name="offsets")
txn_app = typer.Typer(no_args_is_help=True, help="Find transactions that hang, and end them (KIP-664).")
app.add_typer(txn_app, name="txn")

_PAUSE_HOURS_MAX = 1_000_000


Input = Annotated[
    str | None, typer.Option("--input", metavar="FILE", help="Text or NDJSON, one record a line; - for standard input.")
]
Seconds = Annotated[float, typer.Option(metavar="S", help="How long the input takes to arrive.", min=1.0, max=3600.0)]

Reference = Annotated[
    str, typer.Argument(metavar="TRANSFORM", help="The function of one record: FILE.py:FUNC or package.module:FUNC.")
]
Sources = Annotated[
    list[str], typer.Option("--from", metavar="TOPIC", help="Input topic. May be repeated, or TOPIC,TOPIC.")
]
FromOffset = Annotated[
    int | None, typer.Option("--from-offset", metavar="O", help="From this offset of each partition.", min=0)
]
Registry = Annotated[
    str | None, named("--schema-registry", "URL", "Decode what names an Avro or JSON schema of this registry.")
]
Progress = Annotated[
    float | None, seconds("--progress-interval", "Without a terminal. Default: 10; 1 with --log-format json.")
]
Attempts = Annotated[
    int, typer.Option(metavar="N", help="How often FUNC is called before the record counts as failed.", min=1)
]
UntilEnd = Annotated[
    bool, flag("--until-end", "Stop, committed, at the ends that the partitions have when they are assigned.")
]
PinnedId = Annotated[str | None, named("--transactional-id", "ID", "Pin it, one per worker; generated when left out.")]

Buckets = Annotated[int, typer.Option(metavar="N", help="Relays that share the rows at most.", min=1, max=1000)]
DemoDatabase = Annotated[
    bool,
    flag("--database", "Write rows of a database in place of a topic: of an SQLite file, or --database-url."),
]
DemoDatabaseUrl = Annotated[
    str | None, typer.Option("--database-url", metavar="URL", help="A database of your own, for --database.")
]
OffsetsTable = Annotated[str, named("--table", "TABLE", "The offsets table, with its schema where it has one.")]


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"eos-client {__version__} on confluent-kafka {metadata.version('confluent-kafka')}")
        raise typer.Exit


@app.callback()
def _program(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say which version this is, and exit."),
    ] = False,
) -> None:
    """Take ``--version``, which belongs to no command."""


@app.command()
def run(  # noqa: PLR0913, PLR0917  each parameter is an option
    reference: Reference,
    group: Annotated[str, named("--group", "GROUP", "Consumer group of all workers of this job.")],
    sources: Sources,
    target: Annotated[str, named("--to", "TOPIC", "Topic of outputs that name none.")],
    bootstrap: Bootstrap = None,
    transactional_id: PinnedId = None,
    commit_interval_s: CommitInterval = 0.1,
    start_timeout_s: Annotated[float, seconds("--start-timeout", "How long the cluster may take to answer.")] = 10.0,
    on_error: Annotated[
        OnError, typer.Option(help="What becomes of a record that FUNC or the cluster refuses.")
    ] = OnError.STOP,
    dead_letter_topic: Annotated[
        str | None, named("--dead-letter-topic", "TOPIC", "Where --on-error dead_letter writes such a record.")
    ] = None,
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
        require_both(on_error, dead_letter_topic)
        _require_one_record(keep_key=keep_key, batch=batch)
        topics = parse_names(sources, option="--from")
        title = f"{group}: {', '.join(topics)} -> {target}"
        is_read = run_loop(
            reference,
            topics,
            target,
            cluster_access(bootstrap, config, config_file, profile, of_job=True),
            takes_batches=batch,
            keep_key=keep_key,
            until_end=until_end,
            served_at=(health_host, health_port, metrics_port),
            progress=progress_of(title, log_format, progress_interval_s, quiet=quiet),
            group_id=group,
            transactional_id=transactional_id,
            commit_interval_s=commit_interval_s,
            start_timeout_s=start_timeout_s,
            on_error=on_error.value,
            dead_letter_topic=dead_letter_topic,
            transform_attempts_max=attempts,
        )
    if until_end and not is_read:
        raise SystemExit(ExitCode.INTERRUPTED)


def _require_one_record(*, keep_key: bool, batch: bool) -> None:
    if keep_key and batch:
        raise CommandLineError(
            "--keep-key: an output of a batch belongs to no single record. Leave it out, and yield "
            "OutputRecord(key=record.key(), value=...)"
        )


@app.command("init")
def init_command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The folder, the consumer group and the Kubernetes objects.")
    ],
    verbose: Verbose = False,
) -> None:
    """Start a project: a worker, its test, an image, manifests, a dashboard and alerts, in a new folder.

    The name of each file is printed on stdout. Nothing that exists is changed.
    """
    with reported(verbose=verbose):
        for path in create_project(name, Path()):
            print(path)
        print(
            f"eos-client: next: cd {name}, pip install -r requirements-test.txt, python -m pytest",
            file=sys.stderr,
        )


@app.command("relay")
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
        require_both(on_error, dead_letter_topic)
        rows = OutboxOptions(database, outbox, target, buckets, poll_interval_s, keep=keep, create=create)
        policy = {"on_error": on_error.value, "dead_letter_topic": dead_letter_topic}
        access = cluster_access(bootstrap, config, config_file, profile, of_job=True)
        job = relay_config(access, group_id=group, commit_interval_s=commit_interval_s, **policy)
        served_at = health_host, health_port, metrics_port
        progress = progress_of(f"{group}: rows of {outbox}", log_format, None, quiet=quiet)
        is_done = run_relay(rows, job, served_at, progress, until_end=until_end)
    if until_end and not is_done:
        raise SystemExit(ExitCode.INTERRUPTED)


@app.command()
def demo(  # noqa: PLR0913, PLR0917  each parameter is an option
    bootstrap: Annotated[str | None, brokers("Your own cluster; an embedded Kafka when left out.")] = None,
    input_name: Input = None,
    partitions: Annotated[int, typer.Option(help="Partitions of each topic.", min=3, max=1000)] = 6,
    seconds: Seconds = 20.0,
    group_protocol: Annotated[
        GroupProtocol | None, typer.Option(help="Default: consumer; classic with --bootstrap.", show_default=False)
    ] = None,
    keep_topics: Annotated[bool, typer.Option("--keep-topics", help="Leave the topics on your cluster.")] = False,
    with_spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="A Spark stream behind the workers, where Spark is installed.")
    ] = True,
    database: DemoDatabase = False,
    database_url: DemoDatabaseUrl = None,
    config: Config = None,
    config_file: DemoConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Prove it: workers join, one is killed and comes back, and the topic is read back record by record.

    With --database, rows of a table are read back, and one worker is also suspended until others have its partitions.
    """
    from eos_client.cli.demo.database_session import run_database_demo  # noqa: PLC0415  no other command needs them
    from eos_client.cli.demo.session import run_demo  # noqa: PLC0415

    with until_the_verdict(verbose=verbose):
        options = DemoOptions(
            bootstrap_servers=bootstrap,
            input_name=input_name,
            settings=client_settings(config, config_file),
            group_protocol=group_protocol,
            partition_count=partitions,
            feed_s=seconds,
            keep_topics=keep_topics,
            with_spark=with_spark,
            writes_rows=database or database_url is not None,
            database_url=database_url,
        )
        (run_database_demo if options.writes_rows else run_demo)(options, result_console())


@app.command("demo-spark")
def demo_spark(
    input_name: Input = None,
    slots: Annotated[int, typer.Option(help="Transactions of a micro-batch.", min=1, max=64)] = 4,
    seconds: Seconds = 20.0,
    verbose: Verbose = False,
) -> None:
    """Prove it for Spark: an executor and the driver are killed, and the topic is read back record by record."""
    from eos_client.cli.demo.spark_session import run_spark_demo  # noqa: PLC0415  as in `demo`

    with until_the_verdict(verbose=verbose):
        run_spark_demo(result_console(), input_name, slots, seconds)


@app.command()
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
    from eos_client.cli.broker import serve_broker  # noqa: PLC0415  as in `demo`

    with reported(verbose=verbose):
        serve_broker(version, port, parse_settings(properties or (), option="--property"), with_login=sasl)


@app.command("status")
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
    """Create topics with the cluster's replication."""
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


@app.command("tail")
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


@app.command("redrive")
def redrive_command(  # noqa: PLR0913, PLR0917  each parameter is an option
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


@app.command()
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
