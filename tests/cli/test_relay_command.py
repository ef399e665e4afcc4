"""``eos-client relay`` on a real broker, with an SQLite file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import MetaData, create_engine, select

from eos_client import OutputRecord
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.admin.topic_records import read_topic
from eos_client.integration.sql import outbox_table, write_outbox

RELAY = ["relay", "--bootstrap", "127.0.0.1:1", "--group", "g", "--outbox", "outbox"]


def test_a_database_that_is_none_is_named(eos_client: Any) -> None:
    command = eos_client(*RELAY, "--database", "orders")
    assert command.wait() == 2
    assert "--database: this is no URL" in command.err


def test_an_outbox_that_is_missing_is_named(eos_client: Any, tmp_path: Path) -> None:
    command = eos_client(*RELAY, "--database", f"sqlite:///{tmp_path / 'shop.db'}")
    assert command.wait() == 6
    assert "the database has no table 'outbox'" in command.err


def test_rows_are_published_and_deleted_under_kills(eos_client: Any, kafka_broker: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    engine, table = create_engine(url), outbox_table("outbox", MetaData())
    bootstrap = kafka_broker.bootstrap_servers
    with ClusterAdmin(bootstrap) as admin:
        admin.create_topics({"relayed": 1})
    relay = [
        *("relay", "--bootstrap", bootstrap, "--group", "relay-command", "--outbox", "outbox"),
        *("--database", url, "--to", "relayed", "--buckets", "2", "--create"),
        *("--config", "session.timeout.ms=6000", "--config", "transaction.timeout.ms=15000"),
    ]
    first = eos_client(*relay, "--log-format", "json")
    first.wait_for_event("partitions_assigned")
    values = [b"row-%d" % number for number in range(300)]
    for begin in range(0, 300, 50):
        with engine.begin() as connection:
            rows = [OutputRecord(key=b"one key", value=value) for value in values[begin : begin + 50]]
            write_outbox(connection, table, rows)
        if begin == 150:
            first.process.kill()
    last = eos_client(*relay, "--until-end")
    assert last.wait() == 0
    with ClusterAdmin(bootstrap) as admin:
        ends = admin.end_offsets("relayed", 1)
    assert [record.value for record in read_topic(bootstrap, "relayed", ends)] == values
    with engine.connect() as connection:
        assert connection.execute(select(table.c.id)).all() == []
