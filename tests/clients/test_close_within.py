"""`close_within`: a close that goes on behind its limit is one close, and callbacks may not begin it."""

import os
import threading

import pytest

from eos_client import Outcome
from eos_client.errors import ClientClosedError, TransactionStateError
from eos_client.observe import TransactionCommitted
from tests.clients.simulated_stage import SINK, SimulatedStage
from tests.support.waiting import wait_for


@pytest.fixture
def stage():
    return SimulatedStage(partitions=1)


def test_a_close_that_goes_on_behind_its_limit_is_waited_for_by_the_next(stage, monkeypatch):
    consumer = stage.subscribed()
    began, may_end = threading.Event(), threading.Event()
    close = consumer.adapter.close

    def slow():
        began.set()
        may_end.wait(30)
        close()

    monkeypatch.setattr(consumer.adapter, "close", slow)
    closer = threading.Thread(target=lambda: consumer.close_within(30.0))
    closer.start()
    wait_for(began.is_set, "the close that goes on")
    consumer.close()
    assert consumer.close_within(0.01) is False
    may_end.set()
    assert consumer.close_within(30.0) is True
    closer.join()
    consumer.close()
    with pytest.raises(ClientClosedError, match="Consumer closed: build another one"):
        consumer.poll(0)


@pytest.mark.parametrize("where", ["hook", "on_delivery", "on_assign"])
def test_callbacks_are_refused_as_close_refuses_them(stage, where):
    refused: list[str] = []

    def closes(place):
        if place == where and not refused:
            with pytest.raises(TransactionStateError) as raised:
                consumer.close_within(1.0)
            refused.append(str(raised.value))

    def hook(event):
        if isinstance(event, TransactionCommitted):
            closes("hook")

    producer = stage.producer(hook=hook)
    consumer = stage.consumer()
    consumer.subscribe(["orders"], on_assign=lambda *_: closes("on_assign"))
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 2):
            producer.produce(SINK, message.value(), on_delivery=lambda *_: closes("on_delivery"))
    assert (txn.outcome, len(refused)) == (Outcome.COMMITTED, 1)
    assert consumer.close_within(30.0) is True


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("write", ["produce", "dead_letter"])
def test_a_forked_child_cannot_write_in_its_parents_block(stage, write):
    producer, consumer = stage.producer(), stage.subscribed()
    stage.cluster.create_topic("letters")
    with producer.transaction(consumer) as txn:
        first, second = stage.collect(consumer, 2)
        txn.produce(SINK, first.value())
        child = os.fork()
        if child == 0:
            try:
                if write == "produce":
                    txn.produce(SINK, second.value())
                else:
                    txn.dead_letter(second, ValueError("no price"), topic="letters")
            except ClientClosedError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        txn.produce(SINK, second.value())
    assert (txn.outcome, stage.cluster.values(SINK)) == (Outcome.COMMITTED, [first.value(), second.value()])
