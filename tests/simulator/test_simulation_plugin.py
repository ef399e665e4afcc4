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
