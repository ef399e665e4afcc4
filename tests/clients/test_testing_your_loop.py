"""The how-to's tests run as they stand in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eos_client import EosConfig, EosConsumer, EosProducer, ExactlyOnceLoop
from eos_client.errors import ConfigurationError

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "how-to" / "testing-your-loop.md"
BEGINNING, UNIT_TEST, DESERIALISED, *STORIES, ON_A_BROKER = re.findall(
    r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL
)
LINES_MAX = 25


def names() -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(compile(BEGINNING, str(PAGE), "exec"), found)
    return found


def run_block(block: str, *arguments: Any) -> None:
    found = names()
    exec(compile(block, str(PAGE), "exec"), found)
    (name,) = re.findall(r"^def (test_\w+)", block, re.MULTILINE)
    found[name](*arguments)


@pytest.mark.parametrize("block", [UNIT_TEST, DESERIALISED], ids=["bytes", "deserialised"])
def test_each_unit_test_of_a_transform_holds(block: str) -> None:
    run_block(block)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.split("(")[0].removeprefix("def "))
def test_each_story_of_the_page_holds(story: str, simulated_cluster: Any) -> None:
    run_block(story, simulated_cluster)


def test_the_page_has_its_stories_in_a_few_lines_each() -> None:
    assert len(STORIES) == 6
    assert all(len(story.splitlines()) <= LINES_MAX for story in STORIES)


def test_the_example_survives_its_rebalance() -> None:
    program = REPOSITORY / "examples" / "survive_a_rebalance.py"
    run = subprocess.run([sys.executable, program, "--seed", "3"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] == "20 orders, 20 invoices: EXACTLY ONCE"


def test_a_loop_that_nothing_stops_is_an_error_and_does_not_run_for_ever(simulated_cluster: Any) -> None:
    simulated_cluster.create_topic("orders")
    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing", poll_timeout_s=5.0)
    loop = ExactlyOnceLoop(config, ["orders"], lambda _: [], clients=simulated_cluster)
    with pytest.raises(RuntimeError, match=r"let cluster\.after\(seconds, loop\.stop\) or loop\.run\(until_end=True\)"):
        loop.run()


@pytest.mark.parametrize("client", [EosConsumer, EosProducer])
def test_a_cluster_in_place_of_its_factory_is_refused_with_the_way_out(client: Any, simulated_cluster: Any) -> None:
    settings = {
        "bootstrap.servers": "simulated",
        "group.id" if client is EosConsumer else "transactional.id": "billing",
    }
    with pytest.raises(ConfigurationError, match=r"factory=SimulatedCluster.*such as cluster\.consumer"):
        client({"bootstrap.servers": "simulated", **settings}, factory=simulated_cluster, clock=simulated_cluster.clock)
