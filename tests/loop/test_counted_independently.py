"""The metrics of loops against counts that do not come from the client: from the logs and from intercepted calls."""

from collections import Counter

import pytest
from prometheus_client import CollectorRegistry

from eos_client import CommitGate, EosConfig, ExactlyOnceLoop, OutputRecord
from eos_client.core.commit_gate import CommitDecision, RuleName
from eos_client.integration.prometheus import PrometheusMetrics
from eos_client.testing import SimulatedCluster
from eos_client.testing.simulator.brokers.model import Marker, PartitionKey
from eos_client.testing.simulator.clients.consumer import SimulatedConsumer
from eos_client.testing.simulator.clients.producer import SimulatedProducer

TRANSACTIONS, RECORDS_EACH = 12, 5


class Counted:
    """Counts rulings by rule and decision, rebalance callbacks by kind, and confirmed commits by transactional.id.

    ``with_outputs``: those commits before which the producer was given outputs since its last one.
    """

    def __init__(self, monkeypatch):
        self.rulings: Counter[RuleName] = Counter()
        self.decisions: Counter[CommitDecision] = Counter()
        self.commits: Counter[str] = Counter()
        self.with_outputs: Counter[str] = Counter()
        self.callbacks: Counter[str] = Counter()
        decide, commit, produce = CommitGate.decide, SimulatedProducer.commit_transaction, SimulatedProducer.produce
        has_outputs: set[str] = set()
        subscribe = SimulatedConsumer.subscribe

        def counted_decide(gate, attempt):
            ruling = decide(gate, attempt)
            self.rulings[ruling.rule] += 1
            self.decisions[ruling.decision] += 1
            return ruling

        def counted_callback(kind, callback):
            def counted(*arguments):
                self.callbacks[kind] += 1
                return callback(*arguments)

            return counted

        def counted_subscribe(consumer, topics, **callbacks):
            counted = {name: counted_callback(name.removeprefix("on_"), call) for name, call in callbacks.items()}
            subscribe(consumer, topics, **counted)

        def counted_produce(producer, *output, **options):
            has_outputs.add(producer.transactional_id)
            produce(producer, *output, **options)

        def counted_commit(producer, *timeout):
            commit(producer, *timeout)
            self.commits[producer.transactional_id] += 1
            self.with_outputs[producer.transactional_id] += producer.transactional_id in has_outputs
            has_outputs.discard(producer.transactional_id)

        monkeypatch.setattr(CommitGate, "decide", counted_decide)
        monkeypatch.setattr(SimulatedConsumer, "subscribe", counted_subscribe)
        monkeypatch.setattr(SimulatedProducer, "produce", counted_produce)
        monkeypatch.setattr(SimulatedProducer, "commit_transaction", counted_commit)


def write_transactions(cluster, topic):
    """Write transactions of which every third is aborted; returns how many records were committed."""
    producer = cluster.producer({"transactional.id": "orders-writer"})
    producer.init_transactions()
    committed = 0
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for each in range(RECORDS_EACH):
            producer.produce(topic, value=b"bad" if number % 4 == each == 1 else b"good", partition=each % 2)
        if number % 3 == 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            committed += RECORDS_EACH
    return committed


def invoice(order):
    if order.value() == b"bad":
        raise ValueError("an order that no invoice can be written for")
    yield OutputRecord("invoices", value=order.value())


def run(cluster, metrics, name, *faults, **settings):
    """Run one loop for a minute; the faults come in between."""
    config = EosConfig(
        {"bootstrap.servers": "simulated", "auto.offset.reset": "earliest"},
        group_id="billing",
        transactional_id=f"id-{name}",
        on_error="dead_letter",
        dead_letter_topic="letters",
        max_records=7,
        **settings,
    )
    loop = ExactlyOnceLoop(config, ["orders"], invoice, clients=cluster, hook=metrics.hook(name))
    metrics.watch_gate(name, loop.gate)
    for at, fault in enumerate(faults, 1):
        cluster.after(5.0 * at, fault)
    cluster.after(60, loop.stop)
    loop.run()
    return loop


def markers(cluster, topic, marker):
    log = cluster.brokers.log(PartitionKey(topic, 0))
    return sum(record.marker is marker for record in log.records)


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def cluster():
    cluster = SimulatedCluster(seed=11)
    cluster.create_topic("orders", 2)
    cluster.create_topic("invoices")
    cluster.create_topic("letters")
    return cluster


def total(registry, name, client="billing", **labels):
    return registry.get_sample_value(f"eos_{name}", {"client": client, **labels}) or 0


def test_markers_and_aborted_records_of_the_input_are_no_records(cluster, registry):
    written = write_transactions(cluster, "orders")
    loop = run(cluster, PrometheusMetrics(registry), "billing")
    assert total(registry, "records_total", direction="in") == written == loop.counters.records_in
    assert total(registry, "transaction_records_sum", direction="in") == written


def test_loops_of_one_name_count_together_through_aborts_replays_and_failed_records(cluster, registry, monkeypatch):
    counted, metrics = Counted(monkeypatch), PrometheusMetrics(registry)
    written = write_transactions(cluster, "orders")
    faults = (
        lambda: cluster.refuse("TxnOffsetCommit", "ILLEGAL_GENERATION"),
        lambda: write_transactions(cluster, "orders"),
        lambda: cluster.revoke(("orders", 1)),
        lambda: cluster.lose_reply("EndTxn", "id-billing"),
        lambda: write_transactions(cluster, "orders"),
        cluster.give_back,
        cluster.lose,
    )
    for each in (faults, (lambda: write_transactions(cluster, "orders"),)):
        run(cluster, metrics, "billing", *each)
        shown = {rule: total(registry, "gate_rulings_total", rule=rule.value) for rule in RuleName}
        assert shown == {rule: counted.rulings[rule] for rule in RuleName}
    letters, invoices = cluster.values("letters"), cluster.values("invoices")
    assert total(registry, "records_total", direction="in") == 4 * written == len(letters) + len(invoices)
    assert total(registry, "records_total", direction="out") == total(registry, "records_total", direction="in")
    assert total(registry, "records_failed_total", handling="dead_lettered") == len(letters) > 0
    resolved = total(registry, "outcomes_resolved_total", outcome="committed")
    committed = counted.commits["id-billing"] + resolved
    assert total(registry, "transactions_total", outcome="committed") == committed
    assert total(registry, "transaction_commit_seconds_count") == committed
    with_records = counted.with_outputs["id-billing"] + resolved
    assert total(registry, "poll_to_commit_seconds_count") == with_records < committed, "markers are no records"
    aborted = markers(cluster, "invoices", Marker.ABORT)
    assert total(registry, "transactions_total", outcome="aborted") == aborted > 0
    assert total(registry, "commits_refused_total", rule="other") == 1  # the one that was scripted
    for kind, callback in (("assigned", "assign"), ("revoked", "revoke"), ("lost", "lost")):
        assert total(registry, "rebalances_total", kind=kind) == counted.callbacks[callback] > 0
    assert total(registry, "assigned_partitions") == 0
    skips = sum(total(registry, "gate_skips_total", kind=kind) for kind in ("needed", "false", "unjudged"))
    assert skips == counted.decisions[CommitDecision.SKIP]


def test_the_lag_is_the_distance_from_the_committed_offset_to_the_last_stable_one(cluster, registry):
    write_transactions(cluster, "orders")
    lags = []
    partition = PartitionKey("orders", 1)

    def compare():
        lag = total(registry, "input_lag_records", topic="orders", partition="1")
        lags.append((lag, cluster.brokers.log(partition).last_stable_offset - cluster.committed("billing")[partition]))

    config = {"statistics.interval.ms": 1000}
    run(cluster, PrometheusMetrics(registry), "billing", lambda: None, compare, consumer=config)
    assert lags == [(0, 0)], "behind the marker of the last transaction"
