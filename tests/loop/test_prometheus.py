"""Every event and every ruling of the gate is counted under its client, with prometheus_client's own registry."""

import re
from pathlib import Path
from unittest import mock

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from eos_client import EosConfig, ExactlyOnceLoop, OutputRecord, observe
from eos_client.core.commit_gate import RuleName
from eos_client.core.loop_health import LoopHealth
from eos_client.core.model import GroupGeneration, InputPartition
from eos_client.errors import ConfigurationError
from eos_client.integration.prometheus import PrometheusMetrics
from eos_client.testing import SimulatedCluster
from tests.core.test_observe import EXAMPLES

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "monitoring.md").read_text(encoding="utf-8")
NOT_COUNTED = {
    observe.LoopStarted,
    observe.LoopStopped,
    observe.LoopFenced,
    observe.CommitSkipped,
    observe.PartitionsStartedAtEnd,
}
"""The gate's counters tell of skips; that a loop runs, and with which exit status it ends, by whoever runs it. How much
lies before a start is no rate: it is told once for each partition."""


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def metrics(registry):
    return PrometheusMetrics(registry)


def sample(registry, name, **labels):
    return registry.get_sample_value(f"eos_{name}", {"client": "billing", **labels})


def test_a_loop_counts_its_transactions_records_partitions_and_rulings(registry, metrics):
    cluster = SimulatedCluster(seed=3)
    cluster.create_topic("orders", 2)
    cluster.create_topic("invoices")
    cluster.write("orders", [b"1", b"2", b"3"])
    loop = ExactlyOnceLoop(
        EosConfig({"bootstrap.servers": "simulated"}, group_id="billing"),
        ["orders"],
        lambda order: [OutputRecord("invoices", value=order.value())] * 2,
        clients=cluster,
        hook=metrics.hook("billing"),
    )
    metrics.watch_gate("billing", loop.gate)
    assigned = []
    cluster.after(9.0, lambda: assigned.append(sample(registry, "assigned_partitions")))
    cluster.after(10.0, loop.stop)
    loop.run()
    assert assigned == [2]
    assert sample(registry, "transactions_total", outcome="committed") == loop.counters.committed > 0
    assert sample(registry, "records_total", direction="in") == 3
    assert sample(registry, "records_total", direction="out") == 6
    assert sample(registry, "transaction_records_count", direction="in") == loop.counters.committed
    assert sample(registry, "transaction_records_sum", direction="out") == 6
    assert sample(registry, "transaction_commit_seconds_count") == loop.counters.committed
    assert sample(registry, "poll_to_commit_seconds_count") == loop.counters.committed
    assert sample(registry, "poll_to_commit_seconds_sum") > sample(registry, "transaction_commit_seconds_sum")
    assert sample(registry, "assigned_partitions") == 0
    assert sample(registry, "rebalances_total", kind="revoked") == 1
    rulings = {rule: sample(registry, "gate_rulings_total", rule=rule.value) for rule in loop.gate.counters.by_rule}
    assert rulings == loop.gate.counters.by_rule
    assert sum(rulings.values()) > 0
    assert sample(registry, "gate_skips_total", kind="needed") == 0


@pytest.mark.parametrize("event", [event for event, _, _ in EXAMPLES], ids=lambda event: event.name)
def test_every_event_changes_a_metric_and_is_passed_on(registry, metrics, event):
    passed: list[observe.Event] = []
    hook = metrics.hook("billing", passed.append)
    before = generate_latest(registry)
    hook(event)
    assert passed == [event]
    assert (generate_latest(registry) != before) is (type(event) not in NOT_COUNTED)


@pytest.mark.parametrize("records", [0, 1, 2, 700, 100_000, 100_001])
def test_a_committed_transaction_counts_in_the_bucket_of_its_records(registry, metrics, records):
    committed = observe.TransactionCommitted(
        records_in=records, records_out=3, duration_s=0.1, generation=GroupGeneration(4, "m", "g"), inside_revoke=False
    )
    metrics.hook("billing", lambda _event: None)(committed)
    (histogram,) = [metric for metric in registry.collect() if metric.name == "eos_transaction_records"]
    read = [
        (float(found.labels["le"]), found.value)
        for found in histogram.samples
        if found.name.endswith("_bucket") and found.labels["direction"] == "in"
    ]
    assert [bound for bound, _ in read] == sorted(
        [*(step * 10.0**power for power in range(5) for step in (1, 2, 5)), 1e5, float("inf")]
    )
    assert all(count == (records <= bound) for bound, count in read)
    assert sample(registry, "transaction_records_sum", direction="in") == records
    assert sample(registry, "transaction_records_bucket", direction="out", le="2.0") == 0
    assert sample(registry, "transaction_records_bucket", direction="out", le="5.0") == 1


def test_a_counter_begins_at_zero_before_its_first_event(registry, metrics):
    metrics.hook("billing")
    assert sample(registry, "rebalances_total", kind="lost") == 0
    assert sample(registry, "spark_leases_total", event="lost") == 0


def test_the_health_is_asked_for_at_each_scrape(registry, metrics):
    found = [LoopHealth(ready=False, live=True), LoopHealth(ready=True, live=True), LoopHealth(ready=False, live=False)]
    metrics.watch_health("billing", lambda: found[0])
    shown = []
    for _ in range(3):
        shown.append((sample(registry, "live"), sample(registry, "ready")))
        found.append(found.pop(0))
    assert shown == [(1, 0), (1, 1), (0, 0)]


def test_a_refusal_is_counted_by_the_rule_that_refused_it_or_as_another(registry, metrics):
    hook = metrics.hook("billing", lambda _event: None)
    refused = frozenset({InputPartition("orders", 0)})
    for rule in (RuleName.NOT_OURS, RuleName.NOT_OURS, None):
        hook(observe.CommitRefused(partitions=refused, rule=rule, reason="r"))
    assert sample(registry, "commits_refused_total", rule="not_ours") == 2
    assert sample(registry, "commits_refused_total", rule="other") == 1


@pytest.mark.parametrize(
    ("rule", "refused_by_group", "counted"),
    [
        (RuleName.LOST_WORK, False, {"lost_work": 1}),
        (None, True, {"other": 1}),
        (None, False, {}),
    ],
)
def test_a_transaction_whose_offsets_were_refused_counts_as_a_refused_commit(
    registry, metrics, rule, refused_by_group, counted
):
    aborted = observe.TransactionAborted(reason="r", rule=rule, records_in=1, refused_by_group=refused_by_group)
    metrics.hook("billing", lambda _event: None)(aborted)
    assert sample(registry, "transactions_total", outcome="aborted") == 1
    assert [sample(registry, "commits_refused_total", rule=name) for name in ("lost_work", "other")] == [
        counted.get("lost_work"),
        counted.get("other"),
    ]


def test_the_lag_is_that_of_the_partitions_that_are_still_ours(registry, metrics):
    hook = metrics.hook("billing", lambda _event: None)
    zero, one = InputPartition("orders", 0), InputPartition("orders", 1)
    hook(observe.LagMeasured(records={zero: 5, one: 7}))
    assert sample(registry, "input_lag_records", topic="orders", partition="1") == 7
    hook(observe.PartitionsLost(partitions=frozenset({one}), uncommitted=frozenset()))
    assert sample(registry, "input_lag_records", topic="orders", partition="0") == 5
    assert sample(registry, "input_lag_records", topic="orders", partition="1") is None
    hook(observe.LagMeasured(records={zero: 0}))
    assert sample(registry, "input_lag_records", topic="orders", partition="0") == 0


def test_lost_partitions_are_ours_no_more(registry, metrics):
    hook = metrics.hook("billing", lambda _event: None)
    three = frozenset(InputPartition("orders", number) for number in range(3))
    hook(observe.PartitionsAssigned(partitions=three, generation=GroupGeneration(4, "m", "g")))
    hook(observe.PartitionsLost(partitions=three, uncommitted=frozenset()))
    assert sample(registry, "assigned_partitions") == 0
    assert sample(registry, "rebalances_total", kind="lost") == 1


def test_the_program_on_the_page_runs(monkeypatch):
    program, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    served = mock.Mock()
    monkeypatch.setattr(prometheus_client, "start_http_server", served)
    monkeypatch.setattr(prometheus_client, "REGISTRY", CollectorRegistry())
    monkeypatch.setattr(ExactlyOnceLoop, "run", lambda loop: loop.close())
    exec(program, {"price": lambda record: record.value()})
    served.assert_called_once_with(9100)


def test_the_page_names_every_metric_and_no_other(registry, metrics):
    gate_metrics = {metric.name for metric in registry.collect()}
    named = {name.removesuffix("_total") for name in re.findall(r"^\| `(eos_\w+)`", PAGE, re.MULTILINE)}
    assert named == gate_metrics


def test_a_second_object_on_one_registry_is_refused_with_what_to_do(registry, metrics):
    with pytest.raises(ConfigurationError, match=r"Pass that object to both loops.*CollectorRegistry\(\)"):
        PrometheusMetrics(registry)
    metrics.hook("billing")(observe.LoopStopped(reason="test"))
    PrometheusMetrics(CollectorRegistry())


def test_a_health_that_raises_spoils_no_scrape_and_is_logged_once(registry, metrics, caplog):
    metrics.watch_health("billing", lambda: 1 / 0)
    metrics.watch_health("orders", lambda: LoopHealth(ready=True, live=True))
    for _ in range(2):
        assert registry.get_sample_value("eos_live", {"client": "orders"}) == 1
        assert sample(registry, "live") is None
    (told,) = [record for record in caplog.records if record.name == "eos_client"]
    assert "ZeroDivisionError" in told.exc_text


def test_an_event_that_cannot_be_counted_is_passed_on(registry, metrics, monkeypatch, caplog):
    """A registry of several processes writes to files, and a disk may be full."""
    passed: list[observe.Event] = []
    hook = metrics.hook("billing", passed.append)
    monkeypatch.setattr("prometheus_client.Counter.inc", mock.Mock(side_effect=OSError("No space left on device")))
    event = observe.OutcomeResolved(outcome="committed", reason="found")
    hook(event)
    hook(event)
    assert passed == [event, event]
    (told,) = [record for record in caplog.records if record.name == "eos_client"]
    assert "No space left" in told.exc_text
