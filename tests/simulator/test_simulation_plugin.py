"""What the fixtures do for a test that fails."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

FAILING = """
def test_one(make_simulated_cluster):
    cluster = make_simulated_cluster()
    cluster.create_topic("orders")
    producer = cluster.producer({"bootstrap.servers": "simulated"})
    producer.produce("orders", b"1")
    producer.flush()
    assert False
"""
IDLE = """
def test_one(simulated_cluster):
    simulated_cluster.lose_reply("EndTxn")
"""
LATE = """
from functools import partial

class Loop:
    def stop(self, reason=""):
        pass

def test_one(simulated_cluster):
    cluster = simulated_cluster
    cluster.create_topic("orders")
    cluster.after(1, lambda: cluster.write("orders", [b"1"]))
    cluster.after(60, lambda: cluster.write("orders", [b"2"]))
    cluster.after(50, cluster.restart_coordinator)
    cluster.after(90, Loop().stop)
    cluster.advance(20)

def test_the_other(simulated_cluster):
    simulated_cluster.after(90, partial(Loop().stop, "it does not end"))
"""


def test_a_failure_prints_the_seed_and_the_last_requests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FAILING)
    result = pytester.runpytest_subprocess("--eos-simulation-seed=17", "-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*repeat with --eos-simulation-seed=17*", "*SimulatedCluster(seed=17*", "*Produce: ok*"]
    )


def test_a_scripted_fault_that_no_request_has_met_fails_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(IDLE)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["no request met these scripted faults*lose the reply of EndTxn*"])
    result.stdout.no_fnmatch_line("*pytest.fail(*")


def test_a_scripted_action_that_was_due_after_the_end_is_warned_of_unless_it_was_a_stop(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(LATE)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(["*2 action(s) of cluster.after() have not run*first was due at 50.000 s*at 20.000 s*"])
