"""Brokers that fail and transactions that time out: the loop goes on by itself, and every record counts once."""

import signal
import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client.observe import ProducerRebuilt, TransactionCommitted
from tests.kafka.loop_support import EventLog, Job, is_open_soon
from tests.support.waiting import wait_for
from tests.verification.conclusive import conclusive
from tests.verification.topics import read_all

QUICK = {"commit_timeout_s": 1.0, "hold_limit_s": 0.5, "start_timeout_s": 30.0}


@pytest.mark.parametrize("outage_s", [4, pytest.param(0, marks=pytest.mark.soak)])
def test_goes_on_by_itself_after_the_broker_was_killed_in_mid_stream(brokers, outage_s):
    """The longer outage ends only after every call has passed its own limit."""

    def story(broker):
        with Job(broker) as job:
            job.load(2000)
            running = job.start(slowly, **QUICK)
            running.events.wait_for(TransactionCommitted, 3)
            broker.kill()
            time.sleep(outage_s)  # the length of the outage is the point
            broker.restart()
            job.load(1000)
            job.await_committed()
            running.stop()
            job.assert_exactly_once()

    conclusive(story, brokers.mortal)


def slowly(record):
    time.sleep(0.001)
    return [record.value()]


def test_a_transaction_that_the_broker_timed_out_is_done_again_by_a_rebuilt_producer(brokers):
    broker = brokers.mortal()
    for transactional_id in (None, "pinned"):
        assert_done_again_after_a_stall(broker, transactional_id)


def assert_done_again_after_a_stall(broker, transactional_id):
    with Job(broker) as job:
        stalled: list[object] = []

        def stalls_once(record):
            yield record.value()
            # A commit may have come just before this record: then the next one may find a transaction open.
            if not stalled and int(record.value()) >= 50 and is_open_soon(job):
                stalled.append(record)
                # The broker aborts on its own while we are in here: only then the stall was long enough.
                job.await_settled()

        job.load(100)
        running = job.start(
            stalls_once,
            transactional_id=transactional_id,
            commit_interval_s=0.2,
            producer={"transaction.timeout.ms": 2000},
            **QUICK,
        )
        job.await_committed()
        running.stop()
        assert stalled
        assert running.loop.counters.producer_rebuilds >= 1
        assert running.events.of(ProducerRebuilt)[0].transactional_id == running.loop._producer.transactional_id
        job.assert_exactly_once()


@pytest.mark.soak
def test_a_transform_that_always_outlives_the_open_transaction_gets_through(kafka_broker):
    """It takes as long as the broker needs to abort the transaction that is open meanwhile, if one is."""
    with Job(kafka_broker, partitions=1) as job:
        outlived, events = [], EventLog()

        def are_markers_written():
            """Whether all that the loop has committed is visible: what is open after that is not committed."""
            committed = sum(event.records_out for event in events.of(TransactionCommitted))
            return len(read_all(job.bootstrap, job.sink, job.partitions)) >= committed

        def slow(record):
            yield record.value()
            if record.value() == b"3":
                wait_for(are_markers_written, "the markers of the commits before")
                outlived.append(is_open_soon(job))
                job.await_settled()

        job.load(20)
        short = {"commit_interval_s": 0.2, "producer": {"transaction.timeout.ms": 2000}, **QUICK}
        running = job.start_loop(job.loop(slow, events=events, **short), events)
        job.await_committed()
        running.stop()
        assert outlived[-1] is False, "no transaction is open while the first record's transform runs"
        job.assert_exactly_once()


@pytest.mark.soak
def test_sigterm_while_the_broker_is_down_ends_within_the_shutdown_budget(make_kafka_broker):
    """At once, in the middle of a transaction, and later, while the producer is being rebuilt."""
    broker = make_kafka_broker()
    with Job(broker) as soon, Job(broker) as late:
        jobs = {0: soon, 5: late}
        processes = {}
        for wait_s, job in jobs.items():
            job.load(20_000)
            processes[wait_s] = job.start_process("slow", shutdown_timeout_s=3, **QUICK)
            wait_for(job.committed, "it is in the middle of its work")
        broker.kill()
        for wait_s, process in processes.items():
            time.sleep(wait_s)  # after 5 s commit and abort have failed: it waits for the broker
            process.signal(signal.SIGTERM)
            began_at = time.monotonic()
            process.ended(70)
            assert time.monotonic() - began_at < 3 + 30  # without the budget: recovery_timeout_s, 60 s
            assert process.of("loop_stopped")


class OutdatedSeeks:
    """A consumer whose first seeks meet a rebalance that is under way: librdkafka answers "outdated" then."""

    def __init__(self, raw, times):
        self._raw = raw
        self.left = times

    def __getattr__(self, name):
        return getattr(self._raw, name)

    def seek(self, partition):
        if self.left:
            self.left -= 1
            raise KafkaException(KafkaError(KafkaError._OUTDATED))
        self._raw.seek(partition)


def test_a_rewind_that_meets_a_rebalance_is_tried_again(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(20)
        events = EventLog()
        loop = job.loop(lambda record: [record.value(), b"x" * refused_once(record)], events=events, on_error="skip")
        loop._consumer._library.raw = seeks = OutdatedSeeks(loop._consumer._library.raw, 2)
        running = job.start_loop(loop, events)
        wait_for(lambda: job.committed() == 20 or not running.running, "all inputs committed")
        running.stop()
        assert seeks.left == 0


def refused_once(record):
    return 2_000_000 if record.value() == b"7" else 1
