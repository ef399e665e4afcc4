"""The default clock goes on while its host is suspended: a member's session ends meanwhile."""

import sys
import time

import pytest

from eos_client.clock import MONOTONIC_CLOCK

SUSPENDED_S = 3600.0


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such clock")
def test_the_time_for_which_the_host_was_suspended_counts(monkeypatch):
    real = time.clock_gettime
    began_at = MONOTONIC_CLOCK()
    monkeypatch.setattr(
        time, "clock_gettime", lambda clock: real(clock) + (SUSPENDED_S if clock == time.CLOCK_BOOTTIME else 0.0)
    )
    assert MONOTONIC_CLOCK() - began_at >= SUSPENDED_S
