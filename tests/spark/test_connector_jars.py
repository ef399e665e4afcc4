"""Spark's Kafka connector comes from the cache, whole, and without what Spark itself brings."""

import pytest

from eos_client.testing.spark_connector import CONNECTOR_VERSION, connector_jars

pytestmark = pytest.mark.kafka


def test_the_connector_is_four_jars_and_comes_from_the_cache_the_second_time():
    jars = connector_jars(print)
    said: list[str] = []
    assert connector_jars(said.append) == jars
    assert said == []
    assert {jar.name.rpartition("-")[0] for jar in jars} == {
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
        "kafka-clients",
        "commons-pool2",
    }
    assert any(CONNECTOR_VERSION in jar.name for jar in jars)
