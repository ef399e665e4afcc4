"""A partition with an error of its own stands in for confluent_kafka's, which cannot be given one."""

import pytest
from confluent_kafka import KafkaError, TopicPartition

from eos_client.testing.simulator.brokers.model import PartitionKey
from eos_client.testing.simulator.clients.topic_partitions import topic_partition_of

KEY = PartitionKey("in", 1)
BROKEN = topic_partition_of(KEY, 3, "note", KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
PLAIN = TopicPartition("in", 1, 8)


def test_a_topic_partition_without_an_error_is_the_librarys_own_class():
    assert type(topic_partition_of(KEY, 3)) is TopicPartition
    assert (topic_partition_of(KEY, 3, "note").metadata, topic_partition_of(KEY, 3).metadata) == ("note", None)


def test_a_topic_partition_with_an_error_keeps_every_other_field():
    assert isinstance(BROKEN, TopicPartition)
    assert (BROKEN.topic, BROKEN.partition, BROKEN.offset, BROKEN.metadata) == ("in", 1, 3, "note")
    assert BROKEN.error is not None
    assert BROKEN.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(("left", "right"), [(BROKEN, PLAIN), (PLAIN, BROKEN)])
def test_a_topic_partition_with_an_error_equals_the_librarys(left, right):
    assert (left == right, left != right, left <= right, left >= right) == (True, False, True, True)
    assert hash(left) == hash(right)


def test_topic_partitions_with_errors_sort_with_the_librarys():
    others = [TopicPartition("in", 2), TopicPartition("in", 0)]
    assert [each.partition for each in sorted([BROKEN, *others])] == [0, 1, 2]
    after, _ = others
    assert (after > BROKEN, after < BROKEN) == (True, False)
    assert BROKEN != "in"
