"""What docs/how-to/blue-green.md shows hands a group's offsets over, on a real broker, and never stale ones."""

from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from eos_client.observe import PartitionsAssigned
from tests.kafka.loop_support import ANSWER_S, Job
from tests.support.code_blocks import REPOSITORY, code_blocks
from tests.support.waiting import wait_for

PAGE = REPOSITORY / "docs" / "how-to" / "blue-green.md"
OPEN_S = 5
PROGRAM, SWITCH = (block.code for block in code_blocks(PAGE, "python"))


def switch(job: Job, old: str, new: str) -> None:
    """Run the blocks of the page for these groups."""
    names: dict[str, Any] = {}
    exec(PROGRAM.replace("localhost:9092", job.bootstrap).replace("(asked, 30)", f"(asked, {OPEN_S})"), names)
    exec(SWITCH.replace("orders", job.source).replace("billing-blue", old).replace("billing-green", new), names)


def consumer_of(job: Job, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": job.bootstrap, "group.id": group, "log_level": 0})


def offsets(job: Job, group: str) -> list[int]:
    consumer = consumer_of(job, group)
    places = consumer.committed([TopicPartition(job.source, number) for number in range(job.partitions)], ANSWER_S)
    consumer.close()
    return [place.offset for place in places]


@pytest.fixture
def green() -> str:
    return f"green-{uuid4().hex[:8]}"


def test_green_goes_on_where_blue_has_stopped(kafka_broker: Any, green: str) -> None:
    with Job(kafka_broker) as job:
        job.load(20)
        blue = job.start()
        wait_for(lambda: job.committed() == 20, "blue works")
        with pytest.raises(RuntimeError, match=f"group {job.group} is STABLE: stop its workers"):
            switch(job, job.group, green)
        blue.stop()
        switch(job, job.group, green)
        assert offsets(job, green) == offsets(job, job.group)
        assert sum(offsets(job, green)) >= 20

        job.load(5)
        running = job.start(group_id=green)
        running.events.wait_for(PartitionsAssigned)
        wait_for(lambda: sum(offsets(job, green)) >= sum(offsets(job, job.group)) + 5, "green works")
        with pytest.raises(RuntimeError, match=f"group {green} is STABLE: stop its workers"):
            switch(job, job.group, green)
        running.stop()
        switch(job, green, job.group)
        assert offsets(job, job.group) == offsets(job, green)


def test_what_only_green_has_read_is_still_to_be_processed(kafka_broker: Any, green: str) -> None:
    with Job(kafka_broker) as job:
        blue, looked = consumer_of(job, job.group), consumer_of(job, green)
        blue.commit(offsets=[TopicPartition(job.source, 0, 5)], asynchronous=False)
        looked.commit(offsets=[TopicPartition(job.source, n, 7) for n in range(job.partitions)], asynchronous=False)
        blue.close()
        looked.close()
        switch(job, job.group, green)
        assert offsets(job, green) == offsets(job, job.group) == [5, *[-1001] * (job.partitions - 1)]


def test_a_group_without_offsets_of_the_topics_takes_none_from_the_other(kafka_broker: Any, green: str) -> None:
    with Job(kafka_broker) as job:
        blue, looked = consumer_of(job, job.group), consumer_of(job, green)
        blue.commit(offsets=[TopicPartition(job.sink, 0, 1)], asynchronous=False)
        looked.commit(offsets=[TopicPartition(job.source, 0, 7)], asynchronous=False)
        blue.close()
        looked.close()
        with pytest.raises(RuntimeError, match=f"group {job.group} has committed nothing of {job.source}"):
            switch(job, job.group, green)
        assert offsets(job, green)[0] == 7


def test_a_group_that_is_unknown_hands_nothing_over(kafka_broker: Any, green: str) -> None:
    with Job(kafka_broker) as job, pytest.raises((RuntimeError, KafkaException), match=r"DEAD|GROUP_ID_NOT_FOUND"):
        switch(job, f"{green}-misspelt", green)


def test_offsets_that_an_open_transaction_may_still_move_are_not_handed_over(kafka_broker: Any, green: str) -> None:
    with Job(kafka_broker) as job:
        job.load(4)
        blue = job.start()
        wait_for(lambda: job.committed() == 4, "blue works")
        blue.stop()
        producer = Producer(
            {"bootstrap.servers": job.bootstrap, "transactional.id": f"{job.group}-killed", "log_level": 0}
        )
        producer.init_transactions(ANSWER_S)
        producer.begin_transaction()
        member = consumer_of(job, job.group)
        producer.send_offsets_to_transaction(
            [TopicPartition(job.source, 0, 99)], member.consumer_group_metadata(), ANSWER_S
        )
        with pytest.raises(KafkaException, match="_TIMED_OUT"):
            switch(job, job.group, green)
        assert set(offsets(job, green)) == {-1001}
        producer.abort_transaction(ANSWER_S)
        member.close()
        switch(job, job.group, green)
        assert offsets(job, green) == offsets(job, job.group)
