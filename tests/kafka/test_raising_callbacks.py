"""What callbacks and signal handlers raise, on a real broker: no record is lost, doubled or out of order."""

import collections
import logging
import signal
import struct
import sys
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException

from eos_client import EosConsumer, Outcome
from eos_client.confluent.consumer import safe_close
from tests.kafka.client_quotas import ask, limit_client
from tests.kafka.kafka_support import Stage
from tests.support.waiting import wait_for
from tests.verification import frames
from tests.verification.protocols import GroupProtocol

EACH = 5_000
ROUNDS = 3


class OwnError(Exception):
    """What the application raises."""


class Reader:
    """An application that goes on after every exception; `seen` by partition."""

    def __init__(self, stage, factory=Consumer, callbacks=None, **settings):
        self.stage = stage
        self.consumer = EosConsumer({**stage.consumer_settings(), **settings}, factory=factory)
        self.consumer.subscribe([stage.source], **(callbacks or {}))
        self.seen = collections.defaultdict(list)
        self.raised = []
        self.is_inside = False

    def read(self, count=500):
        self.is_inside = True
        try:
            batch = self.consumer.consume(count, 0.1)
            self.is_inside = False
        except OwnError as error:
            self.is_inside = False
            self.raised.append(error)
            return
        self.take(batch)

    def take(self, batch):
        for message in batch:
            if message.error() is None:
                self.seen[message.partition()].append(message.offset())

    def read_one_by_one(self):
        self.read(1)

    def count(self):
        return sum(map(len, self.seen.values()))

    def reads_more(self, work):
        before = self.count()
        wait_for(lambda: self.count() > before, "a record", work)

    def raises_again(self, *work):
        before = len(self.raised)
        wait_for(lambda: len(self.raised) > before, "the callback to raise", *work)

    def reads_everything(self, each=EACH):
        wait_for(lambda: self.count() >= self.stage.partitions * each, "every record to be read", self.read)
        self.read()
        assert self.seen == {p: list(range(each)) for p in range(self.stage.partitions)}


class Feed:
    """Loads a stage little by little; `each` records into every partition so far."""

    def __init__(self, stage):
        self._stage = stage
        self.each = 0

    def load(self, count=1):
        self._stage.load(count, start=self.each)
        self.each += count


def raises(*_):
    raise OwnError


@pytest.fixture
def loaded(stage):
    """Of one protocol: whichever it is, the library serves callbacks and records from the same queue."""
    stage.load(EACH)
    return stage


@pytest.fixture
def proxied_stage(proxy):
    with Stage(f"127.0.0.1:{proxy.port}") as made:
        yield made


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
    wait_for(lambda: not reader.consumer.adapter.plain.pending, "the commits to be confirmed", reader.read)
    with suppress(OwnError):  # of the commit that close() may send
        reader.consumer.close()


def test_a_signal_handler_that_raises_costs_no_record(loaded, monkeypatch):
    # One that strikes a finaliser is printed by this hook, and pytest's fails the test where another strikes the hook.
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)

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


@pytest.mark.parametrize("settings", [{}, {"group.instance.id": "desk-1"}], ids=["dynamic", "static"])
def test_a_callback_struck_inside_the_library_costs_no_first_record_and_close_returns(stage, monkeypatch, settings):
    """The library drops the next record, uncounted, and waits for it for ever when it is closed."""
    monkeypatch.setattr(safe_close, "CLOSE_LIMIT_AFTER_AN_EXCEPTION_S", 0.5)

    def struck(_):
        if written and not reader.raised:
            raise OwnError

    def unguarded(given):
        return Consumer({**given, "stats_cb": struck, "statistics.interval.ms": 1})

    written: list[str] = []
    reader = Reader(stage, factory=unguarded, **settings)
    wait_for(reader.consumer.assignment, "an assignment", reader.read)
    written += stage.load(20)  # statistics lie in front of the first record when the consumer asks again
    reader.reads_everything(each=20)
    assert len(reader.raised) == 1
    reader.consumer.close()
    if settings:
        assert len(stage.members()) == 1, "KIP-345: a static member keeps its place until its session ends"
    else:
        # Long before a session ends; a close that took longer than its limit goes on beside us.
        wait_for(lambda: stage.members() == [], "the group to be empty", timeout_s=20.0)


def test_a_raising_error_cb_costs_no_record(proxied_stage, proxy):
    feed = Feed(proxied_stage)
    reader = Reader(proxied_stage, error_cb=raises)
    for _ in range(ROUNDS):
        feed.load(20)
        reader.reads_more(reader.read_one_by_one)
        # The error lies behind the records that were fetched with the first one. Not every cut is told as one.
        reader.raises_again(proxy.cut_off_clients, reader.read)
        reader.reads_everything(feed.each)
    reader.consumer.close()


class RaisingHandler(logging.Handler):
    def emit(self, record):
        raise OwnError


def test_a_raising_logger_costs_no_record(loaded):
    logger = logging.getLogger(loaded.group)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(RaisingHandler())
    reader = Reader(loaded, logger=logger, debug="fetch")
    reader.reads_everything()
    assert reader.raised
    reader.consumer.close()


def test_a_raising_throttle_cb_costs_no_record(stage):
    feed = Feed(stage)
    reader = Reader(stage, throttle_cb=raises, **{"client.id": stage.group})
    feed.load(EACH)
    wait_for(lambda: reader.seen, "a record", reader.read_one_by_one)
    limit_client(stage.bootstrap, stage.group, "request_percentage", 0.001)
    for _ in range(ROUNDS):
        reader.raises_again(reader.read_one_by_one)
    limit_client(stage.bootstrap, stage.group, "request_percentage", None)
    reader.reads_everything(feed.each)
    reader.consumer.close()


def evict(stage, member_id):
    """Leave the group in the member's name: it hears of it only by the answer to its next request."""
    if stage.protocol is GroupProtocol.KIP_848:
        answer = ask(stage.bootstrap, frames.consumer_heartbeat(1, group=stage.group, member_id=member_id, epoch=-1))
        (error,) = struct.unpack_from(">h", answer, 9)  # behind the correlation id, no tags and the throttling
    else:
        answer = ask(stage.bootstrap, frames.leave_group(1, group=stage.group, member_id=member_id))
        (error,) = struct.unpack_from(">h", answer, 8)
    assert error == 0


@pytest.mark.parametrize("name", ["on_assign", "on_lost"])
def test_a_raising_on_assign_or_on_lost_costs_no_record(any_stage, name):
    """An application that commits all it has read, and forgets what is not committed when its partitions are lost."""
    feed = Feed(any_stage)
    feed.load(20)

    def callback(_, partitions):
        committed = any_stage.committed()
        for place in partitions:
            del reader.seen[place.partition][committed[place.partition] or 0 :]
        raise OwnError

    reader = Reader(any_stage, callbacks={name: callback})

    def read_and_commit():
        feed.load()
        reader.read()
        with suppress(KafkaException):  # nothing to commit, or partitions that were lost
            reader.consumer.commit(asynchronous=False)

    for _ in range(ROUNDS):
        wait_for(reader.consumer.assignment, "an assignment", reader.read)
        reader.reads_more(read_and_commit)
        evict(any_stage, reader.consumer.memberid())
        reader.raises_again(read_and_commit)
    reader.reads_everything(feed.each)
    reader.consumer.close()


def of_partition(value):
    return value.split("-")[0]


@pytest.mark.parametrize("given", ["to the producer", "to produce()"])
def test_a_raising_on_delivery_leaves_no_outcome_untold_and_no_output_doubled(stage, given):
    written = stage.load(EACH // 10)
    reports = {"on_delivery": raises}
    to_producer, to_produce = (reports, {}) if given == "to the producer" else ({}, reports)
    producer, consumer = stage.producer(**to_producer), stage.subscribed()
    raised: list[OwnError] = []
    outcomes: list[Outcome | None] = []
    blocks: list[Any] = []

    def one_block():
        try:
            with producer.transaction(consumer) as txn:
                blocks.append(txn)
                for message in consumer.consume(100, 0.1):
                    producer.produce(stage.sink, message.value(), **to_produce)
        except OwnError as error:
            raised.append(error)
        outcomes.extend(block.outcome for block in blocks[len(outcomes) :])

    wait_for(lambda: stage.committed() == stage.ends(), "every record to be committed", one_block)
    assert raised
    assert None not in outcomes
    outputs = stage.outputs()
    assert sorted(outputs, key=of_partition) == sorted(written, key=of_partition)  # each partition's in their order
