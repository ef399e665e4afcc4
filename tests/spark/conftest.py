"""Fixtures of the tests on real Spark in one process (``local[2]``) and a real broker."""

import os
import sys
import uuid

import pytest

from tests.spark.local_query import LocalQuery, spark_session


@pytest.fixture(scope="session")
def spark():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = spark_session()
    yield session
    session.stop()


@pytest.fixture
def local(spark, kafka_broker, tmp_path):
    """A topic, a sink id and a checkpoint of one's own on the session's Spark and broker."""
    stage = LocalQuery(spark, kafka_broker.bootstrap_servers, tmp_path, uuid.uuid4().hex[:8])
    yield stage
    stage.close()
