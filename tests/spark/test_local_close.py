"""close() of a sink inside its own call, out of a hook or a signal handler: nobody waits for itself.

Each call is made in a thread of its own, so that one which never returns fails its test and holds up nothing.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest
from pyspark import InheritableThread

from eos_client.core.commit_gate import GateLost
from eos_client.errors import RunFencedError
from eos_client.integration.spark import driver_run
from eos_client.integration.spark.driver_run import DriverRun
from eos_client.observe import Event, SparkBatchWritten, SparkLeaseRenewed, SparkRunFenced, SparkRunStarted
from tests.spark.local_query import each_once

LIMIT_S = 240.0  # the first batch on a busy machine takes more than a minute


def in_a_thread(function, *arguments):
    """What the call ends with, as a future."""
    ended: Future[object] = Future()

    def run():
        try:
            ended.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001  # it is raised where the future is asked
            ended.set_exception(error)

    InheritableThread(run, daemon=True).start()
    return ended


def outcome(function, *arguments):
    return in_a_thread(function, *arguments).result(LIMIT_S)


def lose_the_lease(sink):
    run = driver_run.current_run(sink.settings)
    assert run is not None
    gate = run._lease.gate
    gate.tell(GateLost(gate.state.assigned, uncommitted=gate.state.assigned))


@pytest.fixture(autouse=True)
def own_lock(local):
    """A lock that a hung thread keeps is this test's own: the ones after it begin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver_run, "_LOCK", type(driver_run._LOCK)())
        yield


@pytest.fixture
def closing_at(local):
    """A function that makes a sink whose hook closes it at the first event of a kind; it loses its lease ``loses``."""

    def make(kind, *, loses=0):
        left = [loses]
        closed: list[Event] = []

        def hook(event):
            local.events.append(event)
            if isinstance(event, kind) and not closed:
                closed.append(event)
                sink.close()

        def lose(step, _):
            if step == "job_done" and left[0]:
                left[0] -= 1
                lose_the_lease(sink)

        sink = local.direct(hook=hook, on_driver_step=lose)
        return sink

    return make


def kinds(events):
    return [type(event) for event in events]


@pytest.mark.parametrize(
    ("kind", "loses", "seen"),
    [
        (SparkRunStarted, 0, [SparkRunStarted, SparkRunFenced]),
        pytest.param(
            SparkLeaseRenewed, 1, [SparkRunStarted, SparkLeaseRenewed, SparkRunFenced], marks=pytest.mark.soak
        ),
        (SparkRunFenced, 4, [SparkRunStarted, *[SparkLeaseRenewed] * 3, SparkRunFenced]),
    ],
)
def test_a_batch_whose_sink_is_closed_by_its_hook_ends_and_the_next_call_begins_anew(
    local, closing_at, kind, loses, seen
):
    sink = closing_at(kind, loses=loses)
    with pytest.raises(RunFencedError):
        outcome(sink, local.numbers(0, 20), 0)
    assert kinds(local.events) == seen
    assert sink.progress() is None
    outcome(sink, local.numbers(0, 20), 0)
    assert kinds(local.events)[len(seen) :] == [SparkRunStarted, SparkBatchWritten]
    assert local.values() == each_once(0, 20)


def test_a_batch_that_was_written_when_its_hook_closes_the_sink_stays_written(local, closing_at):
    sink = closing_at(SparkBatchWritten)
    outcome(sink, local.numbers(0, 20), 0)
    assert sink.progress() is None
    outcome(sink, local.numbers(20, 40), 1)
    assert kinds(local.events) == [SparkRunStarted, SparkBatchWritten] * 2
    assert local.values() == each_once(0, 40)


@pytest.mark.parametrize(("step", "seen"), [("prepare", []), ("_take_over", [SparkRunStarted, SparkRunFenced])])
def test_a_sink_that_a_signal_handler_closes_while_it_starts_does_not_begin_its_batch(local, monkeypatch, step, seen):
    sink, as_it_is = local.direct(), getattr(DriverRun, step)
    closed: list[str] = []

    def close_after(*arguments):
        made = as_it_is(*arguments)
        if not closed:
            closed.append(step)
            sink.close()
        return made

    monkeypatch.setattr(DriverRun, step, close_after)
    with pytest.raises(RunFencedError, match="released"):
        outcome(sink, local.numbers(0, 20), 0)
    assert (kinds(local.events), sink.progress()) == (seen, None)
    outcome(sink, local.numbers(0, 20), 0)
    assert local.values() == each_once(0, 20)


def test_a_sink_that_is_closed_while_it_takes_its_lease_again_does_not_hold_it(local, monkeypatch):
    def lose(step, _):
        if step == "job_done":
            lose_the_lease(sink)

    def close_then_go_on(run, *arguments):
        sink.close()
        return renewed(run, *arguments)

    renewed = DriverRun._renew_lease
    sink = local.direct(on_driver_step=lose)
    monkeypatch.setattr(DriverRun, "_renew_lease", close_then_go_on)
    with pytest.raises(RunFencedError, match="released"):
        outcome(sink, local.numbers(0, 20), 0)
    assert kinds(local.events) == [SparkRunStarted, SparkRunFenced]


def test_other_sinks_begin_and_are_closed_while_a_hook_runs(local):
    reached, released = threading.Event(), threading.Event()

    def wait(event):
        if isinstance(event, SparkRunStarted):
            reached.set()
            assert released.wait(LIMIT_S)

    slow, other = local.direct(hook=wait), local.direct(sink_id=f"{local.sink_id}-b")
    waiting = in_a_thread(slow, local.numbers(0, 20), 0)
    try:
        assert reached.wait(LIMIT_S)
        outcome(other, local.numbers(20, 40), 0)
        outcome(other.close)
    finally:
        released.set()
    waiting.result(LIMIT_S)
    assert local.values() == each_once(0, 40)


def test_a_query_whose_hook_closes_the_sink_ends_with_the_error(local, closing_at):
    sink = closing_at(SparkRunStarted)
    failed = local.stream(lambda rows, batch_id: outcome(sink, rows, batch_id), 1)
    assert "RunFencedError" in str(failed)
    assert local.values() == {}
