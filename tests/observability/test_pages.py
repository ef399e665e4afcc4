"""The code of docs/how-to/monitoring.md and docs/how-to/kubernetes.md runs, and the manifest fits the program."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from prometheus_client import CollectorRegistry

import eos_client
from eos_client import EosConfig, EosConsumer, EosProducer, ExactlyOnceLoop
from eos_client.core.commit_gate import GateSettings, GateState
from eos_client.core.loop_health import LoopVitals, health_of
from eos_client.integration import probes
from eos_client.integration.prometheus import PrometheusMetrics
from eos_client.testing import SimulatedCluster
from tests.observability.test_monitoring_files import RULES

DOCS = Path(__file__).parents[2] / "docs"
MONITORING = (DOCS / "how-to" / "monitoring.md").read_text(encoding="utf-8")
KUBERNETES = (DOCS / "how-to" / "kubernetes.md").read_text(encoding="utf-8")
_METRICS, METERED_BLOCK, TRACED_LOOP, TRACED_BLOCK = re.findall(r"```python\n(.*?)```", MONITORING, re.DOTALL)
(WITH_PROBES,) = re.findall(r"```python\n(.*?)```", KUBERNETES, re.DOTALL)
(MANIFEST,) = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", KUBERNETES, re.DOTALL))
POD = MANIFEST["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
ARGUMENTS: list[str] = CONTAINER["command"]  # and not its args, which an image with an ENTRYPOINT would append


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SimulatedCluster:
    """Where the clients of the pages' programs live; a loop of theirs runs for ten seconds."""
    cluster = SimulatedCluster(seed=1)
    cluster.create_topic("orders")
    cluster.create_topic("invoices")
    cluster.write("orders", [b"1", b"2", b"3"])
    loop = partial(ExactlyOnceLoop, clients=cluster, output_topic="invoices")
    monkeypatch.setattr(eos_client, "ExactlyOnceLoop", loop)
    run = ExactlyOnceLoop.run

    def for_a_while(self: ExactlyOnceLoop) -> None:
        cluster.after(10, self.stop)
        run(self)

    monkeypatch.setattr(ExactlyOnceLoop, "run", for_a_while)
    return cluster


def price(record: Any) -> bytes:
    return b"invoice %b" % record.value()


INVOICES = [b"invoice 1", b"invoice 2", b"invoice 3"]


def test_the_traced_loop_runs(cluster: SimulatedCluster) -> None:
    exec(TRACED_LOOP, {"price": price})
    assert cluster.values("invoices") == INVOICES


def names_of_a_loop_by_hand(cluster: SimulatedCluster) -> dict[str, Any]:
    turns = mock.MagicMock()
    turns.__bool__.side_effect = [True] * 50 + [False]
    return {
        "EosConsumer": partial(EosConsumer, factory=cluster.consumer, clock=cluster.clock),
        "EosProducer": partial(EosProducer, factory=cluster.producer, clock=cluster.clock),
        "consumer_settings": {"bootstrap.servers": "simulated", "group.id": "billing"},
        "producer_settings": {"bootstrap.servers": "simulated", "transactional.id": "billing-0"},
        "running": turns,
        "f": lambda value: b"invoice " + value,
    }


def test_the_metered_block_counts_each_transaction_once(cluster: SimulatedCluster) -> None:
    registry = CollectorRegistry()
    ports: list[int] = []
    shown = names_of_a_loop_by_hand(cluster)
    shown |= {"PrometheusMetrics": partial(PrometheusMetrics, registry), "start_http_server": ports.append}
    exec(METERED_BLOCK, shown)
    assert cluster.values("invoices") == INVOICES
    assert ports == [9100]

    def counted(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"eos_{name}", {"client": "billing", **labels})

    assert counted("records_total", direction="in") == counted("records_total", direction="out") == len(INVOICES)
    assert counted("assigned_partitions") == 1
    assert counted("gate_rulings_total", rule="always_ours") == counted("transactions_total", outcome="committed")


def test_the_traced_block_runs(cluster: SimulatedCluster) -> None:
    shown = names_of_a_loop_by_hand(cluster)
    exec(TRACED_LOOP.splitlines()[1], shown)
    exec(TRACED_BLOCK, shown)
    assert cluster.values("invoices") == INVOICES


def test_the_program_with_probes_runs_and_answers(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "billing-0")
    answers: list[tuple[int, bytes]] = []

    class OnAnyPort(probes.ProbeServer):
        def __init__(self, health: Any, port: int) -> None:
            assert port == 8080
            super().__init__(health, 0, "127.0.0.1")
            cluster.after(8, self.ask)

        def ask(self) -> None:
            connection = http.client.HTTPConnection(self.address[0], self.address[1], timeout=60)
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            answers.append((answer.status, answer.read()))
            connection.close()

    monkeypatch.setattr(probes, "ProbeServer", OnAnyPort)
    exec(WITH_PROBES, {"price": price})
    assert cluster.values("invoices") == INVOICES
    assert answers == [(200, b'{"ready": true, "live": true, "reasons": []}\n')]


def test_the_answer_on_the_page_is_that_of_a_loop_that_is_not_assigned_yet() -> None:
    (shown,) = re.findall(r"^\{.*\}$", KUBERNETES, re.MULTILINE)
    starting = LoopVitals(1.0, polled_at_s=0.5, poll_limit_s=300, gate=GateState(), gate_settings=GateSettings())
    told = asdict(health_of(starting))
    assert json.loads(shown) == {**told, "reasons": list(told["reasons"])}


def test_the_page_lists_every_alert() -> None:
    assert re.findall(r"^\| `(Eos\w+)`", MONITORING, re.MULTILINE) == [rule["alert"] for rule in RULES]


def test_the_manifest_gives_options_that_the_program_has() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "eos_client", "run", "--help"], capture_output=True, text=True, check=True
    ).stdout
    options = [argument.partition("=")[0] for argument in ARGUMENTS if argument.startswith("--")]
    assert len(options) > 5
    assert [option for option in options if option not in told] == []


def test_the_probes_of_the_manifest_ask_where_the_program_answers() -> None:
    given = {name: int(port) for name, _, port in (each.partition("=") for each in ARGUMENTS) if name.endswith("-port")}
    assert CONTAINER["ports"] == [
        {"name": "health", "containerPort": given["--health-port"]},
        {"name": "metrics", "containerPort": given["--metrics-port"]},
    ]
    asking = [CONTAINER[probe] for probe in ("livenessProbe", "readinessProbe")]
    assert [each["timeoutSeconds"] for each in asking] == [10, 10]
    asked = [each["httpGet"] for each in asking]
    assert asked == [{"path": "/livez", "port": "health"}, {"path": "/readyz", "port": "health"}]


def test_the_manifest_gives_the_loop_the_time_that_the_page_asks_for() -> None:
    config = EosConfig({"bootstrap.servers": "kafka:9092"}, group_id="billing")
    assert f"{config.longest_wait_s:.0f} s with the default settings" in KUBERNETES
    budget_s = config.shutdown_timeout_s + 3 * config.commit_timeout_s
    assert f"{budget_s:g} s and the slowest record" in KUBERNETES
    assert POD["terminationGracePeriodSeconds"] >= budget_s + 20
    assert "--transactional-id=$(POD_NAME)" in ARGUMENTS
    assert "POD_NAME" in {variable["name"] for variable in CONTAINER["env"]}
