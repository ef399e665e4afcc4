"""The example, started as its docstring says, by python alone."""

from __future__ import annotations

import json
import re
import sys
from decimal import Decimal
from pathlib import Path

import pyspark
import pytest
import sqlalchemy

from eos_client.confluent.admin.topic_records import TopicLoader
from tests.spark.rig.class_archive import java_options
from tests.spark.rig.launching import REPOSITORY, SparkProcess

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(pyspark.__version__ < "4.2", reason="it reads Kafka by Spark's connector, which is of 4.2.0"),
]

WAIT_S = 240.0


@pytest.fixture
def local(sparkless):
    return sparkless


@pytest.fixture
def example(local, tmp_path, monkeypatch):
    """A function that starts the example with these arguments, beside those that all starts share."""
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", java_options())
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)

    def start(**changes):
        given = {
            "bootstrap": local.servers,
            "input": local.topic,
            "output": local.topic,
            "checkpoint": local.checkpoint,
            "sink-id": local.sink_id,
            **changes,
        }
        options = [part for name, value in given.items() for part in (f"--{name}", value)]
        program = str(REPOSITORY / "examples" / "spark_foreach_batch.py")
        return SparkProcess([sys.executable, program, *options], tmp_path / "example.log")

    return start


def test_invoices_become_receipts_once_each(example, local):
    invoices = local.new_topic("invoices")
    with TopicLoader(local.servers, invoices, {}) as loader:
        for n in range(60):
            invoice = {"order_id": str(n), "gross": "1", "currency": "EUR"}
            loader.load(json.dumps(invoice).encode(), key=b"k%d" % n, partition=n % 3)
    with example(input=invoices) as running:
        running.until(Path(local.checkpoint, "commits", "0").exists, "a batch", WAIT_S)
        running.until(lambda: len(local.read()) == 60, "60 receipts", WAIT_S)
        assert running.exit_code() is None
    orders = {message.key(): json.loads(message.value() or b"{}")["order_id"] for message in local.read()}
    assert orders == {b"k%d" % n: str(n) for n in range(60)}


@pytest.mark.soak  # the sink is the one of test_local_database.py
def test_invoices_become_rows_once_each(local, postgres_server, tmp_path, monkeypatch):
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", java_options())
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    program = REPOSITORY / "examples" / "spark_to_database.py"
    engine, table = sqlalchemy.create_engine(postgres_server.url), f"invoices_{local.mark}"
    columns = re.findall(r"CREATE TABLE invoices (\(.*\))", program.read_text(encoding="utf-8"))[0]
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(f"CREATE TABLE {table} {columns}"))
    invoices = local.new_topic("invoices")
    with TopicLoader(local.servers, invoices, {}) as loader:
        for n in range(60):
            loader.load(json.dumps({"order_id": str(n), "gross": "1.5"}).encode(), key=b"k%d" % n, partition=n % 3)
    given = {
        "bootstrap": local.servers,
        "input": invoices,
        "database": postgres_server.url,
        "table": table,
        "checkpoint": local.checkpoint,
    }
    options = [part for name, value in given.items() for part in (f"--{name}", value)]

    def rows():
        with engine.connect() as connection:
            return connection.execute(sqlalchemy.text(f"SELECT customer, order_id, gross FROM {table}")).all()

    with SparkProcess([sys.executable, str(program), *options], tmp_path / "example.log") as running:
        running.until(Path(local.checkpoint, "commits", "0").exists, "a batch", WAIT_S)
        running.until(lambda: len(rows()) == 60, "60 rows", WAIT_S)
        assert running.exit_code() is None
    assert sorted(map(tuple, rows())) == sorted((f"k{n}", str(n), Decimal("1.50")) for n in range(60))


def test_a_broker_that_cannot_be_reached_is_named_before_spark_is_started(example, tmp_path: Path):
    with example(bootstrap="127.0.0.1:1") as failing:
        assert failing.wait(WAIT_S) == 1
    log = (tmp_path / "example.log").read_text()
    assert "ClusterUnavailableError: no broker answered at 127.0.0.1:1 within 30 s" in log
    assert "Traceback" not in log
    assert "Spark" not in log
