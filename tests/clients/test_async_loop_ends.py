"""An async loop that ends otherwise than by `stop()`: cancelled, left by its event loop, by what is no exception."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import suppress
from typing import Any

import pytest

from eos_client import AsyncExactlyOnceLoop
from eos_client.core.loop_health import LoopHealth
from eos_client.errors import FatalClientError
from eos_client.observe import LoopStopped
from eos_client.testing import SimulatedCluster
from tests.clients.conftest import Job
from tests.clients.test_async_loop import keyed, values
from tests.support.waiting import TICK_S, WAIT_S, wait_for

TURNS = 10
"""Of the event loop, in which a cancellation would have come through."""
CLEANING_UP_S = 0.05
"""What a cancelled transform takes: longer than an abort."""
STUBBORN_S = 2.0
"""What a transform that catches its cancellation would take otherwise."""
SKIPPED = {"on_error": "skip"}


class Held:
    """A transform that waits until it is let go; `ended` says how."""

    def __init__(self) -> None:
        self.has_begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.ended: list[str] = []

    async def __call__(self, given: Any) -> list[bytes]:
        self.has_begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("done")
        return [record.value() for record in (given if isinstance(given, list) else [given])]


@pytest.mark.parametrize("settings", [{}, SKIPPED], ids=["stop", "skip"])
@pytest.mark.parametrize("form", ["transform", "transform_batch"])
@pytest.mark.parametrize("times", [1, 2])
def test_cancelled_the_loop_finishes_its_batch_and_leaves_the_group_cancelled_twice_it_aborts(
    cluster: SimulatedCluster, times: int, form: str, settings: dict[str, Any]
) -> None:
    async def main() -> tuple[Held, Job]:
        held = Held()
        job = Job(cluster, **{form: held}, **settings)
        running = asyncio.create_task(job.loop.run())
        await asyncio.wait_for(held.has_begun.wait(), WAIT_S)
        for _ in range(times):
            running.cancel()
            for _turn in range(TURNS):
                await asyncio.to_thread(int)  # the loop's thread may run meanwhile
        if times == 1:
            assert not running.done()
            held.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, WAIT_S)
        return held, job

    cluster.write("orders", values(1, 2))
    held, job = asyncio.run(main())
    done = times == 1
    assert set(held.ended) == {"done" if done else "cancelled"}
    assert cluster.values("invoices") == (values(1, 2) if done else [])
    assert job.loop.counters.records_failed == 0
    assert bool(cluster.committed("billing")) is done
    assert [event.reason for event in job.events if isinstance(event, LoopStopped)] == [
        "the task that runs the loop was cancelled"
    ]


@pytest.mark.parametrize("form", ["transform", "transform_batch"])
def test_a_transform_that_awaits_what_others_have_cancelled_ends_the_loop_and_no_record_is_skipped(
    cluster: SimulatedCluster, form: str
) -> None:
    async def awaits_a_cancelled_task(_given: Any) -> list[bytes]:
        lookup = asyncio.create_task(asyncio.sleep(WAIT_S))
        lookup.cancel()
        await lookup
        return []

    cluster.write("orders", values(1))
    job = Job(cluster, **{form: awaits_a_cancelled_task}, **SKIPPED)
    with pytest.raises(FatalClientError, match="nobody has cancelled the loop"):
        job.run()
    assert not cluster.committed("billing")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the coroutines that were left there
@pytest.mark.parametrize("orders", [[b"1"], []], ids=["in a batch", "idle"])
@pytest.mark.parametrize("closed", ["the event loop of run() was closed", "the coroutine of run() was closed"])
def test_a_loop_whose_event_loop_or_run_was_closed_ends_and_leaves_the_group(
    cluster: SimulatedCluster, closed: str, orders: list[bytes]
) -> None:
    is_there, is_closed = threading.Event(), threading.Event()

    async def never_ends(_record: Any) -> None:
        is_there.set()
        await asyncio.sleep(WAIT_S)

    def stays_idle() -> None:
        is_there.set()
        is_closed.wait(WAIT_S)

    if orders:
        cluster.write("orders", orders)
    else:
        cluster.after(20, stays_idle)
    job = Job(cluster, never_ends)
    assert health_after(job, is_there, is_closed, closed).reasons == (f"The loop has ended: {closed}.",)
    assert (cluster.values("invoices"), cluster.committed("billing")) == ([], {})
    gc.collect()


def health_after(job: Job, is_there: threading.Event, is_closed: threading.Event, closed: str) -> LoopHealth:
    event_loop = asyncio.new_event_loop()
    coroutine = job.loop.run()
    running = event_loop.create_task(coroutine)
    wait_for(is_there.is_set, "a loop at work", lambda: event_loop.run_until_complete(asyncio.sleep(TICK_S)))
    if "coroutine" in closed:
        coroutine.close()
        event_loop.run_until_complete(asyncio.sleep(TICK_S))
    event_loop.close()
    is_closed.set()
    wait_for(lambda: not job.loop.health().live, "the end of the loop")
    assert not running.done()
    health: LoopHealth = job.loop.health()
    return health


class Stubborn:
    """A transform that goes on when it is cancelled; a record with the key ``exit`` raises SystemExit."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.have_begun = asyncio.Event()

    async def __call__(self, record: Any) -> list[bytes]:
        self.begun.append(record.value())
        if len(self.begun) == 3:
            self.have_begun.set()
        await self.have_begun.wait()
        if record.key() == b"exit":
            raise SystemExit(3)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(STUBBORN_S)
        return [record.value()]


@pytest.mark.parametrize("third", ["c", "exit"])
def test_once_a_batch_is_cancelled_no_other_record_of_it_begins_though_a_coroutine_catches_that(
    cluster: SimulatedCluster, third: str
) -> None:
    async def until_it_ends(loop: AsyncExactlyOnceLoop) -> None:
        with suppress(SystemExit):
            await loop.run()

    async def main() -> list[bytes]:
        stubborn = Stubborn()
        running = asyncio.create_task(until_it_ends(Job(cluster, stubborn).loop))
        await asyncio.wait_for(stubborn.have_begun.wait(), WAIT_S)
        for _ in range(2 if third == "c" else 0):
            running.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([running], timeout=WAIT_S)
        for _turn in range(TURNS):
            await asyncio.sleep(0)
        return stubborn.begun

    keyed(cluster, [b"a", b"b", third.encode()] * 2)
    assert asyncio.run(main()) == [b"a-0", b"b-1", b"%s-2" % third.encode()]
    assert (cluster.values("invoices"), cluster.committed("billing")) == ([], {})


class Exits:
    """Waits with the others of its batch until the record ``exit`` raises; `ended` has how the others ended."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.ended = error, list[bytes]()

    async def __call__(self, given: Any) -> list[bytes]:
        await asyncio.sleep(0)
        if isinstance(given, list) or given.value() == b"exit":
            raise self.error
        try:
            await asyncio.sleep(WAIT_S)
        except asyncio.CancelledError:
            await asyncio.sleep(CLEANING_UP_S)
            self.ended.append(given.value())
            raise
        return [given.value()]


@pytest.mark.parametrize("form", ["transform", "transform_batch"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_what_is_no_exception_comes_out_of_run_aborts_leaves_the_group_and_leaves_no_coroutine_behind(
    cluster: SimulatedCluster, error: BaseException, form: str
) -> None:
    cluster.write("orders", [b"1", b"exit", b"2"])
    exits = Exits(error)
    job = Job(cluster, **{form: exits}, **SKIPPED)
    out_of_run: list[BaseException] = []
    ended: list[bytes] = []

    async def main() -> None:
        try:
            await job.loop.run()
        except BaseException as caught:
            out_of_run.append(caught)
            ended.extend(sorted(exits.ended))
            raise

    with pytest.raises(type(error)) as caught:
        asyncio.run(main())
    assert (caught.value, *out_of_run) == (error, error)
    assert ended == ([b"1", b"2"] if form == "transform" else [])
    assert (cluster.values("invoices"), cluster.committed("billing")) == ([], {})
    assert [event.reason for event in job.events if isinstance(event, LoopStopped)] == [type(error).__name__]


def test_the_first_cancellation_is_the_one_that_comes_out(cluster: SimulatedCluster) -> None:
    async def main() -> BaseException:
        held = Held()
        running = asyncio.create_task(Job(cluster, held).loop.run())
        await asyncio.wait_for(held.has_begun.wait(), WAIT_S)
        for message in ("of the scope", "of another"):
            running.cancel(message)
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError) as caught:
            await running
        return caught.value

    cluster.write("orders", values(1))
    assert asyncio.run(main()).args == ("of the scope",)
