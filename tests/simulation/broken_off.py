"""Exceptions that come between any two steps of the wrappers, as a signal handler's does, one step after the other."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import eos_client

_PACKAGE = Path(eos_client.__file__).parent
_STRUCK = tuple(str(_PACKAGE / part) for part in ("confluent", "core", "clients"))
_LISTENERS = str(_PACKAGE.parent / "listeners")


def strides(every: int) -> pytest.MarkDecorator:
    """Strike at step ``first`` and one in ``every`` from there; ``make soak-steps`` strikes those half way between."""
    return pytest.mark.parametrize("first", [1, pytest.param(1 + every // 2, marks=pytest.mark.soak)])


class StrikeError(BaseException):
    """What the signal handler raises."""


class StepStrike:
    """Raises `error` at the `number`-th step of the package's own code; `struck` says where."""

    def __init__(self, number: int, error: type[BaseException] = StrikeError) -> None:
        self.number = number
        self.error = error
        self.steps = 0
        self.struck = ""

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Count steps within, from anywhere."""
        before = sys.gettrace()
        # Kept: CPython 3.11 still calls the function where a strike inside a finalizer has just taken it away.
        enter = self._enter
        # A tracer hears of instructions only if a frame wants them before it is set (Python 3.12), and only in frames
        # that have a tracer when they want them (3.13, in `_enter`).
        sys._getframe().f_trace_opcodes = True
        sys.settrace(enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enter(self, frame: Any, _event: str, _argument: Any) -> Any:
        if self.struck or not self._strikes(frame.f_code):
            return None
        frame.f_trace = step = self._step_of_handing_over if _hands_over(frame.f_code) else self._step
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return step

    def _strikes(self, code: CodeType) -> bool:
        """Whether steps of this code are struck."""
        return _is_struck(code.co_filename)

    def _step(self, frame: Any, event: str, _argument: Any) -> None:
        """Count a step. This is called for each instruction, so it asks for nothing that `_enter` could."""
        if event == "opcode":
            if self.struck:
                frame.f_trace_opcodes = False
                return
            self.steps += 1
            if self.steps == self.number:
                self.struck = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
                self.strike()

    def _step_of_handing_over(self, frame: Any, event: str, argument: Any) -> None:
        if not _has_handed_over(frame):
            self._step(frame, event, argument)

    def strike(self) -> None:
        """What the signal handler does."""
        raise self.error(self.struck)


@cache
def _is_struck(file_name: str) -> bool:
    return str(Path(file_name).resolve()).startswith((*_STRUCK, _LISTENERS))


def _hands_over(code: CodeType) -> bool:
    return code.co_name in {"poll", "consume"} and code.co_filename.endswith("clients/consumer.py")


def _has_handed_over(frame: Any) -> bool:
    """Whether the last step is done: Python looks for signals there no more, and the records are the application's."""
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip().startswith("return ")


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
