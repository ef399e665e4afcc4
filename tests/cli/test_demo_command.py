"""``eos-client demo`` on a real broker, in a shorter form than a person gets to see."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from sqlalchemy import create_engine

from eos_client.cli.demo.database_session import audited_rows
from eos_client.cli.demo.job.invoice import invoice_of
from eos_client.cli.demo.verdict import ClusterReader, Findings, OutputAudit
from eos_client.integration.sql.rows_by_origin import RowsByOrigin
from tests.support.waiting import wait_for

LINES = [b"one", b"two", b"two", b"three"]


@pytest.fixture
def lines_file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"line {number // 2}\n" for number in range(2000)))  # each twice: legal input
    return path


@pytest.mark.timeout(450)
@pytest.mark.parametrize(
    "own_cluster",
    [
        pytest.param(True, id="own cluster, classic"),
        pytest.param(False, id="embedded, consumer", marks=pytest.mark.soak),
    ],
)
def test_the_demo_ends_with_the_verdict_exactly_once(
    cluster: Any, lines_file: Path, eos_client: Any, own_cluster: bool
) -> None:
    bootstrap = ["--bootstrap", cluster.bootstrap_servers] if own_cluster else []
    demo = eos_client("demo", *bootstrap, "--input", str(lines_file), "--seconds", "3")
    assert demo.wait(400) == 0, demo.out + demo.err
    assert f"({'classic' if own_cluster else 'consumer'} protocol)" in demo.out
    assert "w3 has joined" in demo.out
    assert "w2 killed (SIGKILL)" in demo.out
    assert "w2 is back" in demo.out
    assert "2,000 in, 2,000 visible; 0 missing, 0 doubled" in demo.out
    assert demo.out.splitlines()[-1].startswith("EXACTLY ONCE: 2,000 records")
    assert "\x1b" not in demo.out
    if own_cluster:
        assert "no Spark stage on a cluster of your own" in demo.out
    else:
        assert "Spark has caught up" in demo.out
        assert demo.out.count("2,000 in, 2,000 visible; 0 missing, 0 doubled") == 2


@pytest.mark.soak
def test_a_demo_whose_workers_cannot_run_fails_with_their_reason(
    cluster: Any, lines_file: Path, eos_client: Any
) -> None:
    beyond_the_brokers_limit = ["--config", "transaction.timeout.ms=900001"]
    demo = eos_client(
        "demo", "--bootstrap", cluster.bootstrap_servers, "--input", str(lines_file), *beyond_the_brokers_limit
    )
    assert demo.wait(120) == 12
    assert "w1 ended by itself" in demo.out or "w2 ended by itself" in demo.out
    assert "transaction.timeout" in demo.out.lower() or "transaction timeout" in demo.out.lower()
    assert demo.out.splitlines()[-1].startswith("NOT EXACTLY ONCE")
    assert "Traceback" not in demo.err


def test_an_unsafe_setting_is_refused_before_anything_is_started(eos_client: Any) -> None:
    demo = eos_client("demo", "--config", "enable.auto.commit=true")
    assert demo.wait() == 4
    assert "enable.auto.commit='true' breaks exactly-once" in demo.err
    assert demo.out == ""


def test_an_interrupted_demo_stops_its_workers_and_removes_its_topics(
    cluster: Any, lines_file: Path, eos_client: Any
) -> None:
    demo = eos_client("demo", "--bootstrap", cluster.bootstrap_servers, "--input", str(lines_file))
    demo.wait_for(lambda: "w1 started" in demo.out, "first worker")
    topic = next(word for word in demo.out.split() if word.endswith("-orders"))
    worker_pid = int(demo.out.split("w1 started (process ")[1].split(")")[0])
    assert cluster.admin.topics([topic])[topic] is not None
    assert demo.terminate() == 130
    assert not Path(f"/proc/{worker_pid}").exists()
    # the broker's metadata follows the controller a little later
    wait_for(lambda: cluster.admin.topics([topic]) == {topic: None}, "the topic to be gone")


def verdict_on(
    cluster: Any, outputs: Any, *, aborted: int = 0, committed_offset: int = 4
) -> tuple[Findings, list[str]]:
    """Play a worker that made ``outputs`` of :data:`LINES` (offset and value each), and judge it.

    Returns the findings and the claims that do not hold.
    """
    group_id, input_topic, output_topic = f"{cluster.prefix}-group", cluster.topic("in"), cluster.topic("out")
    cluster.load(input_topic, LINES)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{cluster.prefix}-writer"}
    )
    producer.init_transactions(20)
    for records, ends_well in ((outputs[:aborted], False), (outputs, True)):
        producer.begin_transaction()
        for offset, value in records:
            headers: Any = {"input.partition": b"0", "input.offset": b"%d" % offset}
            producer.produce(output_topic, value, partition=0, headers=headers)
        producer.flush(20)
        if ends_well:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group_id})
    consumer.commit(offsets=[TopicPartition(input_topic, 0, committed_offset)], asynchronous=False)
    consumer.close()
    reader = ClusterReader(cluster.admin, cluster.bootstrap_servers, {}, 1)
    findings = reader.audited(OutputAudit(), input_topic, output_topic)
    checks = findings.worker_checks(4, 4, reader.behind(group_id, input_topic))
    return findings, [claim for claim, holds, _figures in checks if not holds]


RIGHT = [(offset, invoice_of(line)) for offset, line in enumerate(LINES)]


def test_the_verdict_reads_the_cluster_and_ignores_aborted_outputs(cluster: Any) -> None:
    findings, failed = verdict_on(cluster, RIGHT, aborted=3)
    assert failed == []
    assert findings.hidden == 3


@pytest.mark.parametrize(
    ("outputs", "offset", "failed"),
    [
        ([*RIGHT, RIGHT[3]], 4, "every input exactly once"),
        (RIGHT, 3, "group offsets at the end"),
    ],
    ids=["doubled", "offsets behind"],
)
def test_the_verdict_sees_what_is_wrong_on_the_cluster(cluster: Any, outputs: Any, offset: int, failed: str) -> None:
    assert verdict_on(cluster, outputs, committed_offset=offset)[1] == [failed]


@pytest.mark.soak
@pytest.mark.timeout(450)
def test_the_demo_with_a_database_counts_each_row_once(cluster: Any, lines_file: Path, eos_client: Any) -> None:
    demo = eos_client("demo", "--database", "--input", str(lines_file), "--seconds", "3")
    assert demo.wait(400) == 0, demo.out + demo.err
    assert "w2 killed (SIGKILL)" in demo.out
    assert "w3 goes on (SIGCONT), a zombie" in demo.out
    assert "2,000 in, 2,000 visible; 0 missing, 0 doubled" in demo.out
    assert "aborted transactions" not in demo.out, "a table shows none"
    assert demo.out.splitlines()[-1].startswith("EXACTLY ONCE: 2,000 records")


def test_a_row_that_a_database_has_twice_is_no_verdict_of_exactly_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The demo's last step on a table with one row too many and one too few."""
    engine = create_engine(f"sqlite:///{tmp_path / 'demo.db'}")
    rows = RowsByOrigin(engine, "rows")
    rows.create()
    with engine.begin() as connection:
        rows.insert(connection, [(0, 0, invoice_of(b"one")), (0, 0, invoice_of(b"one"))])
    reader = ClusterReader(None, "nowhere:1", {}, 1)  # type: ignore[arg-type]  # which is not asked

    def expect_inputs(_reader: ClusterReader, audit: OutputAudit, _topic: str) -> None:
        audit.expect(0, 0, b"one")
        audit.expect(0, 1, b"two")

    monkeypatch.setattr(ClusterReader, "expect_inputs", expect_inputs)
    found = audited_rows(reader, "orders", rows.read())
    assert (found.doubled, found.missing, found.hidden) == (1, 1, None)
    assert not found.is_exactly_once


def test_the_demo_with_a_database_takes_no_cluster_of_ones_own(eos_client: Any) -> None:
    demo = eos_client("demo", "--database", "--bootstrap", "nowhere:1")
    assert demo.wait(60) == 2
    assert "leave yours out" in demo.err
