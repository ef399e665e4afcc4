"""SIGTERM: finish or abort, leave the group, return; a second one ends the process at once."""

import signal
import time
from typing import Any

import pytest

from tests.kafka.loop_support import ONE_PROTOCOL, EventLog, Job
from tests.support.waiting import wait_for


@ONE_PROTOCOL
def test_sigterm_finishes_what_is_open_leaves_the_group_at_once_and_run_returns(kafka_broker, protocol):
    with Job(kafka_broker) as job:
        job.load(500)
        process = job.start_process(kafka=protocol, commit_interval_s=60)
        wait_for(lambda: job.written() >= 500, "its transaction is open")
        assert job.committed() == 0
        process.signal(signal.SIGTERM)
        assert process.ended() == 0
        assert process.of("returned") == [{"said": "returned", "records_in": 500}]
        assert process.of("loop_stopped")[0]["reason"] == "SIGTERM"
        # A member that only went away would stay for the session timeout: 45 s.
        wait_for(lambda: job.members() == 0, "the group is empty", timeout_s=20)
        job.assert_exactly_once()


def test_leaving_the_block_while_another_thread_runs_the_loop_ends_its_transaction_and_its_membership(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(50)
        events = EventLog()
        with job.loop(events=events, commit_interval_s=60) as loop:
            running = job.start_loop(loop, events)
            wait_for(lambda: job.written() >= 50, "its transaction is open")
        assert not running.running or running.ended() is None
        assert running.error is None
        job.await_settled(timeout_s=20)  # left to its time-out, it would be open for more than a minute
        wait_for(lambda: job.members() == 0, "the group is empty", timeout_s=20)
        job.await_committed()
        job.assert_exactly_once()


@pytest.mark.soak
def test_sigint_stops_like_sigterm(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(50)
        process = job.start_process()
        job.await_committed()
        process.signal(signal.SIGINT)
        assert process.ended() == 0
        job.assert_exactly_once()


def test_sigterm_in_the_middle_of_a_backlog_loses_and_doubles_nothing(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(4000)  # twenty seconds of work
        process = job.start_process("slow")
        wait_for(job.committed, "it is in the middle of its work")
        process.signal(signal.SIGTERM)
        assert process.ended() == 0
        assert 0 < job.committed() < 4000
        running = job.start()
        job.await_committed()
        running.stop()
        job.assert_exactly_once()


def test_a_second_sigterm_is_immediate_even_while_the_transform_is_stuck(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(1)
        process = job.start_process("stuck")
        process.wait_for("stuck")
        process.signal(signal.SIGTERM)
        process.wait_for("stopping")
        assert process.running, "the first signal waits for the transform"
        process.signal(signal.SIGTERM)
        assert process.ended() == -signal.SIGTERM


def test_a_killed_loop_with_a_pinned_id_leaves_no_transaction_that_its_successor_does_not_end_at_once(kafka_broker):
    with Job(kafka_broker) as job:
        job.hasten_rebalances()
        job.load(100)
        pinned = {
            "transactional_id": f"pinned-{job.group}",
            "producer": {"transaction.timeout.ms": 120_000},
        }
        soon_dead = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 200}
        process = job.start_process(commit_interval_s=60, kafka=soon_dead, **pinned)
        # A process that was starved for a second may have lost its session, and begins anew.
        wait_for(lambda: job.written() >= 100 and not job.is_settled(), "its transaction is open")
        process.signal(signal.SIGKILL)
        process.ended()
        assert not job.is_settled()
        began_at = time.monotonic()
        successor = job.start(**pinned)
        job.await_committed()
        job.await_settled()
        assert time.monotonic() - began_at < 60
        successor.stop()
        job.assert_exactly_once()


class AssignedWhileClosing:
    """A consumer to which an assignment comes while it closes: librdkafka has no group metadata any more then."""

    def __init__(self, raw):
        self._raw = raw
        self._on_assign: Any = None
        self.assigned = False

    def __getattr__(self, name):
        return getattr(self._raw, name)

    def subscribe(self, topics, on_assign, **callbacks):
        self._on_assign = on_assign
        self._raw.subscribe(topics, on_assign=on_assign, **callbacks)

    def consumer_group_metadata(self):
        if self.assigned:
            raise RuntimeError("Consumer group metadata not available")
        return self._raw.consumer_group_metadata()

    def close(self):
        self.assigned = True
        self._on_assign(self._raw, [])
        self._raw.close()


def test_an_assignment_that_comes_while_the_loop_leaves_the_group_is_no_error(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(4)
        events = EventLog()
        loop = job.loop(events=events)
        loop._consumer._library.raw = consumer = AssignedWhileClosing(loop._consumer._library.raw)
        running = job.start_loop(loop, events)
        job.await_committed()
        running.stop()
        assert consumer.assigned
        job.assert_exactly_once()
