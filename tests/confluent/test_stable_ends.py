"""The last stable offsets are read from librdkafka's statistics, which the application gets all the same."""

import json

from confluent_kafka import Consumer

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent.call_marks import CallMarks
from eos_client.confluent.consumer.library_consumer import LibraryConsumer
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

SETTINGS = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "auto.offset.reset": "earliest",
    "statistics.interval.ms": 20,
    "log_level": 0,
}


def test_what_the_statistics_tell_is_taken_once_without_partitions_of_which_nothing_is_known():
    library = LibraryConsumer(SETTINGS, lambda settings: settings["stats_cb"], MONOTONIC_CLOCK, CallMarks())
    assert library.take_stable_ends() is None
    library.raw(TOLD)
    assert library.take_stable_ends() == {InputPartition("orders", 0): 7}
    assert library.take_stable_ends() is None


def test_the_statistics_of_the_real_library_can_be_read():
    library = LibraryConsumer(SETTINGS, Consumer, MONOTONIC_CLOCK, CallMarks())
    library.raw.subscribe(["orders"])
    assert wait_for(lambda: library.take_stable_ends() == {}, "statistics", lambda: library.raw.poll(0.05))
    library.raw.close()
