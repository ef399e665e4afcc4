"""Fixtures of the tests on real Spark in one process (``local[2]``) and a real broker."""

import os
import sys
import uuid

import pytest

from eos_client.integration.spark.worker_clients import READERS, SLOTS
from tests.spark.local_query import LocalQuery, spark_session

_PROPERTIES = {
    "auto.create.topics.enable": "false",
    # a transaction is ended as soon as its time is over
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture(scope="module")
def kafka_broker(brokers):
    """A broker that makes no topic by itself and lets no transaction outlive its time; all tests here share it."""
    return brokers.chosen(_PROPERTIES)


@pytest.fixture(scope="session")
def spark():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = spark_session()
    yield session
    session.stop()


@pytest.fixture
def sparkless(kafka_broker, tmp_path):
    """A topic, a sink id and a checkpoint of one's own on the session's broker, and no Spark in this process."""
    stage = LocalQuery(kafka_broker.bootstrap_servers, tmp_path, uuid.uuid4().hex[:8])
    yield stage
    stage.close()
    # A task that the test has run in this process keeps its clients; dozens cost as much as a test.
    for idle in (SLOTS, READERS):
        idle.close_stale(lambda *_: True)


@pytest.fixture
def local(spark, sparkless):
    """The same, on the session's Spark."""
    sparkless.spark = spark
    return sparkless
