"""A member that stalls beyond its session and comes back: it steals nothing, repeats nothing, loses nothing."""

import signal

import pytest

from tests.kafka.kafka_support import ON_A_BROKER, SHORT_SESSION_S, FreezableProgram, Stage
from tests.support.waiting import wait_for

PROLOGUE = """
from eos_client import EosConsumer, EosProducer
events = []
names = lambda: [e.name for e in events]
consumer = EosConsumer(SETTINGS["consumer"], hook=events.append)
producer = EosProducer(SETTINGS["producer"], hook=events.append)
producer.init_transactions()
consumer.subscribe([SETTINGS["source"]])

def copy(txn, timeout_s=0.1):
    batch = consumer.consume(100, timeout_s)
    for message in batch:
        txn.produce(SETTINGS["sink"], message.value())
    return len(batch)
"""
EPILOGUE = """
say([txn.outcome.value, txn.reason])
while True:
    with producer.transaction(consumer) as txn:
        copy(txn)
"""
STALLS_IN_ITS_BLOCK = f"""{PROLOGUE}
with producer.transaction(consumer) as txn:
    count = 0
    while count < 10:
        count += copy(txn)
    say("stalling")
    await_go()
{EPILOGUE}"""
IS_ASSIGNED_AGAIN_IN_ITS_BLOCK = f"""{PROLOGUE}
with producer.transaction(consumer) as txn:
    count = 0
    while count < 10:
        count += copy(txn)
    say("stalling")
    await_go()
    while names()[-2:] != ["partitions_lost", "partitions_assigned"] or not consumer.assignment():
        copy(txn, 0.02)
{EPILOGUE}"""


@pytest.fixture
def stage(kafka_broker):
    with Stage(kafka_broker.bootstrap_servers, session_s=SHORT_SESSION_S) as made:
        yield made


@pytest.fixture(params=ON_A_BROKER, ids=lambda protocol: protocol.value)
def any_stage(kafka_broker, request):
    with Stage(kafka_broker.bootstrap_servers, request.param, session_s=SHORT_SESSION_S) as made:
        yield made


def test_a_member_frozen_beyond_its_session_aborts_and_goes_on_where_the_group_is(any_stage):
    is_overtaken_by_a_new_owner(any_stage, STALLS_IN_ITS_BLOCK)


def test_a_frozen_member_that_is_assigned_again_inside_its_block_aborts_too(stage):
    is_overtaken_by_a_new_owner(stage, IS_ASSIGNED_AGAIN_IN_ITS_BLOCK)


def is_overtaken_by_a_new_owner(stage, program):
    written = stage.load(5)
    with FreezableProgram(stage, program) as frozen:
        assert frozen.said() == "stalling"
        frozen.signal(signal.SIGSTOP)
        producer = stage.producer()
        with stage.subscribed() as new_owner:
            stage.copy_until(producer, new_owner, lambda: stage.committed() == {0: 5, 1: 5})
        wait_for(lambda: not stage.members(), "the group to be empty")
        frozen.signal(signal.SIGCONT)
        frozen.go()
        outcome, reason = frozen.said()
        assert outcome == "aborted", reason
        written += stage.load(2, start=5)
        wait_for(lambda: stage.committed() == {0: 7, 1: 7}, "the returned member to go on")
        wait_for(lambda: len(stage.outputs()) >= len(written), "its outputs")
    assert sorted(stage.outputs()) == sorted(written)


def test_a_member_back_before_its_loss_was_served_cannot_commit_what_the_group_gave_away(any_stage):
    """The metadata is that of the new membership already, the records are those of the old one."""
    stage = any_stage
    written = stage.load(5)
    with FreezableProgram(stage, STALLS_IN_ITS_BLOCK) as frozen:
        assert frozen.said() == "stalling"
        frozen.signal(signal.SIGSTOP)
        wait_for(lambda: not stage.members(), "the session to end")
        frozen.signal(signal.SIGCONT)
        frozen.go()
        outcome, reason = frozen.said()
        assert outcome == "aborted", reason
        wait_for(lambda: stage.committed() == {0: 5, 1: 5}, "the records to be processed again")
        wait_for(lambda: len(stage.outputs()) >= len(written), "its outputs")
    assert sorted(stage.outputs()) == sorted(written)


@pytest.mark.soak
def test_the_survivor_of_a_killed_member_writes_its_records_once(stage):
    written = stage.load(5)
    producer, survivor = stage.producer(), stage.subscribed()
    wait_for(lambda: stage.assigned(survivor) == {0, 1}, "all partitions", lambda: survivor.poll(0))
    with FreezableProgram(stage, STALLS_IN_ITS_BLOCK.replace("count < 10", "count < 5")) as killed:
        stage.copy_until(producer, survivor, lambda: len(stage.assigned(survivor)) == 1)
        written += stage.load(5, start=5)
        assert killed.said() == "stalling"
        killed.signal(signal.SIGKILL)
        stage.copy_until(producer, survivor, lambda: stage.committed() == {0: 10, 1: 10})
    assert sorted(stage.outputs()) == sorted(written)
