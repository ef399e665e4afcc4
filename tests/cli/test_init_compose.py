"""The broker that compose.yaml of a new project describes, started from the same jars without a container."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eos_client import EosConfig, ExactlyOnceLoop
from eos_client.cli.project import TEMPLATE
from eos_client.testing.broker_java import BrokerJava
from eos_client.testing.broker_settings import DEFAULT_VERSION
from eos_client.testing.free_ports import free_ports
from eos_client.testing.java_runtime import find_java
from eos_client.testing.kafka_jars import kafka_jars
from tests.cli.conftest import START_LIMIT_S, Cluster
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.soak, pytest.mark.kafka]

HEAP_MB = 256
CLUSTER_ID = "eosClientInitProjectAA"


def properties(ports: dict[str, str], data: Path) -> dict[str, str]:
    """What the official image makes of the variables (KIP-975), with this machine's ports."""
    given: dict[str, str] = yaml.safe_load((TEMPLATE / "compose.yaml").read_text())["services"]["kafka"]["environment"]
    found = {"log.dirs": str(data)}
    for variable, value in given.items():
        here = re.sub(r"://(kafka|localhost)?:", "://127.0.0.1:", value)
        name = variable.removeprefix("KAFKA_").lower().replace("_", ".")
        found[name] = re.sub("|".join(ports), lambda port: ports[port[0]], here)
    return found


@pytest.fixture(params=["HOST", "COMPOSE"])
def cluster_of_compose(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """The broker, reached as the host does or as the other services do."""
    host, compose, controller = map(str, free_ports(3))
    settings = properties({"19092": compose, "9092": host, "9093": controller}, tmp_path / "data")
    file, java = tmp_path / "server.properties", find_java()
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    commands = BrokerJava(java, kafka_jars(DEFAULT_VERSION, java, print), HEAP_MB)
    subprocess.run(commands.format_command(CLUSTER_ID, file), check=True, capture_output=True, timeout=START_LIMIT_S)
    with (tmp_path / "broker.log").open("w") as log:
        broker = subprocess.Popen(commands.broker_command(file, tmp_path / "classes"), stdout=log, stderr=log)
    try:
        cluster = Cluster(f"127.0.0.1:{host if request.param == 'HOST' else compose}")
        with cluster.admin:
            yield cluster
    finally:
        broker.kill()
        broker.wait()


def test_a_worker_does_its_work_on_the_broker_of_compose(cluster_of_compose: Cluster) -> None:
    cluster = cluster_of_compose
    wait_for(lambda: answers(cluster), "the broker answers", timeout_s=START_LIMIT_S)
    cluster.admin.create_topics({"orders": 1, "invoices": 1})
    cluster.load("orders", [b"1", b"2"])

    def invoice(order: Any) -> list[bytes]:
        return [order.value()]

    config = EosConfig({"bootstrap.servers": cluster.bootstrap_servers}, group_id="billing", start_timeout_s=60.0)
    with ExactlyOnceLoop(config, ["orders"], invoice, output_topic="invoices") as loop:
        assert loop.run(until_end=True)
    assert cluster.values("invoices") == [b"1", b"2"]


def answers(cluster: Cluster) -> bool:
    try:
        return cluster.admin.partition_counts() is not None
    except Exception:  # noqa: BLE001  # it is not there yet
        return False
