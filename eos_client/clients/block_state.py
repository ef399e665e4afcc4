"""The state of the open ``with`` block, or of the next one, and the failure that keeps it from being committed.

A failure stays until a block has ended with it: an application that catches an error inside the block goes on
working, but nothing of what it does there is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eos_client.confluent.producer.output_arguments import raised_by_signal_handler
from eos_client.core.model import InputPartition, Outcome
from eos_client.errors import AbortableError, LeaveBlockError, OutputRefusedError, RebuildProducerError

OutcomeCallback = Callable[[Outcome | None, str], None]
"""Takes a block's outcome and the reason for it; None if it cannot be determined."""

INTERRUPTED = "an exception interrupted the end of the block"
_ErrorClasses = tuple[type[BaseException], ...]
_NOTHING_WAS_QUEUED = (OutputRefusedError, BufferError, TypeError, ValueError, OverflowError)
"""``produce`` raises these about one record before anything of it was queued: the transaction is unharmed."""


@dataclass(slots=True)
class _Leaving:
    """A block whose end has begun, incomplete for ``reason``. ``is_reported``: an outcome was reported since."""

    on_outcome: OutcomeCallback
    is_reported: bool = False
    reason: str = INTERRUPTED


class BlockState:
    """The state of the block that is open, or of the next one."""

    def __init__(self) -> None:
        self.is_open = False
        self.number = 0
        """The number of the open block, or of the last one."""
        self.failure: BaseException | None = None
        self.gave_back: InputPartition | None = None
        """The last partition of which a seek inside the block has given back records."""
        self.ends_quietly = False
        """Whether the end of the block suppresses the failure, because its work is simply repeated."""
        self.is_left: Callable[[], bool] = lambda: False
        self.leaving: _Leaving | None = None
        """The block whose end has begun, until it knows its outcome."""
        self._on_outcome: OutcomeCallback = lambda *_: None
        self._inner_refused = False
        self.failing_on_read_error = _CallInBlock(self, (LeaveBlockError,), harmless=())
        """Wraps ``consume`` and ``poll``: after any exception the application cannot know which records it received."""
        self.failing_on_write_error = _CallInBlock(
            self, (AbortableError, RebuildProducerError), harmless=_NOTHING_WAS_QUEUED
        )
        """Wraps ``produce``: a failed write fails the block, unless only that record was refused."""

    def open(self, is_left: Callable[[], bool], on_outcome: OutcomeCallback) -> None:
        """Record that a block was entered. A failure that is pending already counts as this block's.

        ``is_left``: returns whether the block has begun to end, or can no longer be ended by its ``with`` statement.
        ``on_outcome`` receives its outcome.
        """
        self.is_left, self._on_outcome = is_left, on_outcome
        self.number += 1
        self.is_open = True

    @property
    def is_interrupted(self) -> bool:
        """Whether an asynchronous exception is known to have interrupted the entry or exit of the open block."""
        return self.is_open and self.is_left()

    def record_inner_entry(self) -> bool:
        """Record that a block is entered inside the open one; returns whether it may replace the open one.

        It may if the open one was interrupted. That is not always known: an ``ExitStack`` may still hold the block, or
        an exception may have struck before ``__exit__`` did anything. If it is not known, the first new block is
        refused, and a second one without any call in between aborts the open block and takes its place. If the
        replaced block goes on after all, its writes are refused.
        """
        refused, self._inner_refused = self._inner_refused, True
        return self.is_interrupted or refused

    def fail(self, failure: BaseException, *, quietly: bool) -> None:
        """Let this block, or the next one, end as ABORTED because of ``failure``; the first failure counts."""
        if self.failure is None:
            self.failure, self.ends_quietly = failure, quietly

    def record_given_back(self, partition: InputPartition) -> None:
        """Record that a seek inside the block has given back records of ``partition``."""
        self.gave_back = partition

    def check(self) -> None:
        """Raise the failure, if there is one."""
        if self.failure is not None:
            raise self.failure

    def record_use(self) -> None:
        """Record that the application uses the block; raises the failure, if there is one."""
        self._inner_refused = False
        self.check()

    def leave(self) -> None:
        """Begin to end the block; from now on the outcome of its transaction is reported to it."""
        self.leaving = _Leaving(self._on_outcome)
        self.is_open = self.ends_quietly = self._inner_refused = False
        self.failure = self.gave_back = None

    def report_outcome(self, outcome: Outcome | None, reason: str) -> None:
        """Report the outcome to the block that is being left; None if it cannot be determined."""
        if self.leaving is None:
            return
        self.leaving.is_reported = outcome is not None
        self.leaving.on_outcome(outcome, reason)
        if outcome is None:
            self.leaving = None

    def finish_leaving(self, outcome: Outcome, reason: str) -> None:
        """Finish leaving the block; an outcome that is still unknown is reported to the block later."""
        if self.leaving is not None and self.leaving.is_reported:
            self.leaving.on_outcome(outcome, reason)
            self.leaving = None


class _CallInBlock:
    """Wraps a call inside ``block``.

    An exception fails the block, unless it is ``harmless``; a ``quiet`` one is suppressed at the block's end. A class
    and no generator: a generator that an asynchronous exception has kept from being entered is closed later, and its
    GeneratorExit would count as a failure.
    """

    def __init__(self, block: BlockState, quiet: _ErrorClasses, *, harmless: _ErrorClasses) -> None:
        self._block = block
        self._quiet = quiet
        self._harmless = harmless

    def __enter__(self) -> None:
        self._block.record_use()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None and (raised_by_signal_handler(error) or not isinstance(error, self._harmless)):
            self._block.fail(error, quietly=isinstance(error, self._quiet))
