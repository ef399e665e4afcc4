"""What callbacks and signal handlers raise, on a real broker: no record is lost, doubled or out of order."""

import collections
import signal
from contextlib import suppress

import pytest
from confluent_kafka import Consumer

from eos_client import EosConsumer
from eos_client.confluent import consumer as confluent_consumer
from tests.kafka.kafka_support import wait_for
from tests.verification.protocols import GroupProtocol

EACH = 5_000


class OwnError(Exception):
    """What the application raises."""


def settings_of(stage, **more):
    return {
        "bootstrap.servers": stage.bootstrap,
        "group.id": stage.group,
        "group.protocol": "consumer" if stage.protocol is GroupProtocol.KIP_848 else "classic",
        "auto.offset.reset": "earliest",
        **more,
    }


class Reader:
    """An application that goes on after every exception; `seen` by partition."""

    def __init__(self, stage, factory=Consumer, **settings):
        self.stage = stage
        self.consumer = EosConsumer(settings_of(stage, **settings), factory=factory)
        self.consumer.subscribe([stage.source])
        self.seen = collections.defaultdict(list)
        self.raised = []
        self.is_inside = False

    def read(self):
        self.is_inside = True
        try:
            batch = self.consumer.consume(500, 0.1)
            self.is_inside = False
        except OwnError as error:
            self.is_inside = False
            self.raised.append(error)
            return
        self.take(batch)

    def take(self, batch):
        for message in batch:
            self.seen[message.partition()].append(message.offset())

    def reads_everything(self, each=EACH):
        total = self.stage.partitions * each
        wait_for(lambda: sum(map(len, self.seen.values())) >= total, "every record to be read", self.read)
        self.read()
        assert self.seen == {p: list(range(each)) for p in range(self.stage.partitions)}


@pytest.fixture
def loaded(any_stage):
    any_stage.load(EACH)
    return any_stage


def test_a_raising_stats_cb_costs_no_record_and_close_returns(loaded):
    raised: list[OwnError] = []

    def stats(_):
        raised.append(OwnError(len(raised)))
        raise raised[-1]

    reader = Reader(loaded, stats_cb=stats, **{"statistics.interval.ms": 1})
    reader.reads_everything()
    assert reader.raised
    assert all(any(error is one for one in raised) for error in reader.raised)
    reader.consumer.close()
    with pytest.raises(RuntimeError):
        reader.consumer.poll(0)


def test_a_raising_on_commit_costs_no_record_and_its_commit_counts(loaded):
    def on_commit(*_):
        raise OwnError

    reader = Reader(loaded, on_commit=on_commit)

    def read_and_commit():
        reader.read()
        if reader.seen:
            reader.consumer.commit()

    wait_for(lambda: reader.raised, "on_commit to raise", read_and_commit)
    reader.reads_everything()
    wait_for(lambda: not reader.consumer.plain.pending, "the commits to be confirmed", reader.read)
    with suppress(OwnError):  # of the commit that close() may send
        reader.consumer.close()


def test_a_signal_handler_that_raises_costs_no_record(loaded):
    def handler(*_):
        if reader.is_inside:
            raise OwnError

    reader = Reader(loaded)
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        wait_for(lambda: len(reader.raised) > 20, "the handler to raise", reader.read)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    reader.reads_everything()
    reader.consumer.close()


def test_a_callback_struck_inside_the_library_costs_no_first_record_and_close_returns(any_stage, monkeypatch):
    """The library drops the next record, uncounted, and waits for it for ever when it is closed."""
    monkeypatch.setattr(confluent_consumer, "CLOSE_LIMIT_AFTER_AN_EXCEPTION_S", 0.5)

    def struck(_):
        if written and not reader.raised:
            raise OwnError

    def unguarded(given):
        return Consumer({**given, "stats_cb": struck, "statistics.interval.ms": 1})

    written: list[str] = []
    reader = Reader(any_stage, factory=unguarded)
    wait_for(reader.consumer.assignment, "an assignment", reader.read)
    written += any_stage.load(20)  # statistics lie in front of the first record when the consumer asks again
    reader.reads_everything(each=20)
    assert len(reader.raised) == 1
    reader.consumer.close()
    # Long before a session ends; a close that took longer than its limit goes on beside us.
    wait_for(lambda: any_stage.members() == [], "the group to be empty", timeout_s=20.0)
