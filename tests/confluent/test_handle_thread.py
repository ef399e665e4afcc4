"""A call is bounded from outside: what the library does not end in time is left behind, never waited for."""

from __future__ import annotations

import ctypes
import gc
import itertools
import queue
import threading
import time
import weakref
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client import completion
from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent import handle_thread
from eos_client.confluent.handle_thread import HandleThread, OverdueError
from tests.clients.struck_steps import StepStrike, StrikeError
from tests.confluent.threads import PATIENCE_S, StoppedClock, threads_named
from tests.interruption import BrokenOffError
from tests.support.waiting import wait_for


@pytest.fixture
def handle():
    made = HandleThread("handle")
    yield made
    made.end()


def answer(handle, function):
    answers = []
    handle.call(lambda: answers.append(function()), PATIENCE_S)
    return answers[0]


def test_calls_run_one_at_a_time_in_one_thread_that_is_not_the_callers(handle):
    idents = {answer(handle, threading.get_ident) for _ in range(5)}
    assert len(idents) == 1
    assert threading.get_ident() not in idents


def test_the_thread_does_not_keep_the_process_alive(handle):
    assert answer(handle, lambda: threading.current_thread().daemon) is True
    assert answer(handle, lambda: threading.current_thread().name) == "handle"


def test_an_error_is_raised_again_in_the_callers_thread_with_its_traceback_and_cause(handle):
    cause = KeyError("cause")

    def fails():
        raise ValueError("no") from cause

    with pytest.raises(ValueError, match="no") as raised:
        handle.call(fails, PATIENCE_S)
    assert raised.value.__cause__ is cause
    assert "fails" in [entry.name for entry in raised.traceback]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_even_what_ends_a_process_is_raised_in_the_callers_thread_and_not_swallowed(handle, error):
    def fails():
        raise error

    with pytest.raises(error):
        handle.call(fails, PATIENCE_S)
    assert answer(handle, lambda: "still serving") == "still serving"


def raise_as_the_binding_does(error):
    """Raise what is no exception; Python itself would refuse to."""
    restore, keep = ctypes.pythonapi.PyErr_Restore, ctypes.pythonapi.Py_IncRef
    restore.argtypes, restore.restype = [ctypes.py_object, ctypes.py_object, ctypes.c_void_p], None
    keep.argtypes, keep.restype = [ctypes.py_object], None
    for each in (type(error), error):
        keep(each)
    restore(type(error), error, None)


def test_an_error_that_is_no_exception_is_raised_as_one_and_no_success(handle):
    """What confluent_kafka raises out of a call that meets a fatal error."""
    error = KafkaError(KafkaError._FENCED, "fenced by a newer instance", fatal=True)
    with pytest.raises(KafkaException) as raised:
        handle.call(lambda: raise_as_the_binding_does(error), PATIENCE_S)
    assert raised.value.args[0] is error
    assert answer(handle, lambda: "still serving") == "still serving"


def test_an_overdue_call_leaves_the_caller_free_within_its_budget(handle):
    release = threading.Event()
    began_at = time.monotonic()
    with pytest.raises(OverdueError, match=r"no answer within 0\.05 s"):
        handle.call(release.wait, 0.05)
    assert time.monotonic() - began_at < PATIENCE_S
    release.set()


def test_what_an_overdue_call_raises_later_is_never_taken_for_another_calls_error(handle):
    release = threading.Event()
    with pytest.raises(OverdueError):
        handle.call(lambda: release.wait() and int("late"), 0.02)
    release.set()
    assert answer(handle, lambda: "mine") == "mine"


def test_abandoning_a_stuck_handle_does_not_wait_and_destroys_it_once_it_is_free():
    release, destroyed = threading.Event(), threading.Event()
    handle = HandleThread("stuck")
    with pytest.raises(OverdueError):
        handle.call(release.wait, 0.02)
    began_at = time.monotonic()
    handle.abandon(destroyed.set)
    assert time.monotonic() - began_at < PATIENCE_S
    assert not destroyed.is_set()
    release.set()
    assert destroyed.wait(PATIENCE_S)
    wait_for(lambda: not threads_named("stuck"), "the end of the thread")


def test_a_handle_that_is_abandoned_inside_a_call_is_served_until_it_is_destroyed_and_never_at_once_with_that():
    release, order = threading.Event(), []
    handle = HandleThread("served")
    with pytest.raises(OverdueError):
        handle.call(release.wait, 0.02)

    def serve():
        order.append("served")
        raise KafkaException("nobody hears of it")

    def destroy():
        order.append("destroying")
        time.sleep(3 * handle_thread._SERVED_EVERY_S)
        order.append("destroyed")

    handle.abandon(destroy, serve)
    wait_for(lambda: len(order) >= 3, "three servings")
    assert set(order) == {"served"}
    release.set()
    wait_for(lambda: not threads_named("served"), "the end of the thread")
    wait_for(lambda: not threads_named("served, abandoned"), "the end of the thread that served")
    assert [each for each in order if each != "served"] == ["destroying", "destroyed"]
    assert order[-2:] == ["destroying", "destroyed"]


def test_a_handle_that_is_free_when_it_is_abandoned_is_not_served(monkeypatch):
    served = []
    handle = HandleThread("free")
    assert answer(handle, lambda: 1) == 1
    monkeypatch.setattr(handle_thread, "_AbandonedHandle", None)
    handle.abandon(lambda: None, lambda: served.append(1))
    wait_for(lambda: not threads_named("free"), "the end of the thread")
    assert not threads_named("free, abandoned")
    assert served == []


@pytest.mark.parametrize("clock", [MONOTONIC_CLOCK, StoppedClock()], ids=["real time", "simulated time"])
def test_an_abandoned_thread_ends_even_if_destroying_its_handle_fails(clock):
    def fails():
        raise RuntimeError("no")

    HandleThread("failing", clock).abandon(fails)
    wait_for(lambda: not threads_named("failing"), "the end of the thread")


def test_a_thread_that_is_no_longer_needed_ends():
    handle = HandleThread("needless")
    assert answer(handle, lambda: 1) == 1
    handle.end()
    wait_for(lambda: not threads_named("needless"), "the end of the thread")


def test_a_call_behind_one_that_is_still_running_has_its_own_time_after_that_ones(handle):
    released = threading.Event()
    with pytest.raises(OverdueError, match=r"0\.05 s"):
        handle.call(lambda: released.wait(PATIENCE_S), 0.05)
    with pytest.raises(OverdueError, match=r"0\.15 s"):
        handle.call(lambda: "behind it", 0.1)
    released.set()
    assert answer(handle, lambda: "at its turn") == "at its turn"


def test_a_call_after_the_end_is_overdue_and_does_not_hang():
    handle = HandleThread("ended")
    handle.end()
    with pytest.raises(OverdueError):
        handle.call(lambda: 1, 0.05)


def test_any_other_clock_is_taken_for_a_real_one():
    class Ours:
        __call__ = staticmethod(time.monotonic)
        sleep = staticmethod(time.sleep)

    handle = HandleThread("ours", Ours())
    with pytest.raises(OverdueError):
        handle.call(lambda: time.sleep(0.5), 0.05)
    handle.end()


def test_where_time_is_simulated_a_call_on_a_slow_machine_is_not_overdue():
    slept = []

    def slow():
        time.sleep(0.2)
        slept.append(True)

    handle = HandleThread("simulated", StoppedClock())
    handle.call(slow, 0.01)
    assert slept
    handle.end()


def test_where_time_is_simulated_an_abandoned_handle_is_destroyed_before_anything_else_happens():
    destroyed_by = []
    handle = HandleThread("simulated", StoppedClock())
    handle.abandon(lambda: destroyed_by.append(threading.current_thread()))
    assert destroyed_by == [threading.current_thread()]
    wait_for(lambda: not threads_named("simulated"), "the end of the thread")


def test_where_time_is_simulated_a_handle_that_is_abandoned_inside_its_own_call_is_destroyed_after_it():
    order = []
    handle = HandleThread("simulated", StoppedClock())

    def callback():
        handle.abandon(lambda: order.append("destroyed"))
        order.append("returned")

    handle.call(callback, PATIENCE_S)
    wait_for(lambda: not threads_named("simulated"), "the end of the thread")
    assert order == ["returned", "destroyed"]


class Handle:
    """Something whose end can be watched."""

    def answer(self):
        return "answer"

    def refuse(self):
        raise ValueError("no")

    def itself(self):
        return self


@pytest.fixture
def _no_garbage_collector():
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_garbage_collector")
@pytest.mark.parametrize("method", ["answer", "refuse", "itself"])
def test_a_handle_is_gone_as_soon_as_its_owner_drops_it_whatever_its_calls_have_answered(handle, method):
    client = Handle()
    gone = weakref.ref(client)
    with suppress(ValueError):
        handle.call(getattr(client, method), PATIENCE_S)
    del client
    wait_for(lambda: gone() is None, "the end of the handle")


class WaitStrike(StepStrike):
    """Strikes where a call waits for its thread, also in what the standard library does for it."""

    _FILES = (handle_thread.__file__, completion.__file__, threading.__file__)

    def _strikes(self, code):
        return code.co_filename in self._FILES


def in_time(act):
    """Return what ``act`` returns, or fail where it never does."""
    returned: queue.SimpleQueue[object] = queue.SimpleQueue()
    threading.Thread(target=lambda: returned.put(act()), daemon=True).start()
    return returned.get(timeout=PATIENCE_S)


@pytest.mark.parametrize("clock", [MONOTONIC_CLOCK, StoppedClock()], ids=["real", "simulated"])
def test_whatever_step_of_a_wait_is_struck_the_exception_comes_out_and_the_thread_goes_on(clock):
    for number in itertools.count(1):
        handle, ended = HandleThread("handle", clock), list[int]()

        def work(ends=ended):
            time.sleep(0.005)
            ends.append(1)

        strike = WaitStrike(number)
        with suppress(StrikeError), strike.armed():
            handle.call(work, PATIENCE_S)
        ended_by_then = len(ended)
        assert in_time(lambda used=handle: answer(used, lambda: 42)) == 42, strike.struck
        if not handle.is_real:
            assert len(ended) == ended_by_then, f"{strike.struck}: the call went on beside the caller"
        handle.end()
        if not strike.struck:
            break
    assert number > 10


def test_what_a_signal_handler_raises_while_the_thread_starts_comes_out_as_it_is(monkeypatch):
    """``Thread.start()`` catches it, and fails with a KeyError of its own where the thread runs already."""

    def start(_):
        error = KeyError("limbo")
        error.__context__ = StrikeError()
        raise error

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(StrikeError):
        HandleThread("struck")


def test_a_key_error_of_the_start_itself_comes_out(monkeypatch):
    def start(_):
        raise KeyError("limbo")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyError):
        HandleThread("struck")


def test_no_second_exception_leaves_a_call_running_beside_its_caller_in_simulated_time(interrupt):
    handle, ended = HandleThread("handle", StoppedClock()), list[int]()

    def work():
        for _ in range(2):
            interrupt()
            time.sleep(0.05)
        ended.append(1)

    with pytest.raises(BrokenOffError):
        handle.call(work, PATIENCE_S)
    assert ended
    handle.end()


def test_a_thread_whose_start_is_interrupted_ends(monkeypatch):
    def struck(thread):
        thread.start()
        raise BrokenOffError

    monkeypatch.setattr(handle_thread, "_start", struck)
    with pytest.raises(BrokenOffError):
        HandleThread("never owned")
    wait_for(lambda: not threads_named("never owned"), "the thread to end")
