"""The program: it registers the commands of :mod:`eos_client.cli.commands`, in the order of its help."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from eos_client import __version__
from eos_client.cli.commands.broker import broker
from eos_client.cli.commands.demo import demo, demo_spark
from eos_client.cli.commands.doctor import doctor
from eos_client.cli.commands.init import init_command
from eos_client.cli.commands.offsets import offsets_app
from eos_client.cli.commands.redrive import redrive_command
from eos_client.cli.commands.relay import relay_command
from eos_client.cli.commands.run import run
from eos_client.cli.commands.status import status_command
from eos_client.cli.commands.tail import tail_command
from eos_client.cli.commands.topic import topic_app
from eos_client.cli.commands.txn import txn_app
from eos_client.cli.failures import exit_code_table

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Exactly-once consume-transform-produce on Apache Kafka.",
    epilog=f"\b\nExit status:\n{exit_code_table()}",
)
app.command("run")(run)
app.command("init")(init_command)
app.command("relay")(relay_command)
app.command("demo")(demo)
app.command("demo-spark")(demo_spark)
app.command("broker")(broker)
app.command("status")(status_command)
app.command("tail")(tail_command)
app.command("redrive")(redrive_command)
app.command("doctor")(doctor)
app.add_typer(topic_app, name="topic")
app.add_typer(offsets_app, name="offsets")
app.add_typer(txn_app, name="txn")


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
