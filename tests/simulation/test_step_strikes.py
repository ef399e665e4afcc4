"""A strike that knows which call its step is of strikes what one that counts every step does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.broken_off import ActingStrike, StepStrike, counted
from tests.simulation.test_broken_off_calls import ReadingApplication


def reads(strike: StepStrike, steps: StepStrike | None = None) -> str:
    reader: Any = ReadingApplication()
    with strike.armed(steps):
        reader.does(reader.polls, reader.consumes(3))
    return strike.struck


@pytest.fixture(scope="module")
def steps() -> StepStrike:
    return counted(reads)


def test_both_strike_the_same_step(steps: StepStrike) -> None:
    for number in (1, *range(2, steps.steps, 97), steps.steps):
        struck = reads(ActingStrike(number))
        assert struck
        assert reads(ActingStrike(number), steps) == struck, f"step {number}"


def test_beyond_the_last_step_nothing_is_struck(steps: StepStrike) -> None:
    assert reads(ActingStrike(steps.steps + 1)) == reads(ActingStrike(steps.steps + 1), steps) == ""


def test_where_the_call_has_fewer_steps_than_were_counted_one_of_the_next_is_struck(steps: StepStrike) -> None:
    class LongerCall(ActingStrike):
        def place_of(self, number: int) -> tuple[int, int]:
            return 1, steps._call_of.count(1) + 5

    struck = reads(ActingStrike(1), LongerCall(0))
    assert struck
    assert struck.split()[-1] != reads(ActingStrike(1), steps).split()[-1]
