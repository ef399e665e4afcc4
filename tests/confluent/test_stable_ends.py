"""The last stable offsets are read from librdkafka's statistics, which the application gets all the same."""

import json

from confluent_kafka import Consumer

from eos_client.confluent.consumer.stable_ends import StableEnds
from eos_client.confluent.statistics import with_statistics_heard
from eos_client.core.model import InputPartition
from tests.support.waiting import wait_for

TOLD = json.dumps(
    {
        "topics": {
            "orders": {
                "partitions": {
                    "0": {"ls_offset": 7, "hi_offset": 9},
                    "1": {"ls_offset": -1001, "hi_offset": 9},
                    "-1": {"ls_offset": -1001, "hi_offset": -1001},
                }
            }
        }
    }
)


def test_what_the_statistics_tell_is_taken_once_without_partitions_of_which_nothing_is_known():
    ends = StableEnds()
    assert ends.take() is None
    ends.hear(json.loads(TOLD))
    assert ends.take() == {InputPartition("orders", 0): 7}
    assert ends.take() is None


def test_the_statistics_of_the_real_library_can_be_read():
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "statistics.interval.ms": 20, "log_level": 0}
    ends = StableEnds()
    consumer = Consumer(with_statistics_heard(settings, ends.hear))
    consumer.subscribe(["orders"])
    assert wait_for(lambda: ends.take() == {}, "statistics", lambda: consumer.poll(0.05))
    consumer.close()
