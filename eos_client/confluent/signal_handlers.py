"""Tells whether a signal handler of the application has raised an exception, inside a call of ours."""

from __future__ import annotations

import signal
import traceback
from functools import partial
from types import CodeType
from typing import Any


def is_of_a_handler(error: BaseException | None) -> bool:
    """Whether ``error``, or what has caused it, has passed through a function that is installed as a signal handler."""
    codes = {code for number in signal.valid_signals() if (code := _code_of(signal.getsignal(number))) is not None}
    seen: set[int] = set()
    while error is not None and id(error) not in seen and codes:
        seen.add(id(error))
        if any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    for each in (handler, vars(type(handler)).get("__call__")):  # a function, or an object that is called
        if isinstance(code := getattr(each, "__code__", None), CodeType):
            return code
    return None
