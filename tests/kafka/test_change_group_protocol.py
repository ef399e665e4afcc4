"""docs/how-to/change-group-protocol.md: which assignors a group can change between while it works, and which not."""

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException

from eos_client.errors import ClusterUnfitError
from tests.kafka.loop_support import Job
from tests.support.waiting import wait_for

SETTING = "partition.assignment.strategy"


@pytest.mark.parametrize("eager", ["range", "roundrobin"])
def test_the_client_library_takes_no_list_of_eager_and_cooperative_assignors(eager: str) -> None:
    with pytest.raises(KafkaException, match="must have the same protocol type"):
        Consumer({"group.id": "billing", SETTING: f"cooperative-sticky,{eager}"})


@pytest.mark.soak
@pytest.mark.kafka
def test_two_rolling_updates_change_between_eager_assignors(kafka_broker: Any) -> None:
    with Job(kafka_broker) as job:

        def works(what: str) -> None:
            job.load(4)
            wait_for(lambda: job.committed() >= job.loaded, what)

        old = job.start(kafka={SETTING: "range"})
        works("a group that has range alone")
        both = job.start(kafka={SETTING: "roundrobin,range"})
        works("a group whose members share range")
        old.stop()
        new = job.start(kafka={SETTING: "roundrobin"})
        works("a group whose members share roundrobin")
        assert isinstance(job.start(kafka={SETTING: "range"}).ended(), ClusterUnfitError)
        both.stop()
        works("a group that has roundrobin alone")
        assert new.error is None
        new.stop()
