"""The dashboard and the alert rules below docs/monitoring: they ask for metrics that exist, and each alert fires.

What needs a real Prometheus is skipped where there is none on PATH.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import CollectorRegistry, start_http_server

from eos_client import observe
from eos_client.core.commit_gate import CommitGate
from eos_client.core.loop_health import LoopHealth
from eos_client.core.model import InputPartition
from eos_client.integration.prometheus import PrometheusMetrics
from eos_client.testing.free_ports import free_ports
from tests.core.test_observe import EXAMPLES
from tests.support.waiting import TICK_S, wait_for

REPOSITORY = Path(__file__).parents[2]
ALERTS_FILE = REPOSITORY / "docs" / "monitoring" / "eos-client-alerts.yaml"
DASHBOARD_FILE = REPOSITORY / "docs" / "monitoring" / "eos-client-dashboard.json"
DASHBOARD: dict[str, Any] = json.loads(DASHBOARD_FILE.read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS_FILE.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on PATH")


def exported() -> dict[str, set[str]]:
    """Every series that the package shows, by its name, with the names of its labels; every event has come once."""
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    hook = metrics.hook("billing", lambda _event: None)
    metrics.watch_gate("billing", CommitGate())
    metrics.watch_health("billing", lambda: LoopHealth(ready=True, live=True))
    for event, _, _ in EXAMPLES:
        hook(event)
    hook(observe.LagMeasured(records={InputPartition("orders", 0): 1}))
    series: dict[str, set[str]] = {}
    for metric in registry.collect():
        if metric.type == "counter":
            series.setdefault(f"{metric.name}_total", set())
        for sample in metric.samples:
            series.setdefault(sample.name, set()).update(sample.labels)
    return series


SERIES = exported()
# The gate has made no ruling here.
SERIES["eos_gate_rulings_total"] |= {"client", "rule"}
ADDED_BY_PROMETHEUS = {"job", "instance"}
# Series of Prometheus itself and of kube-state-metrics.
OF_OTHERS = {
    "up": ADDED_BY_PROMETHEUS,
    "kube_pod_container_status_restarts_total": {"namespace", "pod", "container"},
}


def asked_for(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:eos_|kube_)\w+|\bup\b", expression))


@pytest.mark.parametrize("expression", [*EXPRESSIONS, *(rule["expr"] for rule in RULES)])
def test_every_expression_asks_for_series_and_labels_that_exist(expression):
    names = asked_for(expression)
    assert names
    series = SERIES | OF_OTHERS
    assert names - series.keys() == set()
    known = set().union(*(series[name] for name in names)) | ADDED_BY_PROMETHEUS
    grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
    labels = {label.strip() for each in grouped for label in each.split(",")}
    labels |= set(re.findall(r"[{,]\s*(\w+)\s*=", expression))
    assert labels - known == set()


def test_the_dashboard_shows_every_metric():
    shown = set().union(*map(asked_for, EXPRESSIONS))
    base = re.compile(r"_(bucket|count|sum|created)$")
    metrics = {base.sub("", name) for name in SERIES if not name.endswith("_created")}
    assert metrics - {base.sub("", name) for name in shown} == set()


def test_the_dashboard_is_what_its_script_writes_and_nothing_of_it_is_unknown_to_grafanas_schema():
    script = importlib.util.spec_from_file_location("dashboard", REPOSITORY / "scripts" / "dashboard.py")
    assert script is not None
    assert script.loader is not None
    module = importlib.util.module_from_spec(script)
    script.loader.exec_module(module)
    assert DASHBOARD_FILE.read_text(encoding="utf-8") == module.rendered(), "run python scripts/dashboard.py"
    read_back = JSONEncoder(sort_keys=True, indent=2).encode(Dashboard.from_json(DASHBOARD))
    assert json.loads(read_back) == DASHBOARD


def test_every_panel_has_a_title_a_description_a_unit_and_a_place_of_its_own():
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert all(panel["title"] and panel["description"] and panel["fieldConfig"]["defaults"]["unit"] for panel in panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(panels) > 20


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_says_how_bad_it_is_what_happened_and_what_to_do(rule):
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"].keys() == {"summary", "action", "runbook_url"}
    named = set(re.findall(r"eos_\w+", " ".join(rule["annotations"].values())))
    assert named - SERIES.keys() - {name.rpartition("_")[0] for name in SERIES} == set()


def test_each_alert_leads_to_its_own_section_of_the_runbooks_and_back():
    headings = re.findall(r"^## (.+)$", (REPOSITORY / "docs" / "how-to" / "alerts.md").read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in RULES]
    expected = [f"docs/how-to/alerts.md#{heading.lower()}" for heading in headings]
    assert [rule["annotations"]["runbook_url"] for rule in RULES] == expected


def test_the_runbooks_name_metrics_that_exist():
    named = set(re.findall(r"`(eos_\w+)`", (REPOSITORY / "docs" / "how-to" / "alerts.md").read_text()))
    assert named - SERIES.keys() - {name.rpartition("_")[0] for name in SERIES} == set()


# -- a real Prometheus -------------------------------------------------------------------------------------------------


def checked_by_promtool(folder: Path, *arguments: str, **files: Any) -> str:
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    ran = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@needs_promtool
def test_prometheus_loads_the_alert_rules(tmp_path):
    assert f"{len(RULES)} rules found" in checked_by_promtool(tmp_path, "check", "rules", str(ALERTS_FILE))


@needs_promtool
def test_prometheus_can_parse_every_expression_of_the_dashboard(tmp_path):
    variables = {"$__rate_interval": "5m", "$job": ".*", "$client": ".*"}
    plain: list[dict[str, str]] = []
    for expression in EXPRESSIONS:
        for name, value in variables.items():
            expression = expression.replace(name, value)  # noqa: PLW2901
        plain.append({"record": f"panel:{len(plain)}", "expr": expression})
    rules = {"groups": [{"name": "panels", "rules": plain}]}
    assert f"{len(plain)} rules found" in checked_by_promtool(tmp_path, "check", "rules", "rules.yaml", rules=rules)


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus on PATH")
def test_a_running_prometheus_scrapes_the_metrics_and_evaluates_the_rules(tmp_path):
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    metrics.hook("billing")
    metrics.watch_health("billing", lambda: LoopHealth(ready=False, live=False))
    server, _ = start_http_server(0, "127.0.0.1", registry)
    (port,) = free_ports(1)
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS_FILE)],
        "scrape_configs": [
            {"job_name": "billing", "static_configs": [{"targets": [f"127.0.0.1:{server.server_port}"]}]}
        ],
    }
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    started = ["prometheus", "--config.file=prometheus.yaml", f"--web.listen-address=127.0.0.1:{port}"]
    with (tmp_path / "log").open("w") as log:
        prometheus = subprocess.Popen(started, cwd=tmp_path, stdout=log, stderr=log)

    def alerts() -> dict[str, Any]:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/rules", timeout=10) as answer:
            (group,) = json.load(answer)["data"]["groups"] or [{"rules": []}]
            return {rule["name"]: rule for rule in group["rules"]}
        return {}

    try:
        wait_for(
            lambda: alerts().get("EosWorkerNotLive", {}).get("state") == "pending",
            lambda: f"the alert of a loop that is not live, but {alerts()}",
            lambda: time.sleep(TICK_S),
            timeout_s=120.0,
        )
        assert {rule["health"] for rule in alerts().values()} == {"ok"}
        assert len(alerts()) == len(RULES)
    finally:
        prometheus.terminate()
        prometheus.wait(60)
        server.shutdown()


ME = 'job="billing", instance="a", client="billing"'
BESIDE = 'job="billing", instance="b", client="billing"'
COMMITTED, ABORTED = (f'eos_transactions_total{{{ME}, outcome="{outcome}"}}' for outcome in ("committed", "aborted"))
LAG = f'eos_input_lag_records{{{ME}, topic="orders", partition="0"}}'
RESTARTS = 'kube_pod_container_status_restarts_total{namespace="prod", pod="billing-0", container="eos-worker"}'
# For each alert: series, a value each minute, under which it fires.
FIRING: dict[str, dict[str, str]] = {
    "EosWorkerNotLive": {f"eos_live{{{ME}}}": "1x60 0x120"},
    "EosWorkerNotReady": {f"eos_ready{{{ME}}}": "1x60 0x120"},
    # A restart loop: a scrape meets a process that is alive now and then. Another worker of the group is well.
    "EosWorkerDown": {
        'up{job="billing", instance="a"}': "1x100 0x30 1 0x60",
        f"eos_live{{{ME}}}": "1x100 _x30 1 _x60",
        f"eos_live{{{BESIDE}}}": "1x180",
    },
    "EosNoWorker": {f"eos_live{{{ME}}}": "1x100"},
    "EosWorkerRestarts": {RESTARTS: "0x139 1x9 2x9 3x9 4x9"},
    "EosNothingCommitted": {LAG: "0+10x180", COMMITTED: "5x180"},
    "EosLagGrows": {LAG: "0+10x180", COMMITTED: "0+60x180"},
    "EosTransactionsAborted": {ABORTED: "0+10x180", COMMITTED: "0+60x180"},
    "EosPartitionsLost": {f'eos_rebalances_total{{{ME}, kind="lost"}}': "0x170 1x20"},
    "EosCommitsHeld": {f"eos_gate_held_seconds_total{{{ME}}}": "0+20x180"},
    "EosProducerRebuilt": {f'eos_producer_rebuilds_total{{{ME}, cause="_TIMED_OUT"}}': "0+1x180"},
    "EosOutcomeUnknown": {f'eos_outcomes_resolved_total{{{ME}, outcome="unknown"}}': "0x170 1x20"},
    "EosRecordsFailed": {f'eos_records_failed_total{{{ME}, handling="skipped"}}': "0x170 1x20"},
    "EosSparkLeaseLost": {f'eos_spark_leases_total{{{ME}, event="lost"}}': "0x170 1x20"},
    "EosSparkLeaseRenewed": {f'eos_spark_leases_total{{{ME}, event="renewed"}}': "0+1x180"},
    "EosSparkTasksRepeated": {
        f"eos_spark_tasks_repeated_total{{{ME}}}": "0+3x180",
        f"eos_spark_batches_total{{{ME}}}": "0+2x180",
    },
}
# A worker that is well: it commits, has a small lag that stays, and one of everything that may happen now and then.
WELL = {
    'up{job="billing", instance="a"}': "1x165 0x3 1x20",
    RESTARTS: "0x139 1x9 2x9 3x29",
    f"eos_live{{{ME}}}": "1x180",
    f"eos_ready{{{ME}}}": "1x180",
    LAG: "3x180",
    COMMITTED: "0+60x180",
    ABORTED: "0+1x180",
    f'eos_rebalances_total{{{ME}, kind="lost"}}': "0x180",
    f'eos_rebalances_total{{{ME}, kind="revoked"}}': "0x170 1x20",
    f"eos_gate_held_seconds_total{{{ME}}}": "0+5x180",
    f'eos_producer_rebuilds_total{{{ME}, cause="_TIMED_OUT"}}': "0x170 2x20",
    f'eos_outcomes_resolved_total{{{ME}, outcome="unknown"}}': "0x180",
    f'eos_outcomes_resolved_total{{{ME}, outcome="committed"}}': "0x170 1x20",
    f'eos_records_failed_total{{{ME}, handling="skipped"}}': "0x180",
    f'eos_spark_leases_total{{{ME}, event="lost"}}': "0x180",
    f'eos_spark_leases_total{{{ME}, event="renewed"}}': "0x170 1x20",
    f"eos_spark_tasks_repeated_total{{{ME}}}": "0x170 1x20",
    f"eos_spark_batches_total{{{ME}}}": "0+2x180",
}
# Committing nothing while nothing comes is no fault, and neither is a lag that only markers make.
IDLE = {LAG: "1x180", COMMITTED: "5x180", f"eos_live{{{ME}}}": "1x180", f"eos_ready{{{ME}}}": "1x180"}


def judged(folder: Path, series: dict[str, str], fires: list[str]) -> None:
    expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in fires]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "175m",
                "exp_samples": expected,
            }
        ],
    }
    story = {"rule_files": [str(ALERTS_FILE)], "evaluation_interval": "1m", "tests": [test]}
    checked_by_promtool(folder, "test", "rules", "story.yaml", story=story)


def test_every_alert_has_a_story_in_which_it_fires():
    assert FIRING.keys() == {rule["alert"] for rule in RULES}


@needs_promtool
@pytest.mark.parametrize("name", FIRING)
def test_an_alert_fires_when_it_should(tmp_path, name):
    also = {"EosNothingCommitted": ["EosLagGrows"]}
    judged(tmp_path, FIRING[name], sorted([name, *also.get(name, [])]))


@needs_promtool
@pytest.mark.parametrize("series", [WELL, IDLE], ids=["well", "idle"])
def test_no_alert_fires_for_a_worker_that_is_well(tmp_path, series):
    judged(tmp_path, series, [])
