"""A client quota lets fewer outputs through than a transaction holds: the next ones are smaller, and get through."""

from dataclasses import replace

import pytest

from eos_client.errors import ClusterUnavailableError
from eos_client.observe import TransactionAborted, TransactionCommitted
from tests.loop.bench import Bench

COUNT = 6_000
BODY = b"x" * 10_000
RATE = 2.0**20
BATCH = 100
OUTAGE_S = 40.0


def copy(record):
    return [record.value()]


def limit(cluster, rate):
    cluster.brokers.settings = replace(cluster.brokers.settings, producer_byte_rate=rate)


def load(bench, count=COUNT):
    """Write a backlog, at whose end the loop stops; returns its records."""
    backlog = [b"%d " % number + BODY for number in range(count)]
    for begin in range(0, count, BATCH):
        bench.cluster.write("orders", backlog[begin : begin + BATCH])
    bench.stop_after(count)
    return backlog


def test_a_loop_under_a_client_quota_writes_its_backlog(simulated_cluster):
    bench = Bench(simulated_cluster, copy)
    limit(simulated_cluster, RATE)
    backlog = load(bench)
    bench.run()
    assert bench.written == backlog
    aborted = [event.reason for event in bench.events(TransactionAborted)]
    assert 0 < len(aborted) < 5, "it stays at a size that gets through"
    assert all("outputs" in why and "were not acknowledged within 4 s" in why for why in aborted)
    assert all("client quota" in why and "`max_records`" in why and "`commit_timeout_s`" in why for why in aborted)


def test_under_a_client_quota_little_of_the_time_is_lost(simulated_cluster):
    bench = Bench(simulated_cluster, copy)
    limit(simulated_cluster, RATE)
    load(bench)
    bench.run()
    took_s = bench.moments(TransactionCommitted)[-1] - bench.moments(TransactionAborted)[0]
    assert took_s < 1.5 * COUNT * len(BODY) / RATE


def test_a_quota_that_lets_nothing_through_ends_the_loop(simulated_cluster):
    bench = Bench(simulated_cluster, copy)
    limit(simulated_cluster, 1.0)
    load(bench, 10)
    with pytest.raises(ClusterUnavailableError, match=r"Nothing of these transactions is visible.* client quota"):
        bench.run()
    assert bench.written == []


def test_after_an_outage_the_transactions_are_soon_as_large_as_before(simulated_cluster):
    bench = Bench(simulated_cluster, copy)
    for _ in range(50_000):
        simulated_cluster.refuse("Produce", "NOT_ENOUGH_REPLICAS")
    simulated_cluster.after(OUTAGE_S, simulated_cluster.faults.withdraw)
    load(bench)
    bench.run()
    committed = bench.moments(TransactionCommitted)
    assert len(bench.events(TransactionAborted)) > 3
    assert len(committed) < 15
    assert committed[-1] - OUTAGE_S < 10
