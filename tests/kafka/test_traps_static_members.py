"""A static member that dies between the two rounds of a cooperative rebalance: Kafka gives its partitions to nobody."""

import signal
from functools import partial

from tests.kafka.kafka_support import FreezableProgram, Stage
from tests.support.waiting import wait_for
from tests.verification.protocols import GroupProtocol

PARTITIONS = {0, 1, 2}
DIES_IN_ITS_REVOKE_CALLBACK = """
from eos_client import EosConsumer
def on_revoke(consumer, partitions):
    say("revoking")
    await_go()
events = []
consumer = EosConsumer({**SETTINGS["consumer"], "group.instance.id": "one"}, hook=events.append)
consumer.subscribe([SETTINGS["source"]], on_revoke=on_revoke)
while not consumer.assignment():
    consumer.poll(0.1)
say("assigned")
while True:
    consumer.poll(0.1)
"""


def owned(stage):
    return {place.partition for member in stage.members() for place in member.assignment.topic_partitions}


def struck_between_the_rounds(stage):
    """A static member's second process and a newcomer, once neither expects anything more of the group."""
    with FreezableProgram(stage, DIES_IN_ITS_REVOKE_CALLBACK) as first:
        assert first.said() == "assigned"
        newcomer = stage.raw_consumer()
        assert first.said() == "revoking"
        first.signal(signal.SIGKILL)
    second = stage.subscribed(group_instance_id="one")
    wait_for(lambda: stage.assigned(second), "its old place", *polling(second, newcomer))
    return second, newcomer


def polling(*consumers):
    return [partial(consumer.poll, 0.05) for consumer in consumers]


def gets_everything_owned(stage, *consumers):
    wait_for(lambda: owned(stage) == PARTITIONS, "every partition to have an owner", *polling(*consumers))


def test_what_it_had_to_give_up_is_nobodys_until_the_next_round(kafka_broker):
    with Stage(kafka_broker.bootstrap_servers, GroupProtocol.COOPERATIVE, partitions=len(PARTITIONS)) as stage:
        second, newcomer = struck_between_the_rounds(stage)
        assert owned(stage) == stage.assigned(second) < PARTITIONS
        assert stage.assigned(newcomer) == set()
        gets_everything_owned(stage, second, newcomer, stage.raw_consumer())


def test_an_eager_group_gives_everything_to_somebody(kafka_broker):
    with Stage(kafka_broker.bootstrap_servers, GroupProtocol.EAGER, partitions=len(PARTITIONS)) as stage:
        gets_everything_owned(stage, *struck_between_the_rounds(stage))
