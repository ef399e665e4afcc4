"""A hook that raises changes nothing: what happened is settled first and told then."""

import logging

import pytest

from eos_client import EosConfig, ExactlyOnceLoop, Outcome
from tests.clients.simulated_stage import SINK, SOURCE, SimulatedStage


@pytest.fixture
def stage():
    return SimulatedStage()


class BrokenHook:
    """Raises at every event of the given names, or at all of them."""

    def __init__(self, *names, error=ZeroDivisionError):
        self.names, self.error, self.heard = names, error, []

    def __call__(self, event):
        self.heard.append(event.name)
        if not self.names or event.name in self.names:
            raise self.error(f"at {event.name}")


def test_a_hook_that_raises_at_every_event_changes_no_outcome(stage, caplog):
    hook = BrokenHook()
    producer, consumer = stage.producer(hook=hook), stage.subscribed(hook=hook)
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
    assert txn.outcome is Outcome.COMMITTED
    stage.load(1)
    txn = producer.transaction(consumer)
    with pytest.raises(ZeroDivisionError), txn:
        1 / len(stage.collect(consumer, 2)[:0])
    assert txn.outcome is Outcome.ABORTED
    stage.cluster.revoke((SOURCE, 1))
    stage.wait_for(lambda: "partitions_revoked" in hook.heard, lambda: consumer.consume(1, 0.1))
    stage.cluster.give_back()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs
    assert {"transaction_committed", "transaction_aborted", "partitions_assigned"} <= set(hook.heard)
    told = [record for record in caplog.records if record.name == "eos_client"]
    assert len(told) == len(hook.heard)
    assert all(record.levelno == logging.ERROR and record.exc_info for record in told)
    assert "BrokenHook" in told[0].getMessage()


def test_a_loop_with_a_broken_hook_works_on(stage):
    hook = BrokenHook()
    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing")
    loop = ExactlyOnceLoop(config, [SOURCE], lambda r: [r.value()], output_topic=SINK, hook=hook, clients=stage.cluster)
    stage.cluster.after(5, lambda: stage.cluster.revoke((SOURCE, 1)))
    stage.cluster.after(15, stage.cluster.give_back)
    stage.cluster.after(40, loop.stop)
    loop.run()
    assert stage.outputs == stage.inputs
    assert {"loop_started", "partitions_revoked", "loop_stopped"} <= set(hook.heard)


def test_an_interruption_inside_the_hook_of_a_confirmed_commit_leaves_the_pair_usable(stage):
    """KeyboardInterrupt goes up, as it must; what was confirmed is settled by then."""
    hook = BrokenHook("transaction_committed", error=KeyboardInterrupt)
    producer, consumer = stage.producer(hook=hook), stage.subscribed()

    def block():
        with producer.transaction(consumer) as txn:
            for record in stage.collect(consumer, 4):
                txn.produce(SINK, record.value())

    with pytest.raises(KeyboardInterrupt):
        block()
    hook.names = ("none of them",)
    stage.load(1)
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_a_hook_that_fails_at_a_refused_plain_commit_forgets_its_offsets_all_the_same(stage):
    hook = BrokenHook("commit_refused", error=KeyboardInterrupt)
    consumer = stage.subscribed(hook=hook)
    stage.collect(consumer, 4)
    consumer.adapter.plain.pending.update(consumer._plain.requested(None, None))
    stage.cluster.lose()
    with pytest.raises(KeyboardInterrupt):
        stage.wait_for(lambda: False, lambda: consumer.consume(1, 0.1))
    assert consumer.adapter.plain.pending == {}
