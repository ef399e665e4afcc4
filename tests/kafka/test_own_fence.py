"""A handle's late init_transactions takes the newest epoch: it must not stop the producer that it belongs to.

A fence by another instance still does.
"""

import gc
import threading

import pytest
from confluent_kafka import Producer

from eos_client import EosProducer, Outcome
from eos_client.core.model import ProducerLimits
from eos_client.errors import ProducerFencedError, RebuildProducerError
from tests.interruption import BrokenOffError
from tests.support.interception import intercepting
from tests.support.waiting import WAIT_S

OVERTAKING_S = 1.0
"""How long an interrupted init stays in the library for another one to overtake it: where none can, it only waits."""
LIMITS = ProducerLimits(commit_timeout_s=5.0, start_timeout_s=15.0, recovery_timeout_s=20.0)


class Inits:
    """The calls of init_transactions of all handles, one of which does something first."""

    def __init__(self):
        self._act = None
        self.ended = threading.Event()
        self.factory = intercepting(Producer, init_transactions=self._init)

    def before_the_next(self, act):
        """Let the next call do ``act`` first; ``ended`` says when that call is over."""
        self._act = act

    def _init(self, raw, *arguments):
        act, self._act = self._act, None
        if act is None:
            raw.init_transactions(*arguments)
            return
        act()
        try:
            raw.init_transactions(*arguments)
        finally:
            self.ended.set()


def write(stage, producer, value):
    producer.begin_transaction()
    producer.produce(stage.sink, value)
    producer.commit_transaction()


def test_a_rebuild_that_a_signal_broke_off_fences_no_later_one(stage, interrupt):
    inits, overtaken = Inits(), threading.Event()
    producer = stage.producer(factory=inits.factory, transactional_id=stage.group)

    def interrupted():
        interrupt()
        overtaken.wait(OVERTAKING_S)

    inits.before_the_next(interrupted)
    with pytest.raises(BrokenOffError):
        producer.adapter.rebuild()
    producer.adapter.rebuild()
    overtaken.set()
    assert inits.ended.wait(WAIT_S)
    write(stage, producer, b"1")
    assert stage.outputs() == ["1"]


def loses_its_id_to_newer_ones(stage, producer):
    """That is how two instances never take turns."""
    newer = stage.producer(transactional_id=stage.group)
    with pytest.raises(ProducerFencedError):
        write(stage, producer, b"no")
    write(stage, newer, b"2")
    return stage.outputs() == ["1", "2"]


@pytest.fixture
def overdue(stage):
    """A producer whose first init_transactions was overdue and left behind, and a function that lets it go on."""
    inits, released = Inits(), threading.Event()
    inits.before_the_next(lambda: released.wait(3 * WAIT_S))
    producer = stage.producer(factory=inits.factory, transactional_id=stage.group, limits=LIMITS)

    def go_on():
        released.set()
        assert inits.ended.wait(WAIT_S)

    yield producer, go_on
    released.set()


def copy(stage, producer, consumer):
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 4):
            txn.produce(stage.sink, message.value())
    return txn.outcome


def test_an_init_that_was_overdue_and_takes_effect_late_costs_one_transaction(stage, overdue):
    written = stage.load(2)
    producer, go_on = overdue
    consumer = stage.subscribed()
    go_on()
    assert copy(stage, producer, consumer) is Outcome.ABORTED
    assert copy(stage, producer, consumer) is Outcome.COMMITTED
    assert sorted(stage.outputs()) == sorted(written)


@pytest.mark.parametrize("end", ["closed", "dropped"])
def test_an_init_that_a_closed_producer_has_left_behind_costs_its_successor_one_transaction(stage, interrupt, end):
    inits, released = Inits(), threading.Event()

    def interrupted():
        interrupt()
        released.wait(3 * WAIT_S)

    inits.before_the_next(interrupted)
    settings = {"bootstrap.servers": stage.bootstrap, "transactional.id": stage.group}
    closed = EosProducer(settings, factory=inits.factory)
    with pytest.raises(BrokenOffError):
        closed.init_transactions()
    if end == "closed":
        closed.close()
    del closed
    gc.collect()
    successor = stage.producer(factory=inits.factory, transactional_id=stage.group)
    released.set()
    assert inits.ended.wait(WAIT_S)
    with pytest.raises(RebuildProducerError, match="init_transactions"):
        write(stage, successor, b"no")
    successor.init_transactions()
    write(stage, successor, b"1")
    assert loses_its_id_to_newer_ones(stage, successor)


def test_a_newer_instance_loses_the_id_at_most_once_for_an_init_that_was_left_behind(stage, overdue):
    producer, _ = overdue
    newer = stage.producer(transactional_id=stage.group)
    with pytest.raises(RebuildProducerError, match="init_transactions"):
        write(stage, producer, b"fenced, for all that anybody knows by itself")
    producer.init_transactions()
    write(stage, producer, b"1")
    with pytest.raises(ProducerFencedError):
        write(stage, newer, b"no")
    assert loses_its_id_to_newer_ones(stage, producer)
