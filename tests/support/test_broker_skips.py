"""Skips that the broker is to blame for are counted over all processes of a session, and fail it above a budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broker_skips import SKIPS_MAX
from tests.support.inner_session import run_pytest

TESTS = """
import pytest
from tests.support.broker_skips import skip_broken_by_broker

@pytest.mark.parametrize("number", range({count}))
def test_that_cannot_be_judged(number):
    skip_broken_by_broker("no markers")

def test_that_is_skipped_for_another_reason():
    pytest.skip("no such system")

def test_that_passes():
    pass
"""


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize(("count", "exit_code"), [(SKIPS_MAX, 0), (SKIPS_MAX + 1, 1)], ids=["within", "above"])
def test_a_session_fails_above_the_budget(tmp_path: Path, processes: int, count: int, exit_code: int) -> None:
    ran = run_pytest(tmp_path, TESTS.format(count=count), "tests.support.broker_skips", processes=processes)
    assert ran.returncode == exit_code, ran.stdout
    assert ("too many tests were skipped" in ran.stdout) is bool(exit_code), ran.stdout
    assert ran.stdout.count("test_that_cannot_be_judged[") == (count if exit_code else 0), ran.stdout
