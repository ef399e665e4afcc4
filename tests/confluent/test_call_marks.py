"""A call inside another one is found, whatever stands in between; one that was interrupted is not taken for a call."""

from __future__ import annotations

import functools
import gc
import signal
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from eos_client.confluent.call_marks import CallMarks, in_library
from eos_client.confluent.thread_ownership import NeverBuilt, ThreadOwnership, counts_as_call, is_in_call, owned
from eos_client.errors import ClientClosedError, TransactionStateError
from tests.clients.struck_steps import StepStrike, StrikeError
from tests.confluent.threads import elsewhere


class Client:
    """``polls`` runs what it is given while it is under way, and ``closes`` may not come inside."""

    _ownership: ThreadOwnership | NeverBuilt = NeverBuilt("Client closed")

    def __init__(self) -> None:
        self._ownership = ThreadOwnership("Client", shared=True)

    @owned()
    def polls(self, meanwhile: Callable[[], Any]) -> Any:
        return meanwhile()

    @counts_as_call
    def produces(self, meanwhile: Callable[[], Any]) -> Any:
        return meanwhile()

    @owned(exclusive=True)
    def closes(self) -> str:
        return "closed"


def interrupted(call: Callable[[], Any]) -> Iterator[StepStrike]:
    """Break ``call`` off at its first step, at its second, and so on."""
    for number in count(1):
        strike = StepStrike(number)
        with suppress(StrikeError), strike.armed():
            call()
        if not strike.struck:
            assert number > 10
            return
        yield strike


@pytest.mark.parametrize("outer", ["polls", "produces"])
def test_a_call_in_a_callback_of_another_one_is_refused(outer: str) -> None:
    client = Client()
    with pytest.raises(TransactionStateError, match=r"closes\(\) inside another call of the same client"):
        getattr(client, outer)(client.closes)
    assert client.closes() == "closed"


def test_a_call_in_a_signal_handler_inside_another_one_is_refused() -> None:
    client = Client()
    before = signal.signal(signal.SIGUSR1, lambda *_: client.closes())
    try:
        with pytest.raises(TransactionStateError, match=r"closes\(\) inside another call"):
            client.polls(lambda: signal.raise_signal(signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert client.closes() == "closed"


def test_a_call_in_another_thread_is_not_inside_this_one() -> None:
    client = Client()
    assert client.polls(lambda: elsewhere(client.closes)) == "closed"


def test_a_call_of_another_client_is_not_inside_this_one() -> None:
    client, other = Client(), Client()
    assert client.polls(other.closes) == "closed"


def test_a_nested_call_is_found_under_wrapper_functions() -> None:
    class Measured(Client):
        def closes(self) -> str:
            return super().closes()

        @functools.lru_cache  # noqa: B019  # of one object, in C
        def polls(self, meanwhile: Callable[[], Any]) -> Any:
            return super().polls(meanwhile)

    client = Measured()
    with pytest.raises(TransactionStateError, match="inside another call"):
        client.polls(lambda: client.closes())  # noqa: PLW0108  # one more
    assert client.closes() == "closed"


@pytest.mark.parametrize("outer", ["polls", "produces"])
def test_a_call_that_was_interrupted_at_any_step_is_not_under_way(outer: str) -> None:
    client = Client()
    for strike in interrupted(lambda: getattr(client, outer)(str)):
        assert not is_in_call(client), strike.struck
        assert client._ownership.marks.stack == (), strike.struck
        assert client.closes() == "closed"


def test_a_call_inside_which_another_one_was_interrupted_is_under_way() -> None:
    client = Client()

    def call_and_catch(strike: StepStrike) -> None:
        with suppress(StrikeError), strike.armed():
            client.polls(str)
        assert is_in_call(client), strike.struck

    steps = sum(1 for _ in interrupted(lambda: client.polls(str)))
    for number in range(1, steps + 1):
        client.polls(functools.partial(call_and_catch, StepStrike(number)))
        assert not is_in_call(client)


def test_a_mark_is_set_and_taken_away_once_whichever_step_a_handler_looks_at() -> None:
    found: list[bool] = []
    marks = CallMarks()

    class Looks(StepStrike):
        def strike(self) -> None:
            found.append(marks.is_under_way("call"))

    for number in count(1):
        strike = Looks(number)
        with strike.armed():
            marks.run("call", str)
        if not strike.struck:
            break
    changes = [now for now, before in zip(found, [None, *found], strict=False) if now is not before]
    assert changes == [False, True, False]


def test_a_call_that_has_ended_keeps_nothing_alive() -> None:
    class Record:
        pass

    marks, records = CallMarks(), [Record()]
    known = weakref.ref(records[0])
    gc.disable()
    try:
        marks.run("call", lambda _: None, records.pop())
        assert known() is None
    finally:
        gc.enable()


def test_kinds_of_calls_are_told_apart() -> None:
    marks = CallMarks()
    found = marks.run(
        "outer", marks.run, "inner", lambda: [marks.is_under_way(kind) for kind in ("outer", "inner", "other")]
    )
    assert found == [True, True, False]
    assert marks.run("outer", marks.is_under_way)
    assert not marks.is_under_way()


def test_a_call_into_the_library_is_refused_inside_another_one_and_passes_after_one_that_was_interrupted() -> None:
    marks = CallMarks()
    with pytest.raises(TransactionStateError, match="confluent_kafka would end the process"):
        in_library(marks, lambda: in_library(marks, str))
    for strike in interrupted(lambda: in_library(marks, str)):
        assert in_library(marks, lambda: "served") == "served", strike.struck


def test_a_client_that_was_never_built_says_so() -> None:
    client = Client.__new__(Client)
    with pytest.raises(ClientClosedError, match=r"closes\(\) was called before super"):
        client.closes()
