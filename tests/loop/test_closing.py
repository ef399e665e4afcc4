"""Leaving the `with` block: in the thread that runs the loop, in another one, and afterwards."""

import threading

import pytest

from eos_client.errors import ClientClosedError, WrongThreadError
from eos_client.loop import exactly_once_loop
from eos_client.observe import ClientReported, LoopStopped
from tests.loop.bench import Bench, numbers
from tests.support.waiting import WAIT_S, wait_for


class Running:
    """A loop that runs in a thread of its own, with its transform held up in the first record until it is released."""

    def __init__(self, cluster, **options):
        self.working, self.released = threading.Event(), threading.Event()
        self.is_over = lambda: False
        self.bench = Bench(cluster, self._held_up, **options)
        self.bench.load(3)
        self.loop = self.bench.loop
        self.errors: list[BaseException] = []
        self.thread = threading.Thread(target=self._run, name="worker", daemon=True)
        self.thread.start()
        assert self.working.wait(WAIT_S)

    def _held_up(self, record):
        self.working.set()
        wait_for(lambda: self.released.is_set() or self.is_over(), "the end of the transform")
        return [record.value()]

    def _run(self):
        try:
            self.loop.run()
        except BaseException as error:  # noqa: BLE001  # it is the test's to judge
            self.errors.append(error)

    def ended(self):
        self.released.set()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()
        return self.errors


def test_leaving_the_block_in_another_thread_waits_until_the_running_one_has_finished(simulated_cluster):
    running = Running(simulated_cluster)
    with running.loop:
        running.is_over = lambda: running.loop._shutdown.reason is not None
    assert running.bench.is_closed
    assert [event.reason for event in running.bench.events(LoopStopped)] == ["closed by thread 'MainThread'"]
    assert running.ended() == []
    assert running.bench.written == numbers(1)


def test_leaving_the_block_in_another_thread_says_what_is_left_when_its_time_is_up(simulated_cluster, monkeypatch):
    monkeypatch.setattr(exactly_once_loop, "_CLOSE_MIN_S", 0.0)
    running = Running(simulated_cluster, shutdown_timeout_s=0.1)
    running.loop.close()
    assert not running.bench.is_closed, "its clients belong to the thread that still runs"
    (report,) = running.bench.events(ClientReported)
    assert "thread 'worker'" in report.error
    assert "shutdown_timeout_s=0.1" in report.error
    assert running.ended() == []
    assert running.bench.is_closed, "as soon as the transform returns"


def test_a_second_run_beside_the_first_is_refused_and_does_not_disturb_it(simulated_cluster):
    running = Running(simulated_cluster)
    with pytest.raises(WrongThreadError, match="runs in thread 'worker'"):
        running.loop.run()
    assert not running.bench.is_closed
    running.loop.stop()
    assert running.ended() == []


@pytest.mark.parametrize("first", ["run", "close"])
def test_a_loop_that_has_ended_says_that_another_one_is_to_be_built(simulated_cluster, first):
    bench = Bench(simulated_cluster, lambda record: [])
    bench.loop.stop()
    getattr(bench.loop, first)()
    with pytest.raises(ClientClosedError, match="Build another ExactlyOnceLoop"):
        bench.loop.run()
    assert len(bench.events(LoopStopped)) == 1


def test_a_loop_that_never_ran_may_be_closed_twice_from_any_thread(simulated_cluster):
    bench = Bench(simulated_cluster, lambda record: [])
    bench.loop.close()
    closer = threading.Thread(target=bench.loop.close, daemon=True)
    closer.start()
    closer.join(WAIT_S)
    assert not closer.is_alive()
    assert [type(event) for _, event in bench.told] == [LoopStopped]


def test_close_inside_run_stops_the_loop_which_then_ends_as_after_stop(simulated_cluster):
    """In the transform, a hook or a signal handler: half of a close would leave the member in its group."""

    def closing(record):
        bench.loop.close()
        return [record.value()]

    bench = Bench(simulated_cluster, closing)
    bench.load(3)
    bench.run()
    bench.loop.close()
    assert bench.is_closed
    (stopped,) = bench.events(LoopStopped)
    assert stopped.reason == "close() was called inside run()"
    assert bench.written == numbers(1)
