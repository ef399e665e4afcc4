"""Leaving the `with` block: in the thread that runs the loop, in another one, and afterwards."""

import threading

import pytest

from eos_client.errors import ClientClosedError, WrongThreadError
from eos_client.observe import ClientReported, LoopStopped
from tests.loop.fakes import Bench

WAIT_S = 30.0


class Held:
    """A transform that is held up until it is released; `worked` becomes true when it is under way."""

    def __init__(self):
        self.working = threading.Event()
        self.released = threading.Event()

    def __call__(self, record):
        self.working.set()
        assert self.released.wait(WAIT_S)
        return [record.value()]


class Running:
    """A loop on fakes that runs in a thread of its own, with its transform held up in the first record."""

    def __init__(self, monkeypatch, **options):
        self.held = Held()
        self.bench = Bench(monkeypatch, self.held, **options)
        self.bench.load(3)
        self.loop = self.bench.loop
        self.errors: list[BaseException] = []
        self.thread = threading.Thread(target=self._run, name="worker", daemon=True)
        self.thread.start()
        assert self.held.working.wait(WAIT_S)

    def _run(self):
        try:
            self.loop.run()
        except BaseException as error:  # noqa: BLE001  # it is the test's to judge
            self.errors.append(error)

    def ended(self):
        self.held.released.set()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()
        return self.errors


def test_leaving_the_block_in_another_thread_waits_until_the_running_one_has_finished(monkeypatch):
    running = Running(monkeypatch)
    threading.Timer(0.2, running.held.released.set).start()
    with running.loop:
        pass
    assert running.bench.producer.is_closed
    assert [event.reason for event in running.bench.events if isinstance(event, LoopStopped)] == [
        "closed by thread 'MainThread'"
    ]
    assert running.ended() == []
    assert running.bench.producer.written == [b"0"]


def test_leaving_the_block_in_another_thread_says_what_is_left_when_its_time_is_up(monkeypatch):
    running = Running(monkeypatch, shutdown_timeout_s=0.1)
    running.loop.close()
    assert not running.bench.producer.is_closed, "it belongs to the thread that still runs"
    (said,) = [event.error for event in running.bench.events if isinstance(event, ClientReported)]
    assert "thread 'worker'" in said
    assert "shutdown_timeout_s=0.1" in said
    assert running.ended() == []
    assert running.bench.producer.is_closed, "as soon as the transform returns"


def test_a_second_run_beside_the_first_is_refused_and_does_not_disturb_it(monkeypatch):
    running = Running(monkeypatch)
    with pytest.raises(WrongThreadError, match="runs in thread 'worker'"):
        running.loop.run()
    assert not running.bench.producer.is_closed
    running.loop.stop()
    assert running.ended() == []


@pytest.mark.parametrize("first", ["run", "close"])
def test_a_loop_that_has_ended_says_that_another_one_is_to_be_built(monkeypatch, first):
    bench = Bench(monkeypatch, lambda record: [])
    bench.loop.stop()
    getattr(bench.loop, first)()
    with pytest.raises(ClientClosedError, match="Build another ExactlyOnceLoop"):
        bench.loop.run()
    assert len([event for event in bench.events if isinstance(event, LoopStopped)]) == 1


def test_a_loop_that_never_ran_may_be_closed_twice_from_any_thread(monkeypatch):
    bench = Bench(monkeypatch, lambda record: [])
    bench.loop.close()
    closer = threading.Thread(target=bench.loop.close, daemon=True)
    closer.start()
    closer.join(WAIT_S)
    assert not closer.is_alive()
    assert [type(event) for event in bench.events] == [LoopStopped]


def test_close_inside_run_stops_the_loop_which_then_ends_as_after_stop(monkeypatch):
    """In the transform, a hook or a signal handler: half of a close would leave the member in its group."""

    def closing(record):
        bench.loop.close()
        return [record.value()]

    bench = Bench(monkeypatch, closing)
    bench.load(3)
    bench.loop.run()
    assert bench.producer.is_closed
    (stopped,) = [event for event in bench.events if isinstance(event, LoopStopped)]
    assert stopped.reason == "close() was called inside run()"
    assert bench.producer.written == [b"0"]
    bench.loop.close()
