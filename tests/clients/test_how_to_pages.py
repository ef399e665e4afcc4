"""What migrate.md, tune.md, batch-jobs.md, several-topics.md, upgrade-brokers.md, events.md and others show runs."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import confluent_kafka
import pytest

import eos_client
from eos_client import EosConsumer, EosProducer
from eos_client.observe import CommitRefused
from eos_client.testing import SimulatedCluster
from tests.support.code_blocks import REPOSITORY, code_blocks

HOW_TO = REPOSITORY / "docs" / "how-to"
MIGRATE, EVENTS = HOW_TO / "migrate.md", REPOSITORY / "docs" / "reference" / "events.md"


def run(page: Path, number: int = 0, **names: Any) -> dict[str, Any]:
    exec(compile(code_blocks(page, "python")[number].code, str(page), "exec"), names)
    return names


@pytest.fixture
def cluster() -> SimulatedCluster:
    cluster = SimulatedCluster(seed=4)
    cluster.create_topic("orders", partitions=2)
    cluster.create_topic("invoices")
    cluster.write("orders", [b"1", b"2", b"3"])
    return cluster


@pytest.mark.parametrize("number", [0, 1], ids=["before", "after"])
def test_the_loop_before_and_after_the_migration_does_the_same_job(
    number: int, cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confluent_kafka, "Consumer", cluster.consumer)
    monkeypatch.setattr(confluent_kafka, "Producer", cluster.producer)
    for name, wrapper, factory in (
        ("EosConsumer", EosConsumer, cluster.consumer),
        ("EosProducer", EosProducer, cluster.producer),
    ):
        monkeypatch.setattr(eos_client, name, partial(wrapper, factory=factory, clock=cluster.clock))
    turns = mock.MagicMock()
    turns.__bool__.side_effect = [True] * 50 + [False]
    run(MIGRATE, number, running=turns, price=lambda order: b"invoice " + order)
    assert sorted(cluster.values("invoices")) == [b"invoice 1", b"invoice 2", b"invoice 3"]


def test_the_batch_job_ends_by_itself(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eos_client, "ExactlyOnceLoop", partial(eos_client.ExactlyOnceLoop, clients=cluster))
    run(HOW_TO / "batch-jobs.md", price=lambda record: [record.value()])
    assert sorted(cluster.values("invoices")) == [b"1", b"2", b"3"]


def test_the_tuned_loop_runs(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eos_client, "ExactlyOnceLoop", partial(eos_client.ExactlyOnceLoop, clients=cluster))
    loop = run(HOW_TO / "tune.md")["loop"]
    cluster.after(10, loop.stop)
    loop.run()
    assert sorted(cluster.values("invoices")) == [b"1", b"2", b"3"]


def test_the_loop_of_several_topics_reads_names_and_patterns(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("bookings", "refunds", "orders-north", "orders-south"):
        cluster.create_topic(topic)
        cluster.write(topic, [topic.encode()] if topic != "bookings" else [])
    monkeypatch.setattr(eos_client, "ExactlyOnceLoop", partial(eos_client.ExactlyOnceLoop, clients=cluster))
    loop = run(HOW_TO / "several-topics.md")["loop"]
    cluster.after(10, loop.stop)
    loop.run()
    assert sorted(cluster.values("bookings")) == [b"-refunds", b"orders-north", b"orders-south"]


def test_the_settings_for_new_brokers_are_accepted() -> None:
    config = run(HOW_TO / "upgrade-brokers.md")["config"]
    assert config.consumer_config()["group.protocol"] == "consumer"
    confluent_kafka.Consumer(config.consumer_config()).close()


@pytest.mark.parametrize("setting", ["partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"])
def test_the_settings_of_the_old_protocol_are_refused_beside_the_new_one(setting: str) -> None:
    config = run(HOW_TO / "upgrade-brokers.md")["config"]
    value = {"partition.assignment.strategy": "range"}.get(setting, "6000")
    with pytest.raises(confluent_kafka.KafkaException, match=setting):
        confluent_kafka.Consumer(config.consumer_config() | {setting: value})


def test_the_hook_of_the_events_page_pages_somebody() -> None:
    paged: list[str] = []
    hook = run(EVENTS, page_somebody=paged.append)["hook"]
    hook(CommitRefused(partitions=frozenset(), rule=None, reason="the group has moved on"))
    assert paged == ["the group has moved on"]


def test_the_first_sink_of_the_spark_page_is_checked_and_writes_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    spark = importlib.import_module("eos_client.integration.spark")
    checked: list[str] = []
    monkeypatch.setattr(spark.EosKafkaSink, "check", lambda sink: checked.append(sink.settings.sink_id))
    frame = mock.MagicMock()
    sink = run(HOW_TO / "spark-sink.md", frame=frame)["sink"]
    assert (checked, sink.settings.slots) == (["receipts"], 4)
    frame.writeStream.foreachBatch.assert_called_once_with(sink)


def test_the_sink_of_the_page_on_tables_is_checked_and_writes_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    spark = importlib.import_module("eos_client.integration.spark")
    checked: list[str] = []
    monkeypatch.setattr(spark.EosDatabaseSink, "check", lambda sink: checked.append(sink.settings.sink_id))
    frame = mock.MagicMock()
    sink = run(HOW_TO / "spark-database.md", frame=frame)["sink"]
    assert (checked, sink.settings.key, sink.settings.order_by) == (["bookings"], ("customer",), ("offset",))
    frame.writeStream.foreachBatch.assert_called_once_with(sink)


def test_the_sink_of_the_spark_page_is_closed_after_its_query() -> None:
    query = mock.MagicMock()
    numbers, sink = mock.MagicMock(), mock.MagicMock()
    started = numbers.writeStream.foreachBatch.return_value.option.return_value.trigger.return_value.start
    started.return_value = query
    query.awaitTermination.side_effect = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        run(HOW_TO / "spark-sink.md", 1, numbers=numbers, sink=sink, path="/somewhere")
    numbers.writeStream.foreachBatch.assert_called_once_with(sink)
    query.stop.assert_called_once_with()
    sink.close.assert_called_once_with()
