"""A strike that knows which call its step is of strikes what one that counts every step does."""

from __future__ import annotations

import dis
from typing import Any

import pytest

from eos_client import EosConsumer
from tests.clients.struck_steps import StepStrike, counted
from tests.clients.test_interrupted_calls import ReadingApplication


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
        struck = reads(StepStrike(number))
        assert struck
        assert reads(StepStrike(number), steps) == struck, f"step {number}"


def test_beyond_the_last_step_nothing_is_struck(steps: StepStrike) -> None:
    assert reads(StepStrike(steps.steps + 1)) == reads(StepStrike(steps.steps + 1), steps) == ""


def test_where_the_call_has_fewer_steps_than_were_counted_one_of_the_next_is_struck(steps: StepStrike) -> None:
    class LongerCall(StepStrike):
        def place_of(self, number: int) -> tuple[int, int]:
            return 1, steps._call_of.count(1) + 5

    strike = StepStrike(1)
    assert reads(strike, LongerCall(0))
    assert strike._calls > 1


@pytest.mark.parametrize("method", [EosConsumer.poll, EosConsumer.consume])
def test_nothing_is_called_once_records_are_handed_over(method: Any) -> None:
    """Python runs signal handlers when a function begins, after calls and at the ends of loops."""
    steps = [step.opname for step in dis.get_instructions(method) if step.opname != "CACHE"]
    closes = next(
        number
        for number, step in enumerate(dis.get_instructions(method))
        if (step.opname, step.argval) == ("STORE_ATTR", "state")
    )
    after = steps[closes + 1 :]
    until_the_end = after[: after.index("RETURN_VALUE")]
    assert until_the_end
    assert not [step for step in until_the_end if not step.startswith(("LOAD_", "STORE_", "SWAP", "POP_BLOCK", "NOP"))]
