"""A coordinator that fails in the middle of a rebalance: its successor goes back to the last stored generation."""

from __future__ import annotations

import signal

import pytest

from eos_client.core.commit_gate import GatePolicy, GateSettings
from tests.kafka.kafka_support import FreezableProgram, Stage
from tests.support.waiting import wait_for
from tests.verification.conclusive import conclusive
from tests.verification.protocols import GroupProtocol

POLLS = """
from confluent_kafka import Consumer
consumer = Consumer({**SETTINGS["consumer"], "enable.auto.commit": False, "session.timeout.ms": 45000})
consumer.subscribe([SETTINGS["source"]], on_assign=lambda *_: say("assigned"))
say("subscribed")
while True:
    consumer.poll(0.1)
"""
GATE = GateSettings(policy=GatePolicy.BLOCK)


@pytest.mark.soak
def test_a_follower_that_is_assigned_again_in_the_generation_of_its_revocation_commits(make_kafka_broker):
    """The leader and the newcomer of the lost round do not come back, so the generation never moves."""

    def story(broker):
        with (
            Stage(broker.bootstrap_servers, GroupProtocol.EAGER, session_s=45.0) as stage,
            FreezableProgram(stage, POLLS) as leader,
        ):
            assert (leader.said(), leader.said()) == ("subscribed", "assigned")
            producer, follower = stage.producer(), stage.subscribed(gate=GATE)
            wait_for(follower.assignment, "the follower's partition", lambda: follower.poll(0.05))
            owned, generation = follower.assignment(), follower.adapter.snapshot().generation
            leader.signal(signal.SIGSTOP)
            with FreezableProgram(stage, POLLS) as newcomer:
                assert newcomer.said() == "subscribed"
                wait_for(lambda: stage.named("partitions_revoked"), "the revocation", lambda: follower.poll(0.05))
                broker.kill()
            broker.restart()
            wait_for(follower.assignment, "the old assignment", lambda: follower.poll(0.05))
            assert follower.assignment() == owned
            assert follower.adapter.snapshot().generation.same_membership(generation)
            stage.load(5)
            mine = owned[0].partition
            stage.copy_until(producer, follower, lambda: stage.committed()[mine] == 5)
            assert sorted(stage.outputs()) == [f"{mine}-{number}" for number in range(5)]
            leader.signal(signal.SIGCONT)

    conclusive(story, make_kafka_broker)
