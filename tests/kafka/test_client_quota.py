"""A client quota of a real broker that lets fewer outputs through than a transaction holds."""

from eos_client.observe import TransactionAborted
from tests.kafka.client_quotas import limit_client
from tests.kafka.loop_support import Job

RATE = 100_000
COUNT, BODY = 1_250, b"x" * 1_000  # brokers let ten seconds' worth through at once, and then RATE bytes a second


def enlarged(record):
    return [record.value() + BODY]


def test_a_loop_under_a_client_quota_writes_its_backlog(kafka_broker):
    with Job(kafka_broker) as job:
        inputs = job.load(COUNT)
        limit_client(job.bootstrap, job.group, "producer_byte_rate", RATE)
        running = job.start(
            enlarged,
            kafka={"client.id": job.group},
            producer={"batch.size": 16_000},
            commit_interval_s=0.5,
            commit_timeout_s=1.0,
            recovery_timeout_s=20.0,
        )
        job.await_committed()
        running.stop()
        reasons = [event.reason for event in running.events.of(TransactionAborted)]
        assert any("were not acknowledged within 1 s" in reason for reason in reasons), "the quota was felt"
        assert job.values() == sorted((value + BODY for value in inputs), key=len)
