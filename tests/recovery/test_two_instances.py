"""Two live loops under one transactional.id: one goes on, the other stops and says why; they never take turns."""

import threading
import time

import pytest

from eos_client.errors import ProducerFencedError
from eos_client.observe import LoopStarted, PartitionsAssigned, ProducerRebuilt, TransactionCommitted
from tests.kafka.loop_support import KIP_848, EventLog, Job, copy, is_open_soon
from tests.recovery.forced_support import await_state, coordinator
from tests.support.interception import Intercepted
from tests.support.waiting import wait_for

COMMITS_AFTERWARDS = 10
GATE_S = 120.0
STALL_AT = 10


@pytest.fixture
def job(kafka_broker):
    with Job(kafka_broker) as made:
        made.hasten_rebalances()
        yield made


@pytest.fixture
def line(kafka_broker):
    with coordinator(kafka_broker) as made:
        yield made


class Door:
    """Somebody comes to it and waits until it is opened; afterwards it stays open."""

    def __init__(self):
        self.reached = threading.Event()
        self._opened = threading.Event()

    def pass_through(self):
        self.reached.set()
        assert self._opened.wait(GATE_S), "nobody opened the door"

    def open(self):
        self._opened.set()


class Stall:
    """Counts records; at the tenth it waits at the door, in a transaction that the broker has seen.

    At one of those after it, where a commit has just come before the tenth.
    """

    def __init__(self, job):
        self.records = 0
        self.is_over = False
        self.door = Door()
        self._job = job

    def count(self):
        self.records += 1
        if self.records >= STALL_AT and not self.is_over and is_open_soon(self._job):
            self.is_over = True
            self.door.pass_through()


class Pair:
    """Two loops of one job under one id, started one after the other."""

    def __init__(self, job, line):
        self.job = job
        self.line = line
        self.pinned = f"pinned-{job.group}"
        self._fed = 0

    def start(self, transform=copy, *, commit=None, **options):
        """Start a loop under the id; `commit` replaces its raw client's `commit_transaction`."""
        events = EventLog()
        settings = {
            "transactional_id": self.pinned,
            "commit_timeout_s": 10.0,
            "hold_limit_s": 2.0,
            "kafka": KIP_848,
            **options,
        }
        loop = self.job.loop(transform, events=events, **settings)
        if commit is not None:
            library = loop._producer.adapter.library
            library.raw = Intercepted(library.raw, {"commit_transaction": commit})
        running = self.job.start_loop(loop, events)
        events.wait_for(LoopStarted)
        return running

    def identity(self):
        view = self.line.transaction(self.pinned)
        assert view is not None
        return view.identity

    def assert_the_newer_goes_on(self, older, newer):
        self.assert_one_goes_on(older, newer)
        assert not newer.events.of(ProducerRebuilt)

    def assert_one_goes_on(self, stopped, remaining):
        """One has stopped with the right words; the other commits on and on, and nobody initialises again."""
        error = stopped.ended()
        assert isinstance(error, ProducerFencedError), repr(error)
        assert repr(self.pinned) in str(error)
        assert "a newer instance has this transactional.id" in str(error)
        assert "Stop this instance, or give each running instance a transactional.id of its own" in str(error)
        self.await_all_committed(remaining)
        identity = self.identity()
        committed = len(remaining.events.of(TransactionCommitted))
        for number in range(COMMITS_AFTERWARDS):
            self.job.load(4, first_partition=number)
            remaining.events.wait_for(TransactionCommitted, committed + number + 1)
        self.await_all_committed(remaining)
        assert self.identity() == identity, "somebody has initialised the transactional.id again"
        assert remaining.running
        assert [len(each.events.of(LoopStarted)) for each in (stopped, remaining)] == [1, 1]
        remaining.stop()
        self.job.assert_exactly_once()

    def await_all_committed(self, remaining):
        def done():
            assert remaining.running, f"it has stopped, too: {remaining.error!r}"
            return self.job.committed() == self.job.loaded

        wait_for(done, "all inputs committed")


@pytest.fixture
def pair(job, line):
    return Pair(job, line)


def test_an_idle_older_loop_stops_at_its_next_record(pair):
    older = pair.start()
    pair.job.load(20)
    pair.job.await_committed()
    await_state(pair.line, pair.pinned, "CompleteCommit")
    newer = pair.start()
    assert older.running
    newer.events.wait_for(PartitionsAssigned)
    pair.job.load(20)
    assert not older.events.of(ProducerRebuilt)
    pair.assert_the_newer_goes_on(older, newer)


def test_of_two_busy_loops_one_goes_on(pair):
    """Both are fed all the time, so that the takeover may meet any call.

    The older one takes the id back where it has to look up a commit: a commit that meets the newer one's
    ``init_transactions`` in the coordinator is answered with UNKNOWN (4.3.1, PREPARE_EPOCH_FENCE is pending).
    """
    older = pair.start()
    feeding = threading.Event()

    def feed():
        while not feeding.wait(0.01):
            pair.job.load(8)

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    try:
        older.events.wait_for(TransactionCommitted, 5)
        newer = pair.start()
        wait_for(lambda: not (older.running and newer.running), "one of the two to stop")
        stopped, remaining = (newer, older) if older.running else (older, newer)
        remaining.events.wait_for(TransactionCommitted, len(remaining.events.of(TransactionCommitted)) + 5)
    finally:
        feeding.set()
        feeder.join(GATE_S)
    assert remaining is newer or older.events.of(ProducerRebuilt)
    pair.assert_one_goes_on(stopped, remaining)


@pytest.mark.parametrize(
    "writes", [pytest.param(True, id="output"), pytest.param(False, id="poll", marks=pytest.mark.soak)]
)
def test_an_older_loop_in_mid_transaction_learns_it_from_its_next(pair, writes):
    """Its partition is in the transaction already: not the coordinator refuses the old epoch, but the leader."""
    stall = Stall(pair.job)

    def busy_after_the_stall(record):
        is_over = stall.is_over
        stall.count()
        if stall.is_over and stall.records < 100:
            time.sleep(0.01)  # work goes on while the leader's answer is on its way
        return [record.value()] if writes or not is_over else []

    pair.job.load(100)
    older = pair.start(busy_after_the_stall, commit_interval_s=10.0)
    assert stall.door.reached.wait(GATE_S)
    newer = pair.start()
    stall.door.open()
    pair.assert_the_newer_goes_on(older, newer)


def test_an_older_loop_at_its_commit_learns_it_from_the_commit(pair):
    door = Door()

    def late_commit(raw, *arguments):
        door.pass_through()
        raw.commit_transaction(*arguments)

    older = pair.start(commit=late_commit)
    pair.job.load(20)
    assert door.reached.wait(GATE_S)
    newer = pair.start()
    door.open()
    pair.assert_the_newer_goes_on(older, newer)
    assert "commit_transaction of transactional.id" in str(older.error)


def test_an_older_loop_that_stood_still_beyond_its_transactions_time_out_takes_the_id_back_and_one_goes_on(pair):
    """The broker tells "timed out" and "fenced" with one error; whichever it was, they do not take turns."""
    stall = Stall(pair.job)

    def stalling(record):
        stall.count()
        return [record.value()]

    short = {"producer": {"transaction.timeout.ms": 6000}, "commit_timeout_s": 4.0, "hold_limit_s": 0.3}
    pair.job.load(20)
    older = pair.start(stalling, commit_interval_s=1.5, **short)
    assert stall.door.reached.wait(GATE_S)
    newer = pair.start(**short)
    adapter = older.loop._producer.adapter
    began_at = adapter.calls.state.transaction.began_at_s
    wait_for(
        lambda: adapter._clock() - began_at > adapter.library.transaction_timeout_s,
        "the older transaction to be older than its time-out",
    )
    stall.door.open()
    error = newer.ended()
    assert isinstance(error, ProducerFencedError), repr(error)
    pair.await_all_committed(older)
    assert len(older.events.of(ProducerRebuilt)) == 1
    older.stop()
    pair.job.assert_exactly_once()


def test_loops_with_generated_ids_live_side_by_side(job):
    loops = [job.start(kafka=KIP_848), job.start(kafka=KIP_848)]
    for running in loops:
        running.events.wait_for(LoopStarted)
        running.events.wait_for(PartitionsAssigned)
    for wanted in range(3, 3 + COMMITS_AFTERWARDS):
        job.load(16)
        for running in loops:
            running.events.wait_for(TransactionCommitted, wanted - 2)
    job.await_committed()
    assert len({running.loop._producer.transactional_id for running in loops}) == 2
    for running in loops:
        assert not running.events.of(ProducerRebuilt)
        running.stop()
    job.assert_exactly_once()
