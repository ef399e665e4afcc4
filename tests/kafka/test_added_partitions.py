"""Partitions that are added to an output topic while a client runs, which knows its metadata for five minutes."""

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from eos_client import EosConsumer, EosProducer, Outcome, OutputRecord
from eos_client.observe import RecordSkipped
from tests.kafka.loop_support import ANSWER_S, Job
from tests.support.waiting import WAIT_S
from tests.verification.topics import await_topics

NEW = 5


def add_partitions(job):
    """Add two partitions to the sink, and wait until it has them; returns how many it has."""
    count = job.partitions + 2
    admin = AdminClient({"bootstrap.servers": job.bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(job.sink, count)])[job.sink].result(ANSWER_S)
    await_topics(admin, {job.sink: count})
    return count


def to_the_new_one(record):
    return [OutputRecord(value=record.value(), partition=NEW if int(record.value()) >= 4 else None)]


def test_an_output_for_a_partition_that_was_added_meanwhile_is_written_and_its_record_not_skipped(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(4)
        running = job.start(to_the_new_one, on_error="skip")
        job.await_committed()
        count = add_partitions(job)
        job.load(4)
        job.await_committed()
        running.stop()
        assert running.events.of(RecordSkipped) == []
        job.partitions = count  # the sink's, which is read whole
        assert job.values() == [b"%d" % number for number in range(8)]
        assert sorted(m.value() for m in job.messages() if m.partition() == NEW) == [b"4", b"5", b"6", b"7"]


def test_a_block_writes_to_a_partition_that_was_added_meanwhile(kafka_broker):
    with Job(kafka_broker) as job:
        brokers = {"bootstrap.servers": job.bootstrap, "log_level": 0}
        consumer, producer = EosConsumer({**brokers, "group.id": job.group}), EosProducer(brokers)
        with consumer, producer:
            consumer.subscribe([job.source])
            producer.init_transactions()
            job.load(1)
            with producer.transaction(consumer) as txn:
                assert consumer.consume(1, WAIT_S)
                txn.produce(job.sink, b"1")
            count = add_partitions(job)
            job.load(1)
            with producer.transaction(consumer) as txn:
                assert consumer.consume(1, WAIT_S)
                txn.produce(job.sink, b"2", partition=NEW)
                producer.produce(job.sink, b"3", partition=NEW)
            assert txn.outcome is Outcome.COMMITTED, txn.reason
        job.partitions = count
        assert job.values() == [b"1", b"2", b"3"]


def test_an_output_for_a_partition_that_the_cluster_does_not_have_is_refused_as_by_the_client(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(8)
        running = job.start(to_the_new_one, on_error="skip")
        job.await_committed()
        running.stop()
        assert job.values() == [b"0", b"1", b"2", b"3"]
        told = {event.error for event in running.events.of(RecordSkipped)}
        assert len(running.events.of(RecordSkipped)) == 4
        assert all("cannot be written: Unable to produce message: Local: Unknown partition" in each for each in told)
