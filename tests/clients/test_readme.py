"""What the README says holds, and so do the first examples of the pages that it leads to.

Its first program runs on a broker in tests/kafka/test_readme.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import KafkaException

import eos_client
from eos_client import EosConsumer, EosProducer
from eos_client.testing import SimulatedCluster
from examples.hand_written_loop import END_S, ORDERS, cluster_with_rebalance
from tests.support.code_blocks import code_blocks

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
WHY = REPOSITORY / "docs" / "explanation" / "why.md"
BLOCKS_PAGE = REPOSITORY / "docs" / "how-to" / "existing-loop.md"
HAND_WRITTEN = REPOSITORY / "examples" / "hand_written_loop.py"
BYTES_MAX = 4096


def run(code: str, names: dict[str, Any]) -> None:
    exec(compile(code, "a block of a page", "exec"), names)


@cache
def printed_by(*command: str) -> str:
    ended = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_readme_is_short() -> None:
    assert len(README.encode()) <= BYTES_MAX


def test_the_hand_written_loop_is_that_of_the_example() -> None:
    (loop,) = code_blocks(WHY, "python")
    assert textwrap.indent(loop.code, "    ") in HAND_WRITTEN.read_text(encoding="utf-8")


def test_the_hand_written_loop_as_printed_loses_and_doubles_orders() -> None:
    cluster = cluster_with_rebalance()
    consumer = cluster.consumer({"group.id": "billing", "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    producer = cluster.producer({"transactional.id": "billing-0"})
    producer.init_transactions()
    consumer.subscribe(["orders"])
    given = {"now": cluster.clock, "END_S": END_S, "KafkaException": KafkaException}
    for block in code_blocks(WHY, "python"):
        run(block.code, {**given, "consumer": consumer, "producer": producer})
    (printed,) = code_blocks(WHY, "text")
    assert f"by hand: {len(ORDERS)} orders, {len(cluster.values('invoices'))} invoices" in printed.code


def test_the_hand_written_loop_fails_as_it_says_and_eos_client_does_not() -> None:
    (printed,) = code_blocks(WHY, "text")
    assert printed_by(str(HAND_WRITTEN)) == printed.code


def test_the_readme_counts_what_the_two_loops_print() -> None:
    (claimed,) = re.findall(r"\*\*(\d+) of (\d+) by hand, (\d+) of (\d+) here\.\*\*", README)
    count = re.compile(r"^(?:by hand|eos-client): (\d+) orders, (\d+) invoices$", re.MULTILINE)
    printed = count.findall(printed_by(str(HAND_WRITTEN)))
    assert claimed == tuple(count for orders, invoices in printed for count in (invoices, orders))


def test_the_block_in_an_existing_loop_commits_what_it_reads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = SimulatedCluster(seed=1)
    cluster.create_topic("orders")
    cluster.create_topic("invoices")
    cluster.write("orders", [b"1", b"2", b"3"])
    consumer = partial(EosConsumer, factory=cluster.consumer, clock=cluster.clock)
    producer = partial(EosProducer, factory=cluster.producer, clock=cluster.clock)
    monkeypatch.setattr(eos_client, "EosConsumer", consumer)
    monkeypatch.setattr(eos_client, "EosProducer", producer)
    turns = mock.MagicMock()
    turns.__bool__.side_effect = [True] * 50 + [False]
    (block,) = code_blocks(BLOCKS_PAGE, "python")
    assert block.code.count("while True:") == 1
    run(block.code.replace("while True:", "while running:"), {"running": turns})
    assert cluster.values("invoices") == [b"invoice for 1", b"invoice for 2", b"invoice for 3"]
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == {"Outcome.COMMITTED"}


def test_the_commands_that_no_test_runs_as_printed_are_there() -> None:
    shown = re.findall(r"(?:^|`)eos-client (\w+)(?: (--[^`\n]*))?(?:`|$)", README, re.MULTILINE)
    assert {("demo", ""), ("broker", "--port 9092")} <= set(shown)
    for command, line in shown:
        told = printed_by("-m", "eos_client", command, "--help")
        assert [option for option in re.findall(r"--[\w-]+", line) if option not in told] == []
