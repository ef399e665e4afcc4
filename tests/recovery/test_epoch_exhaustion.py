"""The epoch of one transactional.id runs out: the coordinator gives it another producer id, and nothing else changes.

Tens of thousands of instances are started to come near it, by their InitProducerId requests alone; then the client's
own producers take over and cross it.
"""

import contextlib

import pytest

from eos_client import Outcome
from eos_client.errors import ProducerFencedError
from tests.kafka.kafka_support import Stage
from tests.recovery.forced_support import LAST_EPOCH, await_state, coordinator
from tests.support.waiting import WAIT_S

# The rule is told by the simulated cluster; to wear an id out takes as long as a hundred other tests.
pytestmark = pytest.mark.soak

BEFORE = 6
"""How many epochs before the last one the client takes over."""


class Worn:
    """A transactional.id whose epochs are nearly used up."""

    def __init__(self, stage, line):
        self._stage = stage
        self._line = line
        self.pinned = f"worn-{stage.group}"
        self.producer().close()
        line.drive_epoch(self.pinned, LAST_EPOCH - BEFORE)

    def producer(self):
        """A new producer under the id, initialised."""
        return self._stage.producer(transactional_id=self.pinned)

    @property
    def identity(self):
        """The producer id and the epoch that the coordinator takes requests from."""
        view = self._line.transaction(self.pinned)
        assert view is not None
        return view.identity

    def await_open(self):
        await_state(self._line, self.pinned, "Ongoing")


@pytest.fixture(scope="module")
def line(kafka_broker):
    with coordinator(kafka_broker) as made:
        yield made


@contextlib.contextmanager
def worn_id(kafka_broker, line):
    with Stage(kafka_broker.bootstrap_servers) as stage:
        yield Worn(stage, line)


@pytest.fixture
def stage(kafka_broker):
    with Stage(kafka_broker.bootstrap_servers) as made:
        yield made


class Crossing:
    """Producers under one id on both sides of its last epoch: two that were left behind, and who they were."""

    def __init__(self, worn, stage):
        self.worn = worn
        self.identities = []
        self.idle = self._next()
        while worn.identity[1] < LAST_EPOCH:
            self.at_work = self._next()
        self._stage = stage
        self._consumer = stage.subscribed()
        stage.load(2)
        self._txn = self.at_work.transaction(self._consumer)
        self._txn.__enter__()
        for message in stage.collect(self._consumer, 4):
            self._txn.produce(stage.sink, message.value())
        assert self.at_work.flush(WAIT_S) == 0
        worn.await_open()
        self._next()

    def _next(self):
        producer = self.worn.producer()
        self.identities.append(self.worn.identity)
        return producer

    def end_open_block(self):
        self._txn.__exit__(None, None, None)

    def assert_nothing_of_it_is_visible(self):
        assert self._stage.visible() == []
        assert self._stage.committed() == {0: None, 1: None}


@pytest.fixture(scope="module")
def crossing(kafka_broker, line):
    with worn_id(kafka_broker, line) as worn, Stage(kafka_broker.bootstrap_servers) as stage:
        yield Crossing(worn, stage)


def commit_some(stage, producer, consumer, start):
    """Copy two more records of each partition in one transaction."""
    written = stage.load(2, start=start)
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 4):
            txn.produce(stage.sink, message.value())
    assert txn.outcome is Outcome.COMMITTED, txn.reason
    return written


def test_past_the_last_epoch_the_id_has_another_producer_id_and_commits_go_on(crossing, stage):
    before, (producer_id, epoch) = crossing.identities[:-1], crossing.identities[-1]
    assert before == [(before[0][0], LAST_EPOCH - len(before) + 1 + number) for number in range(len(before))]
    assert producer_id > before[0][0]
    assert epoch < BEFORE
    producer, consumer = crossing.worn.producer(), stage.subscribed()
    written = commit_some(stage, producer, consumer, 0)
    producer.adapter.rebuild()
    written += commit_some(stage, producer, consumer, 2)
    assert crossing.worn.identity[0] == producer_id
    assert sorted(stage.outputs()) == sorted(written)
    assert stage.committed() == stage.ends()


@contextlib.contextmanager
def a_newer_instance_stays(crossing):
    """Whatever is done inside: the coordinator keeps the newest producer."""
    crossing.worn.producer()
    identity = crossing.worn.identity
    yield
    assert crossing.worn.identity == identity, "an older instance has taken the transactional.id back"


def test_a_transaction_open_across_the_last_epoch_is_aborted_and_its_producer_fenced(crossing):
    with a_newer_instance_stays(crossing), pytest.raises(ProducerFencedError, match=crossing.worn.pinned):
        crossing.end_open_block()
    crossing.assert_nothing_of_it_is_visible()


def test_a_producer_left_behind_with_the_old_producer_id_is_fenced(crossing, stage):
    stage.load(2)
    older, consumer = crossing.idle, stage.subscribed()

    def tries():
        for _ in range(3):
            with older.transaction(consumer) as txn:
                for message in stage.collect(consumer, 4):
                    txn.produce(stage.sink, message.value())
            assert txn.outcome is Outcome.ABORTED

    with a_newer_instance_stays(crossing), pytest.raises(ProducerFencedError, match=crossing.worn.pinned):
        tries()
    assert stage.visible() == []
    assert stage.committed() == {0: None, 1: None}


def test_a_producer_that_is_alone_crosses_the_last_epoch_by_its_own_recoveries(kafka_broker, line, stage):
    """Half of its recoveries find a transaction open."""
    with worn_id(kafka_broker, line) as worn:
        producer, consumer = worn.producer(), stage.subscribed()
        identities, written = [worn.identity], list[str]()
        for number in range(2 * BEFORE):
            written += commit_some(stage, producer, consumer, 2 * number)
            if number % 2:
                producer.begin_transaction()
                producer.produce(stage.sink, b"never to be seen")
                assert producer.flush(WAIT_S) == 0
                worn.await_open()
            producer.adapter.rebuild()
            identities.append(worn.identity)
    producer_ids = [producer_id for producer_id, _ in identities]
    assert len(set(producer_ids)) == 2
    assert producer_ids == sorted(producer_ids)
    assert max(epoch for _, epoch in identities) == LAST_EPOCH
    assert sorted(stage.outputs()) == sorted(written)
    assert stage.committed() == stage.ends()
