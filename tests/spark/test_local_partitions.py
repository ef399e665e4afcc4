"""Where the sink places a key: where Spark's own Kafka sink does, so that a live topic can change to this one."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from tests.verification.topics import await_topics

KEYS = 200
PARTITIONS = 7
MADE = "case when id = 0 then '' else concat('key-', id) end as key"


def placed(stage, topic):
    return {message.key(): message.partition() for message in stage.read(topic)}


@pytest.fixture
def frame(spark):
    return spark.range(KEYS).selectExpr(MADE, "cast(id as string) as value")


def write_with_sparks_own(stage, frame):
    topic = stage.new_topic("own", PARTITIONS)
    await_topics(AdminClient({"bootstrap.servers": stage.servers}), {topic: PARTITIONS})
    frame.write.format("kafka").option("kafka.bootstrap.servers", stage.servers).option("topic", topic).save()
    return placed(stage, topic)


def test_each_key_goes_to_the_partition_that_sparks_own_sink_chooses(local, frame):
    topic = local.new_topic("ours", PARTITIONS)
    local.direct(topic=topic)(frame, 0)
    ours = placed(local, topic)
    assert len(ours) == KEYS
    assert ours == write_with_sparks_own(local, frame)


def test_a_partitioner_of_the_users_wins(local, frame):
    topic = local.new_topic("ours", PARTITIONS)
    local.direct(topic=topic, config={"partitioner": "consistent_random"})(frame, 0)
    by_default = local.new_topic("default", PARTITIONS)
    local.direct(topic=by_default, sink_id=f"{local.sink_id}-default")(frame, 0)
    assert len(placed(local, topic)) == len(placed(local, by_default)) == KEYS
    assert placed(local, topic) != placed(local, by_default)
