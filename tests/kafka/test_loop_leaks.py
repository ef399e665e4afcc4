"""What a loop opened is closed with it: threads of Python and of the client library, sockets and files."""

import gc
import threading

import pytest

from eos_client import EosConfig, ExactlyOnceLoop
from eos_client.errors import ClusterUnavailableError, ConfigurationError
from tests.kafka.loop_support import EventLog, Job
from tests.kafka.own_process import OWN, handles, threads
from tests.support.waiting import wait_for

# The tests' own clients open and close connections as they like; one leaked loop leaves at least four threads.
SLACK = 3
pytestmark = pytest.mark.skipif(not (OWN / "task").exists(), reason="counts threads and handles by /proc")


class Opened:
    """What is open now; `await_closed` waits until there is no more than that again."""

    def __init__(self):
        gc.collect()
        self._threads, self._handles = threads(), handles()
        self._known = set(threading.enumerate())

    def await_closed(self):
        wait_for(
            self._is_closed,
            f"no more than {self._threads} threads and {self._handles} handles",
            timeout_s=30,
        )

    def _is_closed(self):
        gc.collect()  # the tests' own admin clients end with their last reference
        ours = [t for t in set(threading.enumerate()) - self._known if t.name.startswith("eos-")]
        return not ours and threads() <= self._threads + SLACK and handles() <= self._handles + SLACK


def work_once(job):
    running = job.start()
    job.await_committed()
    running.stop()
    wait_for(lambda: job.members() == 0, "the group to be empty, long before a session ends", timeout_s=20)


def test_loops_that_worked_leave_no_thread_and_no_connection(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(40)
        work_once(job)  # after which the test's own clients have all the connections that they will ever have
        opened = Opened()
        for _ in range(3):
            work_once(job)
        opened.await_closed()


def test_a_loop_that_failed_leaves_no_thread_and_no_connection(kafka_broker):
    with Job(kafka_broker) as job:
        job.load(4)
        assert job.start(lambda record: 1 / 0).ended() is not None
        opened = Opened()
        for _ in range(3):
            assert job.start(lambda record: 1 / 0).ended() is not None
        opened.await_closed()


def test_loops_that_were_never_run_leave_nothing():
    config = EosConfig({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, group_id="nobody")
    opened = Opened()
    for _ in range(3):
        with ExactlyOnceLoop(config, ["in"], lambda record: None, hook=EventLog()):
            pass
    opened.await_closed()


def test_a_loop_that_found_no_cluster_leaves_nothing():
    config = EosConfig({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, group_id="nobody", start_timeout_s=1)
    opened = Opened()
    with pytest.raises(ClusterUnavailableError):
        ExactlyOnceLoop(config, ["in"], lambda record: None, hook=EventLog()).run()
    opened.await_closed()


def test_a_loop_whose_producer_is_refused_leaves_no_consumer():
    config = EosConfig(
        {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, group_id="nobody", producer={"no.such.property": 1}
    )
    opened = Opened()
    with pytest.raises(ConfigurationError):
        ExactlyOnceLoop(config, ["in"], lambda record: None, hook=EventLog())
    opened.await_closed()
