"""The ``with`` block around one transaction."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from types import MethodType
from typing import TYPE_CHECKING, Any

from eos_client.clients.block_state import INTERRUPTED
from eos_client.clients.dead_letters import RecordKey, key_of, letters_for
from eos_client.clients.transaction_session import TransactionSession
from eos_client.confluent.failures.client_failures import misplaced_call
from eos_client.confluent.thread_ownership import NeverBuilt, ThreadOwnership, counts_as_call
from eos_client.core.error_report import report_of
from eos_client.core.model import Outcome
from eos_client.errors import AbortableError, EosError, OutputRefusedError, WrongThreadError, text_of
from eos_client.ports import DeliveryCallback, Headers, OutputRecord, Record

if TYPE_CHECKING:
    from typing_extensions import Self


class _TrackedExit:
    """Returns a new bound ``__exit__`` per look-up; a weak reference to it shows whether the ``with`` still exists.

    A ``with`` statement looks ``__exit__`` up before ``__enter__`` and drops it as it leaves the block. Once the method
    is freed, nothing can call it any more. The frame with the ``with`` is no mark of it: a function that has caught the
    exception of a signal handler runs on, outside the block.
    """

    def __init__(self, leave: Callable[..., bool]) -> None:
        self._leave = leave

    def __get__(self, block: Transaction | None, _owner: object = None) -> Callable[..., bool]:
        if block is None:
            return self._leave
        exit_method = MethodType(self._leave, block)
        block.exit_method = weakref.ref(exit_method)
        return exit_method


class Transaction:
    """A ``with`` block around one transaction; ``outcome`` and ``reason`` say how it ended.

    Every record that ``consume`` or ``poll`` returned inside the block, and everything that was written in it, counts
    as processed when the block ends, never before. SKIPPED means the gate is closed: the transaction stays open and the
    next block goes on with it. ABORTED means that the records will be consumed again. Any exception that leaves the
    block aborts, rewinds and is raised again, but for an AbortableError or RebuildProducerError of this block's own
    calls, LeaveBlockError among them: the block ends there, as ABORTED, and the program goes on after it.

    ``outcome`` is None while the block is open. It stays None if the commit was sent and its outcome could not be read
    from the cluster, if an asynchronous exception interrupted the end of the block, or if the end failed because the
    producer is unusable (``ProducerFencedError``; closing that producer makes it ABORTED). ``reason`` says which. The
    next block of the same clients, or their next ``consume`` or ``poll``, finds out, sets ``outcome`` and goes on from
    there; nothing is handed over before. It raises ClusterUnavailableError while the cluster still does not answer, and
    UnknownOutcomeError if the outcome cannot be determined: then ``outcome`` stays None.

    Once ``consume``, ``poll`` or a write inside the block has failed nothing of the block is committed, even if the
    application catches the error; a call that is refused there, like ``commit``, changes nothing. If another thread
    writes while the block is open, the write is refused with WrongThreadError. The block then ends as ABORTED and
    raises that error again, because a thread pool may have dropped it. Only what ``produce`` refuses about one record
    before it was queued leaves the transaction as it was: for OutputRefusedError, TypeError, ValueError and
    OverflowError an application that catches it has decided to go without that output, and after BufferError (the local
    queue is full) it may call ``poll`` and repeat the call.
    """

    # Of the class too, so that a stand-in that is made of it has them.
    outcome: Outcome | None = None
    reason = "not entered yet"

    def __init__(self, join: Callable[[], TransactionSession], ownership: ThreadOwnership | NeverBuilt) -> None:
        self._join = join
        self._ownership = ownership
        self._session: TransactionSession | None = None
        self._ended = False
        self._number = 0
        self.exit_method: weakref.ref[MethodType] | None = None
        self._exit_ref: weakref.ref[MethodType] | None = None

    def __enter__(self) -> Self:
        if self._session is not None:
            raise misplaced_call(
                "a Transaction is entered a second time, and it can be entered only once: call "
                "producer.transaction(consumer) for each block"
            )
        session = self._join()
        session.call_guard.refuse_within_a_step("a block is entered")
        session.call_guard.refuse_other_threads()
        session.call_guard.refuse_inside_a_call("a block is entered")
        session.call_guard.run_block_step(lambda: self._enter(session))
        return self

    def _enter(self, session: TransactionSession) -> None:
        if session.block.is_open and not session.block.record_inner_entry():
            raise misplaced_call(
                "a block inside a block of the same consumer and producer: one transaction cannot be split. End the "
                "outer block first, or write within it"
            )
        if session.block.is_open:
            session.block.leave()
        session.resolve_pending()
        session.call_guard.refuse_transaction_by_hand(session.state)
        session.callback_failure.raise_once()
        self._exit_ref = None if self.exit_method is None or self.exit_method() is None else self.exit_method
        session.producer.ownership.take_refused_write()  # refused before this block, so no output of it
        session.block.open(self._is_left, self._on_outcome)
        self._on_outcome(None, "not ended yet")
        self._number = session.block.number
        self._session = session

    def _is_left(self) -> bool:
        return self._ended or self._session is None or (self._exit_ref is not None and self._exit_ref() is None)

    def _on_outcome(self, outcome: Outcome | None, reason: str) -> None:
        self.outcome, self.reason = outcome, reason

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Write one output; every argument means what it means in OutputRecord.

        Raises OutputRefusedError (OutputNotSerializedError included) for a record that can never be written: the block
        goes on without it. AbortableError, RebuildProducerError: the transaction can no longer be committed.
        TransactionStateError: outside the block.
        """
        self._write(
            topic,
            OutputRecord(topic, value=value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms),
        )

    def dead_letter(self, message: Record, error: BaseException, *, topic: str, attempts: int = 1) -> None:
        """Write a record that cannot be processed to ``topic``, with this transaction; the record then counts as done.

        Its headers name the error with its place and traceback, the origin and how many ``attempts`` were made (the
        page "Records that fail" lists them). Where the record is too large for the topic, its value is left out, and at
        last its key and headers. Once the transaction is committed, the record is counted (``records_failed``) and told
        as RecordDeadLettered. Raises as ``produce`` does, and TypeError for what is no record.
        """
        if not hasattr(message, "offset"):
            raise TypeError(f"dead_letter() takes a record that was consumed, not {type(message).__name__}")
        report, record = report_of(error), key_of(message)
        letters = letters_for(topic, message, report, attempts)
        session = self._open_session(topic)
        if session.letters.is_suspected(record):
            self._write_alone(topic, session.letters.still_allowed(letters, record), record)
        else:
            self._write_first(topic, letters, session.letters.delivery_callback(record))
        session.endings.record_dead_letter(record, report, topic)

    def _write_first(self, topic: str, letters: list[OutputRecord], on_delivery: DeliveryCallback) -> None:
        """Write the first of ``letters`` that the producer accepts."""
        *larger, smallest = letters
        for letter in larger:
            with suppress(OutputRefusedError):
                self._write(topic, letter, on_delivery)
                return
        self._write(topic, smallest, on_delivery)

    def _write_alone(self, topic: str, letters: list[OutputRecord], record: RecordKey) -> None:
        """Write the first of ``letters`` and wait, so that what a broker refuses is known to be that letter."""
        session = self._open_session(topic)
        with session.block.failing_on_write_error:
            session.outputs.await_deliveries()
            if session.letters.reported:
                raise AbortableError(
                    "a broker has refused a batch of dead letters, and which of them caused that is not known yet. Let "
                    "this error leave the block: they are written again, one by one"
                )
        self._write_first(topic, letters, session.letters.delivery_callback(record))
        with session.block.failing_on_write_error:
            session.outputs.await_deliveries()
            if refusal := session.letters.take_refusal(record):
                raise AbortableError(f"the dead letter to {refusal}. Let this error leave the block")

    @counts_as_call
    def _write(self, topic: str, output: OutputRecord, on_delivery: DeliveryCallback | None = None) -> None:
        session = self._open_session(topic)
        with session.block.failing_on_write_error:
            session.outputs.enqueue(topic, output, on_delivery)

    def _open_session(self, topic: str) -> TransactionSession:
        """Return the block's session; raises TransactionStateError where ``topic`` is written to outside the block."""
        session = self._session
        if session is None or self._is_left():
            raise misplaced_call(
                f"a write to {topic!r} {'before' if session is None else 'after'} the block of its transaction: its "
                "outputs could not be committed with their records. Write inside the `with`"
            )
        if session.block.number != self._number or not session.block.is_open:
            raise _abandoned()
        session.producer.ownership.require_caller("produce")
        return session

    @_TrackedExit
    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        session = self._session
        if session is None or self._ended:
            raise misplaced_call("this block is not open: use it by `with`")
        session.call_guard.refuse_inside_a_call("a block is ended")
        try:
            session.call_guard.refuse_other_threads()
        except WrongThreadError as wrong:  # the `with` has ended all the same, and may not count as done
            error = error or wrong
        return session.call_guard.run_block_step(lambda: self._leave(session, error))

    def _leave(self, session: TransactionSession, error: BaseException | None) -> bool:
        self._ended = True
        is_another = session.block.number != self._number
        if is_another or not session.block.is_open:
            if is_another:
                self._on_outcome(Outcome.ABORTED, "another block was entered inside this one")
            # Records may have been consumed after the block was given up.
            if not session.block.is_open and session.has_unprocessed_work:
                session.abort("a block was given up")
            if error is None:
                raise _abandoned()
            return False
        session.fail_block_after_seek()
        self._fail_after_refused_write(session)
        failure, ends_quietly = session.block.failure, session.block.ends_quietly
        self.reason = f"{INTERRUPTED}; the next call of its clients finds out its outcome"
        try:
            session.block.leave()
            if failure is not None:
                session.end_failed(failure)
            elif error is not None:
                session.abort(f"the block raised {text_of(error)}")
            else:
                session.end()
        except EosError as raised:
            if self.outcome is None:
                self._record_failed_end(session, raised)
            raise
        finally:  # also when a callback of the application has raised
            session.finish_leaving()
            session.letters.ended(self.outcome, session.consumer.membership.state.assigned)
        if error is None and isinstance(failure, WrongThreadError):
            raise failure  # the thread's own error may be unread, and a repeated block would fail alike
        return error is not None and error is failure and ends_quietly

    @staticmethod
    def _fail_after_refused_write(session: TransactionSession) -> None:
        """Let the block end as ABORTED if it lacks an output, because another thread has tried to write it."""
        if refused := session.producer.ownership.take_refused_write():
            session.block.fail(refused, quietly=False)

    def _record_failed_end(self, session: TransactionSession, raised: EosError) -> None:
        unknown = "its commit was sent, and the outcome is not known yet"
        self.reason = f"{unknown if session.state.outcome_is_pending else 'its end failed'}: {raised}"
        if session.block.leaving is not None:
            session.block.leaving.reason = self.reason.rstrip(".")


def _abandoned() -> Exception:
    return misplaced_call(
        "this block was abandoned: a second block was entered before it ended, or a signal handler used its "
        "clients while it ended. Its records are consumed again. End each block before you enter the next"
    )
