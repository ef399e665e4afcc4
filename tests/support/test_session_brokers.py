"""The workers of a session share its brokers, which end with it; a stand-in for the broker says what happens to it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.inner_session import run_pytest

STAND_IN = """
from pathlib import Path
from types import SimpleNamespace
from eos_client.errors import EmbeddedKafkaError
from eos_client.testing.broker_choice import BrokerChoice

told = Path(__file__).with_name("told")

def say(what):
    with told.open("a") as file:
        print(what, file=file)

def new_broker(self, version=None, properties=None):
    if properties == {"unfit": "1"}:
        raise EmbeddedKafkaError("it does not start")
    say(f"started {version} {properties}")
    return SimpleNamespace(
        kind="process",
        version=version,
        bootstrap_servers="127.0.0.1:19092",
        port=19092,
        kill=lambda: None,
        stop=lambda: say("stopped"),
    )

BrokerChoice.new_broker = new_broker
"""
USES = """
import os, pytest
from tests.support.session_brokers import session_broker

@pytest.mark.parametrize("number", range(6))
def test_uses_the_broker(kafka_broker, number):
    assert (kafka_broker.kind, kafka_broker.port) == ("process", 19092)
"""
ASKS_FOR_ANOTHER = """
def test_asks_for_another(pytestconfig):
    for _ in range(2):
        assert session_broker(pytestconfig, {}, "4.1.2").version == "4.1.2"
"""
ASKS_IN_VAIN = """
def test_asks_in_vain(pytestconfig):
    session_broker(pytestconfig, {"unfit": "1"})
"""
CRASHES = """
def test_crashes(kafka_broker):
    os._exit(3)
"""
BY_DEFAULT = "started None {}"


def run(tmp_path: Path, tests: str, processes: int = 2) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run the tests; returns how that ended, and what became of the brokers."""
    (tmp_path / "conftest.py").write_text(STAND_IN)
    plugins = "eos_client.testing.pytest_plugin", "tests.support.session_brokers"
    ran = run_pytest(tmp_path, USES + tests, *plugins, processes=processes)
    return ran, (tmp_path / "told").read_text().splitlines()


def test_all_workers_use_one_broker_of_a_kind_which_is_stopped_at_the_end(tmp_path: Path) -> None:
    ran, told = run(tmp_path, ASKS_FOR_ANOTHER)
    assert ran.returncode == 0, ran.stdout
    assert sorted(told) == sorted([BY_DEFAULT, "started 4.1.2 {}", "stopped", "stopped"])


@pytest.mark.soak
@pytest.mark.parametrize(("tests", "says"), [(CRASHES, "crashed"), (ASKS_IN_VAIN, "it does not start")])
def test_a_worker_that_crashes_or_asks_in_vain_leaves_it_to_the_others(tmp_path: Path, tests: str, says: str) -> None:
    ran, told = run(tmp_path, tests)
    assert says in ran.stdout
    assert "1 failed, 6 passed" in ran.stdout, ran.stdout
    assert told == [BY_DEFAULT, "stopped"]


def test_without_workers_there_is_the_broker_of_the_package(tmp_path: Path) -> None:
    ran, told = run(tmp_path, "", processes=0)
    assert ran.returncode == 0, ran.stdout
    assert told == ["started None None", "stopped"]
