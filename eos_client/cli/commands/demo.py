"""``eos-client demo`` and ``eos-client demo-spark``: their options. :mod:`eos_client.cli.demo` does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from eos_client.cli.demo.options import DemoOptions, GroupProtocol
from eos_client.cli.options import Config, DemoConfigFile, Verbose, brokers, flag
from eos_client.cli.reporting import result_console, until_the_verdict
from eos_client.cli.settings import client_settings

Input = Annotated[
    str | None, typer.Option("--input", metavar="FILE", help="Text or NDJSON, one record a line; - for standard input.")
]
Seconds = Annotated[float, typer.Option(metavar="S", help="How long the input takes to arrive.", min=1.0, max=3600.0)]
DemoDatabase = Annotated[
    bool,
    flag("--database", "Write rows of a database in place of a topic: of an SQLite file, or --database-url."),
]
DemoDatabaseUrl = Annotated[
    str | None, typer.Option("--database-url", metavar="URL", help="A database of your own, for --database.")
]


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
