"""What a program hears of its loop by default: nothing on stdout, and what its own logging asks for."""

import subprocess
import sys

import pytest

PROGRAM = """
import logging, sys
{configure}
from eos_client import EosConfig, ExactlyOnceLoop, OutputRecord
from eos_client.testing import SimulatedCluster

cluster = SimulatedCluster()
cluster.create_topic("orders", partitions=1)
cluster.create_topic("invoices", partitions=1)
cluster.write("orders", [b"apples"])
loop = ExactlyOnceLoop(
    EosConfig({{"bootstrap.servers": "simulated"}}, group_id="billing"),
    ["orders"],
    lambda order: [OutputRecord("invoices", value=order.value())],
    clients=cluster,
)
cluster.after(10.0, loop.stop)
loop.run()
assert cluster.values("invoices") == [b"apples"]
"""


def said_by(configure):
    """What the program printed to stdout and to stderr."""
    program = PROGRAM.format(configure=configure)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, ran.stderr


def test_a_program_without_logging_hears_nothing_of_a_run_in_which_nothing_went_wrong():
    assert said_by("") == ("", "")


@pytest.mark.parametrize(
    ("level", "told", "not_told"),
    [("DEBUG", "event=transaction_committed", "no such line"), ("INFO", "event=loop_started", "transaction_committed")],
)
def test_each_transaction_is_told_at_debug_level_and_the_life_of_the_loop_at_info(level, told, not_told):
    printed, logged = said_by(f"logging.basicConfig(level=logging.{level})")
    assert printed == ""
    assert f"{level}:eos_client:{told} " in logged
    assert not_told not in logged


def test_a_program_that_has_configured_structlog_hears_events_there():
    configure = "import structlog; structlog.configure(processors=[structlog.processors.JSONRenderer()])"
    printed, logged = said_by(configure)
    assert '"event": "transaction_committed"' in printed
    assert logged == ""
