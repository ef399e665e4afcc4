"""Exceptions that come between any two steps of the wrappers, as a signal handler's does, one step after the other."""

from __future__ import annotations

import gc
import linecache
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

import pytest

import eos_client

_Run = TypeVar("_Run")
_PACKAGE = Path(eos_client.__file__).parent
_STRUCK = tuple(str(_PACKAGE / part) for part in ("confluent", "core", "clients"))
_LISTENERS = str(_PACKAGE.parent / "listeners")


def strides(every: int) -> pytest.MarkDecorator:
    """Strike at step ``first`` and one in ``every`` from there; soak tests strike those half way between."""
    return pytest.mark.parametrize("first", [1, pytest.param(1 + every // 2, marks=pytest.mark.soak)])


class StrikeError(BaseException):
    """What the signal handler raises."""


class StepStrike:
    """Raises `error` at the `number`-th step of the package's own code; `struck` says where.

    With 0 for ``number`` none is struck, and the steps are counted for `armed`.
    """

    def __init__(self, number: int, error: type[BaseException] = StrikeError) -> None:
        self.number = number
        self.error = error
        self.steps = 0
        self.struck = ""
        self._calls = 0
        self._call_of = array("L")  # of each step that was counted for others, the number of the call that it is of
        self._call, self._left = 0, number
        self._is_past = False

    @contextmanager
    def armed(self, counted: StepStrike | None = None) -> Iterator[None]:
        """Count steps within, from anywhere. Garbage is not looked for: its finalizers are no steps of these acts.

        ``counted``: what has counted the steps of the same acts. Then only calls are followed up to the one that is
        struck, which takes a fraction of the time, and a number beyond all steps strikes nothing.
        """
        before, collects = sys.gettrace(), gc.isenabled()
        if counted is not None:
            self._call, self._left = counted.place_of(self.number)
        gc.disable()
        # Kept: CPython 3.11 still calls the function where a strike inside a finalizer has just taken it away.
        enter = self._enter if counted is None else self._follow
        # A tracer hears of instructions only if a frame wants them before it is set (Python 3.12), and only in frames
        # that have a tracer when they want them (3.13, in `_enter`).
        sys._getframe().f_trace_opcodes = True
        sys.settrace(enter)
        try:
            yield
        finally:
            sys.settrace(before)
            if collects:
                gc.enable()

    def place_of(self, number: int) -> tuple[int, int]:
        """The number of the call that this step is of, and which of its own steps it is; a call beyond all without."""
        if number > self.steps:
            return self._calls + 1, 1
        call = self._call_of[number - 1]
        return call, self._call_of[:number].count(call)

    def _enter(self, frame: Any, _event: str, _argument: Any) -> Any:
        if self.struck or not self._strikes(frame.f_code):
            return None
        self._calls += 1
        return _traced(frame, self._counts_for_others(self._calls) if self.number == 0 else self._step)

    def _follow(self, frame: Any, _event: str, _argument: Any) -> Any:
        """As `_enter`, where the number of the call that is struck is known."""
        if self.struck or not self._strikes(frame.f_code):
            return None
        self._calls += 1
        return _traced(frame, self._step) if self._calls == self._call or self._is_past else None

    def _strikes(self, code: CodeType) -> bool:
        """Whether steps of this code are struck."""
        return is_of_the_clients(code.co_filename)

    def _step(self, frame: Any, event: str, _argument: Any) -> None:
        """Count a step. This is called for each instruction, so it asks for nothing that `_enter` could."""
        if event == "opcode":
            if self.struck:
                frame.f_trace_opcodes = False
                return
            self.steps += 1
            self._left -= 1
            if not self._left:
                self.struck = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
                self.strike()
        elif event == "return" and self._call:  # it had fewer steps than were counted: those of the next calls are left
            self._is_past = True

    def _counts_for_others(self, call: int) -> Any:
        """A `_step` that keeps which call the step is of."""

        def step(_frame: Any, event: str, _argument: Any) -> None:
            if event == "opcode":
                self.steps += 1
                self._call_of.append(call)

        return step

    def strike(self) -> None:
        """What the signal handler does."""
        raise self.error(self.struck)


def counted(run: Callable[[StepStrike], Any], kind: Callable[[int], StepStrike] = StepStrike) -> StepStrike:
    """Count the steps of what ``run`` does with the strike armed: twice, as the first time fills caches."""
    run(kind(0))
    run(strike := kind(0))
    return strike


def struck_runs(
    run: Callable[..., _Run],
    every: int,
    *,
    first: int = 1,
    kind: Callable[[int], StepStrike] = StepStrike,
    steps_min: int = 1,
) -> Iterator[tuple[_Run, StepStrike]]:
    """Strike step ``first`` of what ``run(strike, steps)`` does, and one in ``every`` from there, each in a new run.

    Yields what the run returned, with its strike. There must be ``steps_min`` steps.
    """
    steps = counted(run, kind)
    assert steps.steps >= steps_min
    for number in range(first, steps.steps + 1, every):
        strike = kind(number)
        yield run(strike, steps), strike


def _traced(frame: Any, step: Any) -> Any:
    """Let ``step`` be called for each instruction of the frame up to the hand-over."""

    def step_until_handed_over(frame: Any, event: str, argument: Any) -> None:
        if event != "opcode" or not _has_handed_over(frame):
            step(frame, event, argument)

    frame.f_trace = traced = step_until_handed_over if _hands_over(frame.f_code) else step
    frame.f_trace_opcodes = True
    frame.f_trace_lines = False
    return traced


@cache
def is_of_the_clients(file_name: str) -> bool:
    return str(Path(file_name).resolve()).startswith((*_STRUCK, _LISTENERS))


def _hands_over(code: CodeType) -> bool:
    return code.co_name == "handing_over" and code.co_filename.endswith("clients/consumer.py")


def _has_handed_over(frame: Any) -> bool:
    """Whether the last step is done: Python looks for signals there no more, and the records are the application's."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    is_leaving = line == "marks.stack = outside" and not frame.f_locals["self"]._table.state.call_is_unfinished
    return is_leaving or line.startswith("return ")


class CallStrike:
    """Raises before or after the `number`-th call into the raw clients: what the call did is not told."""

    def __init__(self, number: int, *, after: bool) -> None:
        self.number = number
        self.after = after
        self.calls = 0
        self.is_armed = False
        self.struck = ""

    def around(self, client: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The `factory` of a wrapper whose raw client's calls are struck."""
        return lambda settings: _StruckClient(client(settings), self)

    def call(self, name: str, act: Callable[[], Any]) -> Any:
        """Do `act`, and strike when it is its turn."""
        if not self.is_armed:
            return act()
        self.calls += 1
        is_due = self.calls == self.number
        if is_due and not self.after:
            self.struck = f"before {name}"
            raise StrikeError(self.struck)
        result = act()
        if is_due:
            self.struck = f"after {name}"
            raise StrikeError(self.struck)
        return result


def struck_calls(
    made: Callable[[CallStrike], _Run], *, after: bool, first: int = 1, every: int = 1, calls_min: int
) -> Iterator[tuple[_Run, CallStrike]]:
    """Strike call ``first``, and one in ``every`` from there, of what is ``made`` with the strike, each in a new run.

    Yields it, and the strike armed. The last run has fewer calls than that; there must be ``calls_min`` calls.
    """
    for number in count(first, every):
        strike = CallStrike(number, after=after)
        run = made(strike)
        strike.is_armed = True
        yield run, strike
        if strike.calls < number:
            assert number > calls_min
            return


class _StruckClient:
    def __init__(self, raw: Any, strike: CallStrike) -> None:
        self._raw = raw
        self._strike = strike

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._raw, name)
        if not callable(method):
            return method
        return lambda *arguments, **named: self._strike.call(name, lambda: method(*arguments, **named))

    def __len__(self) -> int:
        return len(self._raw)
