"""All brokers gone in the middle of a transaction: the calls come back when the brokers do."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from eos_client import Outcome
from eos_client.core.model import ProducerLimits
from eos_client.errors import AbortableError, ClusterUnavailableError, RebuildProducerError
from tests.kafka.kafka_support import Stage
from tests.support.waiting import wait_for
from tests.verification.conclusive import conclusive

PATIENT = ProducerLimits(commit_timeout_s=25.0, start_timeout_s=20.0, recovery_timeout_s=30.0)
IMPATIENT = ProducerLimits(commit_timeout_s=1.0, start_timeout_s=20.0, recovery_timeout_s=0.5)
TRIES_MAX = 3


def thread_states(pid):
    """The state of each thread of a process, by its letter in /proc."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            yield (thread / "stat").read_text().rpartition(") ")[2][0]


@contextlib.contextmanager
def standing_still(broker):
    """A broker that answers nobody, and keeps what it is sent."""
    if getattr(broker, "pid", None) is None:
        pytest.skip("only a broker that is a process here can be stopped")
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        wait_for(lambda: set(thread_states(broker.pid)) == {"T"}, "every thread of the broker to stand still")
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def test_no_call_outlives_an_outage_of_all_brokers(brokers):
    def story(broker):
        with Stage(broker.bootstrap_servers) as stage:
            written = stage.load(4)
            producer, consumer = stage.producer(limits=PATIENT), stage.subscribed()
            with producer.transaction(consumer) as txn:
                for message in stage.collect(consumer, 8):
                    txn.produce(stage.sink, message.value())
                assert producer.flush(20) == 0
                broker.restart()
            outcomes = [txn.outcome]
            while outcomes[-1] is not Outcome.COMMITTED:
                with producer.transaction(consumer) as txn:
                    for message in stage.collect(consumer, 8):
                        txn.produce(stage.sink, message.value())
                outcomes.append(txn.outcome)
            assert sorted(stage.outputs()) == sorted(written)
            return [event for event in stage.named("producer_rebuilt") if "did not return" in event.reason]

    # Rarely librdkafka misses that the coordinator is back (librdkafka#3013), and our limit ends its call.
    for _ in range(TRIES_MAX):
        if not (ended_by_us := conclusive(story, brokers.mortal)):
            break
    assert not ended_by_us


def write(producer, topic, value):
    producer.begin_transaction()
    producer.produce(topic, value)
    producer.commit_transaction()


def write_at_last(producer, topic, value):
    """A broker that has just been awakened may be busy: what it does not take in time is aborted and written again."""

    def is_written():
        try:
            write(producer, topic, value)
        except (AbortableError, RebuildProducerError):
            producer.adapter.rebuild()
            return False
        return True

    wait_for(is_written, f"{value!r} to be committed")


@pytest.mark.soak
def test_a_producer_goes_on_after_a_recovery_that_got_no_answer_in_time(kafka_broker):
    with Stage(kafka_broker.bootstrap_servers) as stage:
        producer = stage.producer(limits=PATIENT, transactional_id=stage.group)
        write(producer, stage.sink, b"1")
        producer.begin_transaction()
        producer.produce(stage.sink, b"aborted")
        assert producer.flush(20) == 0
        producer.limits = IMPATIENT
        with standing_still(kafka_broker):
            with pytest.raises(RebuildProducerError):
                producer.abort_transaction()
            with pytest.raises(ClusterUnavailableError):
                producer.adapter.rebuild()
            with pytest.raises(RebuildProducerError, match="not registered"):
                producer.begin_transaction()
        producer.limits = PATIENT
        producer.adapter.rebuild()
        write_at_last(producer, stage.sink, b"2")
        assert stage.outputs() == ["1", "2"]
