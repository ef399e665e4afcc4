"""AsyncExactlyOnceLoop: an ExactlyOnceLoop in a thread of its own, with an async transform in the caller's event loop.

The loop itself has to be a thread: the client library serves rebalances only inside a call that blocks.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Any, Generic

from eos_client import errors
from eos_client.config import EosConfig
from eos_client.confluent.client_library import CONFLUENT_KAFKA
from eos_client.confluent.serialisation import AnyAsyncBatchTransform, AnyAsyncTransform
from eos_client.core.commit_gate import CommitGate
from eos_client.core.loop_health import LoopHealth
from eos_client.loop.concurrent_transform import AwaitedBatch, ConcurrentTransform, EventLoopThread
from eos_client.loop.exactly_once_loop import ExactlyOnceLoop
from eos_client.loop.serialised_records import reader, writer
from eos_client.loop.transform_check import one_transform
from eos_client.loop.transform_results import as_given
from eos_client.observe import Counters, EventHook, log_event
from eos_client.ports import ClientLibrary, K_co, V_co

_CANCELLED = "the task that runs the loop was cancelled"
_RUN_CLOSED = "the coroutine of run() was closed"
_CANCELLED_INSIDE = (
    "a coroutine of the transform was cancelled, or awaited a task that was, but nobody has cancelled the loop. Its "
    "transaction was aborted, and nothing of it is visible: catch CancelledError where the transform awaits what "
    "others may cancel, and start again."
)


class AsyncExactlyOnceLoop(Generic[K_co, V_co]):
    """As `ExactlyOnceLoop`, with a transform that is an ``async def``, awaited or iterated in the event loop.

    ``transform`` runs for up to ``concurrency_max`` records of a batch at once. Records of one partition with the same
    key are transformed one after another, and outputs are written in the order of their records. ``transform_batch``,
    in its place, gets a list of up to ``batch_size`` records. ``hook`` is called in the loop's own thread.
    """

    def __init__(
        self,
        config: EosConfig[K_co, V_co],
        topics: Sequence[str],
        transform: AnyAsyncTransform[K_co, V_co] | None = None,
        *,
        transform_batch: AnyAsyncBatchTransform[K_co, V_co] | None = None,
        concurrency_max: int = 100,
        output_topic: str | None = None,
        hook: EventHook = log_event,
        clients: ClientLibrary = CONFLUENT_KAFKA,
    ) -> None:
        if not isinstance(concurrency_max, int) or isinstance(concurrency_max, bool) or concurrency_max < 1:
            raise errors.ConfigurationError(
                f"concurrency_max={concurrency_max!r} must be a whole number of at least 1, which transforms one "
                "record after another."
            )
        function = one_transform(transform, transform_batch, may_be_async=True)
        event_loop = self._event_loop = EventLoopThread()
        read, take = reader(config), writer(config, output_topic) or as_given
        given: dict[str, Any] = {}
        if transform is not None:
            given["transform"] = ConcurrentTransform(function, event_loop, concurrency_max, read, take)
        else:
            given["transform_batch"] = AwaitedBatch(function, event_loop, read, take)
        self._loop = ExactlyOnceLoop(config, topics, **given, output_topic=output_topic, hook=hook, clients=clients)

    @property
    def counters(self) -> Counters:
        """Totals of records and transactions since the loop was built."""
        return self._loop.counters

    @property
    def gate(self) -> CommitGate:
        """The commit gate; its ``counters`` show what it has cost and saved."""
        return self._loop.gate

    @property
    def stop_reason(self) -> str | None:
        """As that of ExactlyOnceLoop."""
        return self._loop.stop_reason

    def health(self) -> LoopHealth:
        """Return what ``ExactlyOnceLoop.health`` returns; may be called from any thread, at any time."""
        return self._loop.health()

    async def run(self, *, until_end: bool = False) -> bool:
        """Work until stopped, then finish or abort what is open, leave the group and return.

        Takes, returns and raises what ``ExactlyOnceLoop.run`` does. No signal stops it: let a handler of the event loop
        call ``stop``. Cancelled, it stops like that first: the batch that is under way is finished and committed, and
        CancelledError comes out when the group was left: the first one, with its message. Cancelled a second time, it
        cancels the coroutines of that batch and aborts.
        """
        self._event_loop.take_running_loop()
        ended: Future[bool] = Future()
        work = contextvars.copy_context().run
        Thread(target=work, args=(self._run_in_thread, ended, until_end), name="eos-loop", daemon=True).start()
        running = asyncio.wrap_future(ended)
        cancelled: asyncio.CancelledError | None = None
        is_done = False
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError as error:  # noqa: PERF203  # a turn for each cancellation
                if cancelled is not None:
                    self._event_loop.cancel()
                self._loop.stop(_CANCELLED)
                cancelled = cancelled or error
            except GeneratorExit:
                self._loop.stop(_RUN_CLOSED)
                self._event_loop.cancel()
                raise
        try:
            is_done = running.result()
        except asyncio.CancelledError as error:
            if cancelled is None:
                raise errors.FatalClientError(_CANCELLED_INSIDE) from error
        if cancelled is not None:
            raise cancelled  # the first one itself: anyio knows by its message whose it is
        return is_done

    def _run_in_thread(self, ended: Future[bool], until_end: bool) -> None:
        try:
            is_done = self._loop.run(until_end=until_end)
        except BaseException as error:  # noqa: BLE001  # it is raised where the run is awaited
            ended.set_exception(error)
        else:
            ended.set_result(is_done)

    def stop(self, reason: str = "stop() was called") -> None:
        """Ask the loop to stop; returns at once and may be called from any thread or a signal handler."""
        self._loop.stop(reason)
