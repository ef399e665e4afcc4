"""A producer that was dropped without close(): its handle ends, and its init takes the id from no younger producer.

A handle that a producer has left behind is gone, too.
"""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client import EosProducer
from eos_client.core.model import ProducerLimits
from eos_client.errors import ClusterUnavailableError, RebuildProducerError, UnknownOutcomeError
from tests.confluent.threads import PATIENCE_S, StoppedClock, threads_named
from tests.support.waiting import wait_for

LIMITS = ProducerLimits(recovery_timeout_s=0.0)


class Handle:
    """A raw producer whose cluster does not answer before the factory says so."""

    def __init__(self, factory, settings):
        self._factory = factory
        self._settings = settings
        self.purged = False
        self.closed = threading.Event()
        self.closed_in = None

    def init_transactions(self, _timeout_s):
        if not self._factory.is_answering:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))

    def begin_transaction(self):
        pass

    def commit_transaction(self, _timeout_s):
        assert self._factory.answers.wait(PATIENCE_S)

    def poll(self, _timeout_s):
        return 0

    def flush(self, _timeout_s):
        return 0

    def purge(self):
        self.purged = True

    def close(self):
        assert self.purged
        self.closed_in = threading.current_thread()
        self.closed.set()


class Handles(list[Handle]):
    """The factory that has made them."""

    is_answering = False

    def __init__(self):
        super().__init__()
        self.answers = threading.Event()

    def make(self, settings):
        self.append(Handle(self, settings))
        return self[-1]


@pytest.fixture
def handles():
    return Handles()


@pytest.fixture
def _no_garbage_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def producer_of(handles, transactional_id="t", servers="nowhere", **parts):
    settings = {"bootstrap.servers": servers, "transactional.id": transactional_id}
    return EosProducer(settings, factory=handles.make, limits=LIMITS, **parts)


def initialise_in_vain(producer):
    with pytest.raises(ClusterUnavailableError):
        producer.init_transactions(0.0)


def test_a_dropped_producers_handle_is_closed_in_a_thread_of_its_own(handles):
    producer = producer_of(handles)
    initialise_in_vain(producer)
    gone = weakref.ref(producer)
    del producer
    gc.collect()
    assert gone() is None
    assert handles[0].closed.wait(PATIENCE_S)
    assert handles[0].closed_in is not threading.current_thread()


def test_a_dropped_producers_thread_ends_in_simulated_time_too(handles):
    handles.is_answering = True
    producer = producer_of(handles, "dropped", clock=StoppedClock())
    producer.init_transactions(PATIENCE_S)
    assert threads_named("eos-producer-dropped")
    del producer
    gc.collect()
    wait_for(lambda: not threads_named("eos-producer-dropped"), "the end of the thread")
    assert not handles[0].purged


def test_an_unanswered_init_ends_when_a_younger_producer_initialises_the_id(handles):
    older, younger = producer_of(handles), producer_of(handles)
    initialise_in_vain(older)
    handles.is_answering = True
    younger.init_transactions(PATIENCE_S)
    assert handles[0].closed.wait(PATIENCE_S)
    assert not handles[1].closed.is_set()
    with pytest.raises(RebuildProducerError, match="init_transactions"):
        older.begin_transaction()
    older.init_transactions(PATIENCE_S)  # whoever still has it may take the id back
    assert len(handles) == 3


def test_an_answered_init_is_not_ended_by_a_younger_producer(handles):
    handles.is_answering = True
    older, younger = producer_of(handles), producer_of(handles)
    older.init_transactions(PATIENCE_S)
    younger.init_transactions(PATIENCE_S)
    assert not handles[0].closed.is_set()
    assert older.adapter.calls.state.transaction_failure is None


@pytest.mark.parametrize("other", [{"transactional_id": "u"}, {"servers": "elsewhere"}], ids=["id", "cluster"])
def test_a_producer_with_another_id_or_cluster_is_not_ended(handles, other):
    older, younger = producer_of(handles), producer_of(handles, **other)
    initialise_in_vain(older)
    handles.is_answering = True
    younger.init_transactions(PATIENCE_S)
    assert not handles[0].closed.is_set()
    older.init_transactions(PATIENCE_S)
    assert len(handles) == 2


def test_a_producer_in_use_by_another_thread_is_not_ended(handles):
    older, younger = producer_of(handles), producer_of(handles)
    tried, over = threading.Event(), threading.Event()

    def use():
        initialise_in_vain(older)
        tried.set()
        over.wait(PATIENCE_S)

    thread = threading.Thread(target=use)
    thread.start()
    try:
        assert tried.wait(PATIENCE_S)
        handles.is_answering = True
        younger.init_transactions(PATIENCE_S)
        assert not handles[0].closed.is_set()
    finally:
        over.set()
        thread.join()


@pytest.mark.usefixtures("_no_garbage_collector")
def test_a_handle_whose_call_was_overdue_is_gone_once_the_call_has_returned_and_another_one_is_there(handles):
    handles.is_answering = True
    producer = producer_of(handles)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    with suppress(UnknownOutcomeError):  # `pytest.raises` would keep it
        producer.commit_transaction(0.0)
    producer.init_transactions(PATIENCE_S)
    gone = weakref.ref(handles.pop(0))
    handles.answers.set()
    wait_for(lambda: gone() is None, "the end of the handle")
