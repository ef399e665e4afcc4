"""Brokers that fail and transactions that time out: the loop goes on by itself, and every record counts once."""

import signal
import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client.observe import ProducerRebuilt, TransactionCommitted
from tests.kafka.loop_support import EventLog, Job, await_true
from tests.verification.checker import BROKER_ATOMICITY_HOLE

LOG_LINES = 20_000
TRIES_MAX = 3
QUICK = {"commit_timeout_s": 1.0, "hold_limit_s": 0.5, "start_timeout_s": 5.0}


def conclusive(story, make_kafka_broker, **properties):
    """Run `story`, again where the broker itself broke atomicity (facts-kafka.md): it says so in its log."""
    for _ in range(TRIES_MAX):
        broker = make_kafka_broker(properties=properties)
        try:
            return story(broker)
        except AssertionError:
            if BROKER_ATOMICITY_HOLE not in broker.log_tail(LOG_LINES):
                raise
    return pytest.skip("the broker completed transactions without their markers in every try")


@pytest.mark.parametrize("outage_s", [0, 8], ids=["short", "long"])
def test_goes_on_by_itself_after_the_broker_was_killed_in_mid_stream(make_kafka_broker, outage_s):
    def story(broker):
        with Job(broker) as job:
            job.load(4000)
            running = job.start(slowly, **QUICK)
            running.events.wait_for(TransactionCommitted, 3)
            broker.kill()
            time.sleep(outage_s)  # the length of the outage is the point: longer than every call's own limit
            broker.restart()
            job.load(500)
            job.await_committed(timeout_s=60)
            running.stop()
            job.assert_exactly_once()

    conclusive(story, make_kafka_broker)


def slowly(record):
    time.sleep(0.001)
    return [record.value()]


@pytest.mark.parametrize("transactional_id", [None, "pinned"])
def test_a_transaction_that_the_broker_timed_out_is_done_again_by_a_rebuilt_producer(
    make_kafka_broker, transactional_id
):
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with Job(make_kafka_broker(properties=properties)) as job:
        stalled = []

        def stalls_once(record):
            yield record.value()
            if record.value() == b"50" and not stalled:
                stalled.append(record)
                # The broker aborts on its own while we are in here: only then the stall was long enough.
                await_true(lambda: not job.is_settled(), "the transaction is open at the broker")
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


def test_sigterm_while_the_broker_is_down_ends_within_the_shutdown_budget(make_kafka_broker):
    broker = make_kafka_broker()
    with Job(broker) as job:
        job.load(100_000)
        process = job.start_process("slow", shutdown_timeout_s=3, **QUICK)
        await_true(job.committed, "it is in the middle of its work")
        broker.kill()
        process.signal(signal.SIGTERM)
        began_at = time.monotonic()
        process.ended(20)
        assert time.monotonic() - began_at < 3 + 2
        assert process.of("loop_stopped")


def test_sigterm_while_the_producer_is_being_rebuilt_ends_within_the_shutdown_budget(make_kafka_broker):
    broker = make_kafka_broker()
    with Job(broker) as job:
        job.load(100_000)
        process = job.start_process("slow", shutdown_timeout_s=3, **QUICK)
        await_true(job.committed, "it is in the middle of its work")
        broker.kill()
        time.sleep(6)  # by now commit and abort have failed: it waits for the broker, for up to recovery_timeout_s
        process.signal(signal.SIGTERM)
        began_at = time.monotonic()
        process.ended(70)
        assert time.monotonic() - began_at < 3 + 2


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
        loop._consumer._raw = seeks = OutdatedSeeks(loop._consumer._raw, 2)
        running = job.start_loop(loop, events)
        await_true(lambda: job.committed() == 20 or not running.running, "all inputs committed")
        running.stop()
        assert seeks.left == 0


def refused_once(record):
    return 2_000_000 if record.value() == b"7" else 1
