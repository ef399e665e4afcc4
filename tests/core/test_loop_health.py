"""A loop is live while it polls, and ready while the gate would let it commit; otherwise the health says why not."""

from dataclasses import replace

import pytest

from eos_client.core.commit_gate import GateScope, GateSettings, GateState, Revocation
from eos_client.core.loop_health import LoopHealth, LoopVitals, health_of
from eos_client.core.model import UNJOINED, GroupGeneration, InputPartition

LIMIT_S = 300.0
ORDERS_0, ORDERS_1 = InputPartition("orders", 0), InputPartition("orders", 1)
G5 = GroupGeneration(5, "m", "billing")
WORKING = LoopVitals(
    1000.0,
    polled_at_s=999.0,
    poll_limit_s=LIMIT_S,
    is_assigned=True,
    generation=G5,
    gate=GateState(assigned=frozenset({ORDERS_0})),
    gate_settings=GateSettings(),
)
CLOSED = GateState(assigned=frozenset({ORDERS_0}), revocation=Revocation(G5, frozenset({ORDERS_1})))


def test_a_loop_that_polls_and_may_commit_is_live_and_ready_without_a_reason():
    assert health_of(WORKING) == LoopHealth(ready=True, live=True, reasons=())


@pytest.mark.parametrize(
    ("change", "live", "reason"),
    [
        ({"polled_at_s": None}, True, "run() has not been called yet"),
        ({"polled_at_s": 1000.0 - LIMIT_S - 0.5}, False, "not polled for 300.5 s, longer than liveness_limit_s=300"),
        ({"stop_reason": "SIGTERM"}, True, "stopping: SIGTERM"),
        ({"stop_reason": "SIGTERM", "has_ended": True}, False, "ended: SIGTERM"),
        ({"has_ended": True}, False, "ended: closed"),
        ({"is_forked_copy": True}, False, "does not run in this process, which was forked"),
        ({"missing_topics": frozenset({"orders"})}, True, "topic 'orders' does not exist any more"),
        ({"is_assigned": False}, True, "not assigned"),
        ({"needs_sync": True}, True, "callbacks of it may be waiting"),
        ({"generation": UNJOINED}, True, "not_a_member"),
        ({"gate": CLOSED}, True, "revocation_generation"),
    ],
)
def test_one_thing_that_is_missing_is_the_one_reason(change, live, reason):
    health = health_of(replace(WORKING, **change))
    assert (health.live, health.ready) == (live, False)
    (said,) = health.reasons
    assert reason in said


def test_a_poll_exactly_as_long_ago_as_the_limit_is_progress():
    assert health_of(replace(WORKING, polled_at_s=1000.0 - LIMIT_S)).live


def test_a_loop_that_hangs_while_it_stops_is_neither_live_nor_ready_and_says_both():
    health = health_of(replace(WORKING, polled_at_s=0.0, stop_reason="SIGTERM"))
    assert not health.live
    assert ["not polled" in health.reasons[0], "stopping" in health.reasons[1]] == [True, True]


def test_a_standby_to_which_the_group_has_assigned_nothing_is_ready():
    assert health_of(replace(WORKING, gate=GateState())).ready


def test_a_member_whose_revoked_partitions_alone_close_the_gate_is_ready_with_the_others():
    only_partition = GateSettings(scope=GateScope.PARTITION)
    assert health_of(replace(WORKING, gate=CLOSED, gate_settings=only_partition)).ready


def test_the_gate_opens_for_the_next_generation():
    assert health_of(replace(WORKING, gate=CLOSED, generation=replace(G5, generation_id=6))).ready


def test_a_member_inside_its_revoke_callback_may_still_commit():
    assert health_of(replace(WORKING, gate=replace(CLOSED, revoking=True))).ready
