"""The loops that are measured: they work, they say what they commit, and a peer that is missing says what brings it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from eos_client.testing.java_runtime import JavaRuntime
from tests.benchmarks import peers
from tests.benchmarks.bench_broker import PARTITIONS, Bench, Task
from tests.benchmarks.contenders.assignment import HEADERS, KEYED, Assignment
from tests.benchmarks.lineup import ENTRIES, OURS, TUNED, Contender
from tests.benchmarks.measure import marks_in
from tests.benchmarks.observed_load import ObservedLoad
from tests.benchmarks.throughput import peak_mb
from tests.support.waiting import wait_for
from tests.verification.topics import create_topics

COMMITS = 3


@pytest.mark.parametrize(
    ("contender", "work"),
    [pytest.param(OURS, KEYED, id="ours", marks=pytest.mark.soak), pytest.param(TUNED, HEADERS, id="by hand")],
)
def test_a_contender_copies_and_reports_its_commits(kafka_broker, tmp_path, contender, work):
    bench = Bench(kafka_broker.bootstrap_servers, tmp_path)
    task = Task(f"bench-{work}", f"bench-{work}-in", work, commit_interval_s=0.05)
    create_topics(bench.bootstrap, {task.source: PARTITIONS})
    with bench.pool(contender, task) as pool, ObservedLoad(bench.bootstrap, task.source, task.name) as load:
        pool.start(0)
        marks = wait_for(
            lambda: [found for found in [marks_in(pool.log_tail(0))] if len(found) >= COMMITS],
            lambda: f"commits of {contender.name}: {pool.log_tail(0)}",
        )[0]
        seen = wait_for(lambda: list(load.sights), "committed outputs")
        assert 10 < peak_mb(pool.pid(0)) < 2000
    assert all(mark.records > 0 and mark.commit_s > 0 for mark in marks)
    assert all(earlier.at_s < later.at_s for earlier, later in itertools.pairwise(marks))
    assert {sight.partition for sight in seen} <= set(range(PARTITIONS))
    assert all(0 < sight.made_s < sight.seen_s for sight in seen)


def test_a_command_carries_the_settings_of_the_contender_over_those_of_the_task():
    contender = Contender("x", lambda: ("run",), {"linger.ms": "5", "group.instance.id": "{id}"})
    task = Assignment("localhost:1", "group", "in", "out", "1", 0.1, KEYED, "state", {"linger.ms": "1", "acks": "all"})
    assert contender.command(task) == [
        "run", "localhost:1", "group", "in", "out", "1", "0.1", KEYED, "state",
        "linger.ms=5", "acks=all", "group.instance.id=group-1",
    ]  # fmt: skip


def test_a_missing_environment_of_peers_is_named_with_the_target_that_makes_it(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "PEERS", tmp_path / "none")
    peer = next(entry for entry in ENTRIES if entry.contender.name == "aiokafka")
    with pytest.raises(peers.PeerMissingError, match=r"none is not there: make bench"):
        peer.contender.program()


def test_a_java_without_a_compiler_is_named_with_the_package_that_has_one(monkeypatch, tmp_path):
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'Module jdk.compiler not found' >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setattr(peers, "find_java", lambda: JavaRuntime(java, 17, "build"))
    monkeypatch.setattr(peers, "cached_jars", lambda *_: Path(tmp_path))
    with pytest.raises(peers.PeerMissingError, match=r"must be of a JDK .*openjdk-17-jdk.*jdk\.compiler not found"):
        peers.streams_command.__wrapped__()
