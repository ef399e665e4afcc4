"""Runs the coroutines of a loop's transform in an event loop, for the loop in its own thread, which waits for them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future, TimeoutError  # noqa: A004  # Python 3.10 has two of them
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, Union

from eos_client.errors import repr_of
from eos_client.loop.transform_results import TransformUnfitError, each_output
from eos_client.ports import AsyncTransform, Output

_Result = TypeVar("_Result")
RecordConverter = Callable[[Any], Any]
OutputConverter = Callable[[Any], Any]
_CHECK_INTERVAL_S = 0.5
_Made = Union[list[Output], "_Raised"]


class _ExitError(BaseException):
    """Carries what ends a batch past asyncio, which would let SystemExit out of the event loop at once."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Raised(NamedTuple):
    """Carries an error of the application past futures: they convert time-outs, and overlook what counts as false."""

    error: Exception


class EventLoopThread:
    """The thread of an event loop, as another thread sees it: runs one coroutine after another there."""

    def __init__(self) -> None:
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._running: Future[Any] | None = None
        self._is_cancelled = False

    def take_running_loop(self) -> None:
        """Let coroutines run in the event loop that is running now."""
        self._event_loop = asyncio.get_running_loop()

    @property
    def is_closed(self) -> bool:
        """Whether the event loop was closed: nothing that is awaited there ever ends."""
        return self._event_loop is not None and self._event_loop.is_closed()

    def wait_for(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Run ``coroutine`` there and return what it returns.

        Raises asyncio's CancelledError when it was cancelled, after ``cancel``, and when the event loop was closed:
        CancelledError is not an Exception, so it is not taken for a record's failure. SystemExit and KeyboardInterrupt
        of a transform are raised here.
        """
        if self._event_loop is None or self._is_cancelled or self.is_closed:
            coroutine.close()
            raise asyncio.CancelledError
        running: Future[_Result] = asyncio.run_coroutine_threadsafe(coroutine, self._event_loop)
        self._running = running
        if self._is_cancelled:  # meanwhile
            running.cancel()
        while not running.done():
            if self.is_closed:
                raise asyncio.CancelledError
            with suppress(TimeoutError, CancelledError):  # of this wait: what the coroutine has raised is returned
                running.exception(_CHECK_INTERVAL_S)
        try:
            return running.result()
        except CancelledError as error:
            raise asyncio.CancelledError from error
        except _ExitError as carried:
            exiting = carried.error
        raise exiting

    def cancel(self) -> None:
        """Cancel the coroutine that is running, and run no more."""
        self._is_cancelled = True
        if self._running is not None and not self.is_closed:
            self._running.cancel()


async def _awaited(
    transform: AsyncTransform, given: Any, read: RecordConverter | None, take: OutputConverter
) -> list[Output]:
    """Return the outputs of ``transform``, a coroutine function or an asynchronous generator, each as it was given."""
    made: Any = transform(given if read is None else read(given))
    if isinstance(made, AsyncIterable):
        return [take(output) async for output in made]
    if not inspect.isawaitable(made):
        raise TransformUnfitError(
            f"the transform returned {repr_of(made)} and no coroutine; AsyncExactlyOnceLoop takes async "
            "functions, ExactlyOnceLoop the others. No record was given up."
        )
    return [take(output) for output in each_output(await made)]


async def _outputs_of_call(*call: Any) -> _Made:
    """Return the outputs of the `_awaited` call, or what it has raised."""
    try:
        return await _awaited(*call)
    except (SystemExit, KeyboardInterrupt) as error:
        raise _ExitError(error) from error
    except Exception as error:  # noqa: BLE001  # whatever the application raises is its record's failure
        return _Raised(error)


def _outputs_or_raise(made: _Made) -> list[Output]:
    if isinstance(made, _Raised):
        raise made.error
    return made


class AwaitedBatch:
    """The transform of a batch whose coroutine is waited for; ``read`` and ``take`` as for `ConcurrentTransform`."""

    def __init__(
        self,
        transform_batch: AsyncTransform,
        event_loop: EventLoopThread,
        read: RecordConverter | None,
        take: OutputConverter,
    ) -> None:
        self._transform_batch = transform_batch
        self.event_loop = event_loop
        self._read = read
        self._take = take

    def __call__(self, records: Sequence[Any]) -> list[Output]:
        """Return the outputs of ``records``, or raise what the coroutine raised."""
        given = records if self._read is None else [self._read(record) for record in records]
        made = self.event_loop.wait_for(_outputs_of_call(self._transform_batch, given, None, self._take))
        return _outputs_or_raise(made)


class ConcurrentTransform:
    """The transform of a record whose coroutines were run in advance, concurrently for all records of a batch.

    Those of one partition with the same key are run one after another, and none of them after one that has failed:
    that one is handled first. ``read`` turns a message into the argument of ``transform`` (None: the
    message itself); ``take`` converts each output before it is stored.
    """

    def __init__(
        self,
        transform: AsyncTransform,
        event_loop: EventLoopThread,
        concurrency_max: int,
        read: RecordConverter | None,
        take: OutputConverter,
    ) -> None:
        self._transform = transform
        self._read = read
        self._take = take
        self.event_loop = event_loop
        self._concurrency_max = concurrency_max
        self._made: dict[int, _Made] = {}

    def prepare(self, records: Sequence[Any]) -> None:
        """Run the coroutines of ``records``, and keep what they make until each of them is asked for."""
        self._made = self.event_loop.wait_for(self._run_ahead(records))

    def __call__(self, record: Any) -> list[Output]:
        """Return the outputs of ``record``, or raise what its coroutine raised; the second time it is run again."""
        made = self._made.pop(id(record), None)
        return _outputs_or_raise(self.event_loop.wait_for(self._outputs_of(record)) if made is None else made)

    async def _outputs_of(self, record: Any) -> _Made:
        return await _outputs_of_call(self._transform, record, self._read, self._take)

    async def _run_ahead(self, records: Sequence[Any]) -> dict[int, _Made]:
        made: dict[int, _Made] = {}
        permits = asyncio.Semaphore(self._concurrency_max)

        async def run_in_order(those_of_one_key: Sequence[Any]) -> None:
            for record in those_of_one_key:
                async with permits:
                    try:
                        made[id(record)] = outcome = await self._outputs_of(record)
                    except asyncio.CancelledError as error:
                        raise _ExitError(error) from error  # a task that is only cancelled ends no wait for the others
                    if isinstance(outcome, _Raised):
                        return

        groups = _by_key(records)
        tasks = [asyncio.ensure_future(run_in_order(group)) for group in groups]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        except BaseException:
            for group in groups:
                group.clear()  # a coroutine that catches its cancellation begins no other record
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return made


def _by_key(records: Sequence[Any]) -> list[list[Any]]:
    """Return ``records`` in groups of one partition and key; those without a key are alone."""
    groups: dict[Any, list[Any]] = {}
    for record in records:
        key = record.key()
        place = id(record) if key is None else (record.topic(), record.partition(), key)
        groups.setdefault(place, []).append(record)
    return list(groups.values())


def event_loop_of(transform: object) -> EventLoopThread | None:
    """Return the event loop that ``transform`` waits for; None for a plain function."""
    return transform.event_loop if isinstance(transform, (AwaitedBatch, ConcurrentTransform)) else None
