"""What the README shows runs, and prints what the README says. Its first program runs in tests/kafka/test_readme.py."""

from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import eos_client
from eos_client import AsyncExactlyOnceLoop, EosConfig, EosConsumer, EosProducer, ExactlyOnceLoop, Outcome, OutputRecord
from eos_client.testing import SimulatedCluster

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
HAND_WRITTEN = REPOSITORY / "examples" / "hand_written_loop.py"


def blocks(heading: str, language: str) -> list[str]:
    """The code blocks of one language in one section."""
    section = re.split(r"^## ", README, flags=re.MULTILINE)
    (text,) = (each for each in section if each.startswith(f"{heading}\n"))
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def run(code: str, names: dict[str, Any]) -> dict[str, Any]:
    exec(compile(code, "README.md", "exec"), names)
    return names


def test_the_hand_written_loop_is_that_of_the_example() -> None:
    (loop,) = blocks("Why", "python")
    assert textwrap.indent(loop, "    ") in HAND_WRITTEN.read_text(encoding="utf-8")


def test_the_hand_written_loop_fails_as_it_says_and_eos_client_does_not() -> None:
    (printed,) = blocks("Why", "text")
    ended = subprocess.run([sys.executable, HAND_WRITTEN], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, printed), ended.stderr


def test_the_block_in_an_existing_loop_commits_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SimulatedCluster(seed=1)
    cluster.create_topic("orders")
    cluster.create_topic("invoices")
    cluster.write("orders", [b"1", b"2", b"3"])
    consumer = partial(EosConsumer, factory=cluster.consumer, clock=cluster.clock)
    producer = partial(EosProducer, factory=cluster.producer, clock=cluster.clock)
    monkeypatch.setattr(eos_client, "EosConsumer", consumer)
    monkeypatch.setattr(eos_client, "EosProducer", producer)
    outcomes: list[Outcome | None] = []
    turns = mock.MagicMock()
    turns.__bool__.side_effect = [True] * 50 + [False]

    def log(outcome: Outcome | None, _reason: str) -> None:
        outcomes.append(outcome)

    (code,) = blocks("In an existing loop", "python")
    run(code, {"mine": lambda *_: None, "running": turns, "f": lambda value: b"invoice " + value, "log": log})
    assert cluster.values("invoices") == [b"invoice 1", b"invoice 2", b"invoice 3"]
    assert set(outcomes) == {Outcome.COMMITTED}


def test_an_async_transform_prices_each_order_once() -> None:
    cluster = SimulatedCluster(seed=1)
    cluster.create_topic("orders")
    cluster.create_topic("invoices")
    cluster.write("orders", [b"apples", b"pears"])

    async def ask_for_rate(product: bytes) -> int:
        return len(product)

    def built(*given: Any) -> AsyncExactlyOnceLoop:
        loop = AsyncExactlyOnceLoop(*given, clients=cluster)
        cluster.after(30, loop.stop)
        return loop

    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing")
    names = {"ask_for_rate": ask_for_rate, "OutputRecord": OutputRecord, "config": config}
    (code,) = blocks("Batches and asyncio", "python")
    shown = compile(code, "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    asyncio.run(eval(shown, {**names, "AsyncExactlyOnceLoop": built}))
    assert cluster.values("invoices") == [b"6", b"5"]


def test_the_story_of_testing_your_own_code_holds() -> None:
    def price(record: Any) -> Any:
        yield OutputRecord("invoices", value=record.value())

    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing")
    (story,) = blocks("Test your own code", "python")
    run(story, {"config": config, "ExactlyOnceLoop": ExactlyOnceLoop, "price": price})


def test_the_spark_sink_is_built_with_these_arguments() -> None:
    pytest.importorskip("pyspark")
    (code,) = blocks("In Spark: each micro-batch once", "python")
    names = run(code, {"frame": mock.MagicMock()})
    assert type(names["sink"]).__name__ == "EosKafkaSink"


def test_the_commands_that_no_test_runs_have_these_options() -> None:
    commands = re.findall(r"`eos-client (\w+) (--[^`]*)`", README)
    assert {command for command, _ in commands} == {"broker"}
    for command, line in commands:
        told = subprocess.run(
            [sys.executable, "-m", "eos_client", command, "--help"], capture_output=True, text=True, check=True
        ).stdout
        assert [option for option in re.findall(r"--[\w-]+", line) if option not in told] == []
