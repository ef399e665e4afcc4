"""The first signal stops the loop, the second has its default action, and the application's handlers come back."""

import signal
import subprocess
import sys
import threading

import pytest

from eos_client.loop.stop_signals import StopSignals

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture(autouse=True)
def handlers():
    """The application's own handlers: what arrives there lands in this list."""
    arrived = []

    def own(number, frame):
        arrived.append(number)

    before = {number: signal.signal(number, own) for number in SIGNALS}
    yield [own, arrived]
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_stops_and_gives_both_their_default_action_back(handlers, number):
    own, arrived = handlers
    reasons: list[str] = []
    with StopSignals(reasons.append):
        signal.raise_signal(number)
        assert reasons == [number.name]
        assert [signal.getsignal(each) for each in SIGNALS] == [signal.SIG_DFL] * 2
    assert [signal.getsignal(each) for each in SIGNALS] == [own] * 2
    assert arrived == []


def test_the_default_action_is_back_before_the_loop_is_asked_to_stop():
    seen = []
    with StopSignals(lambda reason: seen.append(signal.getsignal(signal.SIGTERM))):
        signal.raise_signal(signal.SIGTERM)
    assert seen == [signal.SIG_DFL]


def test_the_application_s_handlers_come_back_after_an_error(handlers):
    own, arrived = handlers
    with pytest.raises(ZeroDivisionError), StopSignals(lambda reason: None):
        raise ZeroDivisionError
    signal.raise_signal(signal.SIGTERM)
    assert arrived == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGINT) is own


def test_outside_the_main_thread_no_handler_is_touched(handlers):
    own, _ = handlers
    inside: list[object] = []

    def work():
        with StopSignals(lambda reason: None):
            inside.extend(signal.getsignal(each) for each in SIGNALS)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert inside == [own] * 2


AS_A_CONTAINER_DOES = ("unshare", "--pid", "--fork", "--kill-child")
"""Runs a command as process 1, for which the kernel ignores a signal's default action."""

TWO_SIGNALS = """
import os, signal
from eos_client.loop.stop_signals import StopSignals
with StopSignals(print):
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
    print("went on as process", os.getpid())
"""


def test_a_second_signal_ends_a_container_s_first_process_too():
    if subprocess.run([*AS_A_CONTAINER_DOES, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not make process 1")
    command = [*AS_A_CONTAINER_DOES, sys.executable, "-u", "-c", TWO_SIGNALS]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("SIGTERM\n", 128 + signal.SIGTERM)


# Python calls handlers in the order of the numbers: the first of both is SIGINT.
TOGETHER = """
both = [signal.SIGINT, signal.SIGTERM]
with StopSignals(print):
    signal.pthread_sigmask(signal.SIG_BLOCK, both)
    for number in both:
        os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
    print("went on")
"""
WHILE_THE_FIRST_IS_HANDLED = """
with StopSignals(lambda reason: signal.raise_signal(signal.SIGTERM)):
    signal.raise_signal(signal.SIGINT)
    print("went on")
"""
FORKED = """
with StopSignals(print):
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    time.sleep(0.1)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    signal.raise_signal(signal.SIGTERM)
"""
FORKED_AND_INTERRUPTED = """
with StopSignals(str):
    child = os.fork()
    if not child:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def ended(program: str) -> tuple[int, str, str]:
    """Run ``program`` in a process of its own; return its status (-15: ended by SIGTERM), and what it has printed."""
    head = "import os, signal, time\nfrom eos_client.loop.stop_signals import StopSignals\n"
    command = [sys.executable, "-c", head + program]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("program", [TOGETHER, WHILE_THE_FIRST_IS_HANDLED])
def test_a_second_signal_that_comes_together_with_the_first_ends_the_process(program):
    assert ended(program) == (-signal.SIGTERM, "", "")


def test_a_process_that_the_transform_forked_is_ended_by_sigterm_and_the_loop_by_its_own():
    assert ended(FORKED) == (0, "-15\nSIGTERM\n", "")


def test_ctrl_c_of_the_terminal_leaves_a_forked_process_to_finish_its_part_of_the_transform():
    """A terminal sends it to both; a pool whose worker dies would never give its result back."""
    assert ended(FORKED_AND_INTERRUPTED) == (0, "-2\n", "")
