"""A group that does not admit the consumer: that is an error with a way out, not an input without records."""

from __future__ import annotations

import pytest

from eos_client import EosConfig, ExactlyOnceLoop
from eos_client.errors import ClusterUnfitError
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from tests.clients.simulated_stage import GROUP, SOURCE, SimulatedStage
from tests.support.protocols import COOPERATIVE, EAGER

TOO_LONG, TOO_SHORT = 1_800_001, 5_999


@pytest.mark.parametrize("session_ms", [TOO_LONG, TOO_SHORT])
@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])
def test_a_block_names_the_limits_of_a_session_that_the_broker_does_not_admit(protocol: str, session_ms: int) -> None:
    stage = SimulatedStage(protocol)
    consumer = stage.subscribed(session_timeout_ms=session_ms, max_poll_interval_ms=max(300_000, session_ms))
    with pytest.raises(ClusterUnfitError, match=r"INVALID_SESSION_TIMEOUT.*group\.max\.session\.timeout\.ms"):
        stage.read_in_blocks(stage.producer(), consumer)
    consumer.close()
    assert stage.committed() is None


def test_a_block_names_the_assignor_that_the_members_of_the_group_do_not_share() -> None:
    stage = SimulatedStage(EAGER)
    first = stage.subscribed()
    stage.collect(first, 4)
    stage.protocol = COOPERATIVE
    with pytest.raises(ClusterUnfitError, match=r"INCONSISTENT_GROUP_PROTOCOL.*partition\.assignment\.strategy"):
        stage.read_in_blocks(stage.producer(), stage.subscribed())


def test_a_refused_consumer_joins_once_the_members_with_another_assignor_have_left() -> None:
    stage = SimulatedStage(EAGER)
    first, producer = stage.subscribed(), stage.producer()
    stage.collect(first, 4)
    stage.protocol = COOPERATIVE
    second = stage.subscribed()
    with pytest.raises(ClusterUnfitError):
        stage.read_in_blocks(producer, second)
    first.close()
    stage.copy_the_rest(producer, second)
    assert stage.outputs == sorted(stage.inputs)


def test_a_loop_ends_when_its_group_does_not_admit_it() -> None:
    stage = SimulatedStage(EAGER)
    too_long = {"session.timeout.ms": TOO_LONG, "max.poll.interval.ms": TOO_LONG}
    config = EosConfig({"bootstrap.servers": "simulated"} | too_long, group_id=GROUP)
    with pytest.raises(ClusterUnfitError, match="INVALID_SESSION_TIMEOUT"):
        ExactlyOnceLoop(config, [SOURCE], lambda _: None, clients=stage.cluster).run()


def test_plain_use_returns_the_refusal_as_an_error_event() -> None:
    stage = SimulatedStage(EAGER)
    consumer = stage.subscribed(session_timeout_ms=TOO_SHORT)
    codes: list[str] = []
    stage.wait_for(lambda: codes, lambda: codes.extend(m.error().name() for m in consumer.consume(1, 0.2)))
    assert codes == ["INVALID_SESSION_TIMEOUT"]


def test_a_consumer_joins_where_the_broker_allows_its_session_timeout() -> None:
    stage = SimulatedStage(EAGER, settings=BrokerSettings(group_min_session_timeout_s=1.0))
    consumer = stage.subscribed(session_timeout_ms=TOO_SHORT)
    stage.copy_the_rest(stage.producer(), consumer)
