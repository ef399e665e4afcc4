"""A failing test shows the frames of the application, not those of the client under it."""

from __future__ import annotations

import pytest

FAILING = """
from eos_client import EosConfig, ExactlyOnceLoop

def price(order):
    raise LookupError("no price for this order")

def test_prices(simulated_cluster):
    simulated_cluster.create_topic("orders")
    simulated_cluster.write("orders", [b"1"])
    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing")
    ExactlyOnceLoop(config, ["orders"], price, clients=simulated_cluster).run()

def test_writes(simulated_cluster):
    simulated_cluster.write("no-such-topic", [b"1"])
"""
OURS = "*eos_client/*.py:*"


@pytest.fixture
def printed(run_pytest):
    """What pytest prints about the failing tests, with these arguments."""

    def run(*arguments: str) -> pytest.LineMatcher:
        code, printed = run_pytest(FAILING, *arguments)
        assert code == pytest.ExitCode.TESTS_FAILED
        return pytest.LineMatcher(printed.splitlines())

    return run


def test_a_failure_shows_the_tests_line_and_the_transforms_and_no_frame_of_ours(printed):
    lines = printed()
    lines.fnmatch_lines(['>*raise LookupError("no price for this order")', ">*simulated_cluster).run()"])
    lines.fnmatch_lines(['>*simulated_cluster.write("no-such-topic"*', "E *no-such-topic*", "*--full-trace shows them"])
    lines.no_fnmatch_line(OURS)


def test_our_frames_are_shown_to_who_asks(printed):
    printed("--override-ini=eos_client_frames=true").fnmatch_lines([OURS])
