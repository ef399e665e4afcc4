"""What docs/how-to/replay.md shows moves a group back by time, and past a record, on a real broker."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from eos_client.errors import TransformError
from eos_client.observe import PartitionsAssigned
from tests.kafka.loop_support import ANSWER_S, Job
from tests.support.code_blocks import REPOSITORY, code_blocks
from tests.support.waiting import wait_for

PAGE = REPOSITORY / "docs" / "how-to" / "replay.md"
PROGRAM, THE_DAY, IN_THE_TRANSFORM, PAST_IT = (block.code for block in code_blocks(PAGE, "python"))
PARTITION = 2
FAILS = 1


def load(job: Job, count: int, **options: Any) -> None:
    producer = Producer({"bootstrap.servers": job.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(job.source, b"%d" % number, partition=PARTITION, **options)
    assert producer.flush(ANSWER_S) == 0
    job.loaded += count


def shown(job: Job, *blocks: str, **names: Any) -> dict[str, Any]:
    """Run blocks of the page for this job: its cluster, its topic and group, the place of its record that fails."""
    changes = {
        "localhost:9092": job.bootstrap,
        '"orders"': repr(job.source),
        '"billing"': repr(job.group),
        "1017": str(FAILS),
        "1018": str(FAILS + 1),
    }
    for block in blocks:
        for word, ours in changes.items():
            block = block.replace(word, ours)  # noqa: PLW2901
        exec(compile(block, str(PAGE), "exec"), names)
    return names


def price(record: Any) -> list[bytes]:
    if record.offset() == FAILS:
        raise ValueError(record.value())
    return [record.value()]


def test_a_day_is_processed_again_and_not_while_a_worker_runs(kafka_broker):
    day = datetime.now(timezone.utc) - timedelta(days=1)  # what is older than a week may be deleted
    the_day = THE_DAY.replace("datetime(2026, 3, 1, tzinfo=timezone.utc)", f"datetime.fromisoformat({str(day)!r})")
    assert the_day != THE_DAY
    since_ms = int(day.timestamp() * 1000)
    with Job(kafka_broker) as job:
        load(job, 3, timestamp=since_ms - 1)
        load(job, 2, timestamp=since_ms)
        running = job.start()
        running.events.wait_for(PartitionsAssigned)
        job.await_committed()
        with pytest.raises(KafkaException):
            shown(job, PROGRAM, the_day)
        running.stop()
        shown(job, PROGRAM, the_day)
        assert job.offsets() == {0: 0, 1: 0, PARTITION: 3, 3: 0}
        again = job.start()
        job.await_committed()
        again.stop()
        assert job.values() == sorted([b"0", b"1", b"2"] + 2 * [b"0", b"1"])


@pytest.mark.parametrize("way", ["the transform", "the offsets"])
def test_a_record_that_fails_is_passed_over_by(way, kafka_broker):
    with Job(kafka_broker) as job:
        load(job, 3)
        error = job.start(price, max_records=1).ended()
        assert isinstance(error, TransformError)
        assert (error.topic, error.partition, error.offset) == (job.source, PARTITION, FAILS)
        assert job.offsets()[PARTITION] == FAILS
        transform = price
        if way == "the transform":
            transform = shown(job, IN_THE_TRANSFORM, price=price)["price_others"]
        else:
            shown(job, PROGRAM, PAST_IT)
        running = job.start(transform)
        wait_for(lambda: job.committed() == job.loaded, "the others are processed")
        running.stop()
        assert job.values() == [b"0", b"2"]
