"""Transforms records, writes their outputs, and finds the record that a failure belongs to.

The outputs of a record are written as soon as all of them are made, so a transform that raises midway has written
nothing, and a refused output is that of a known record. If nothing of the record was written before, ``on_error``
applies at once; else the transaction is aborted, and it applies when the record is consumed again. An output of a batch
cannot be attributed to one record: if librdkafka refuses it, the batch is halved until the record is found. If the
broker refuses an output, the record is found by the next transactions, which become smaller and at last wait for each
record's deliveries (``transaction_size``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from operator import length_hint
from typing import Any

from eos_client.clients.transaction_session import TransactionSession
from eos_client.confluent.failures.producer_failures import undelivered_output
from eos_client.confluent.producer.output_arguments import (
    ANY_PARTITION,
    UNCHANGEABLE,
    as_written,
    checked_headers,
    is_fit_output,
    produce_options,
    raised_by_signal_handler,
)
from eos_client.core.error_report import text_with_place
from eos_client.errors import (
    AbortableError,
    EosError,
    OutputRefusedError,
    RebuildProducerError,
    TransformError,
    repr_of,
)
from eos_client.loop.concurrent_transform import ConcurrentTransform
from eos_client.loop.record_failures import LOOP_LEVEL_ERRORS, FailedRecords, StoppedMeanwhileError, is_failure
from eos_client.loop.transform_results import TransformUnfitError, collected, no_output
from eos_client.ports import OutputRecord, Outputs

_TOPICS_MAX = 1024
_SEVERAL = object()
"""In place of the output of a record that has none, or several."""


class _RefusedError(Exception):
    """One output can never be written; its cause says why. ``written``: how many were written before it."""

    def __init__(self, written: int) -> None:
        super().__init__(written)
        self.written = written


class WithinTransaction:
    """A transform that writes into the open transaction by itself; so the transaction begins before it is called.

    A transaction that cannot be begun is no failure of a record.
    """

    def __init__(self, transform: Callable[[Any], Outputs]) -> None:
        self._transform = transform

    def __call__(self, given: Any) -> Outputs:
        """Call the transform."""
        return self._transform(given)


class RefusedRecordsError(AbortableError):
    """Outputs were refused; ``on_error`` applies to their records when these are consumed again."""


class RecordOutputs:
    """The application's transform, with its outputs written inside the open transaction of ``session``.

    ``takes_batches``: ``transform`` is called with a list of records. ``begins``: the transaction begins before
    it is called (`WithinTransaction`). ``prefers_whole_batches``: `write` is faster
    with more records.
    """

    def __init__(
        self,
        transform: Callable[[Any], Outputs],
        failed: FailedRecords,
        session: TransactionSession,
        default_topic: str | None,
        *,
        takes_batches: bool = False,
        begins: bool = False,
    ) -> None:
        self._takes_batches = takes_batches
        self._begins = begins
        self._transform_batch = transform
        self._prepare = transform.prepare if isinstance(transform, ConcurrentTransform) else None
        self.prefers_whole_batches = takes_batches or self._prepare is not None
        self._writes_apart = False
        self._writes_each_apart = False  # once a batch was too large that held one record's outputs
        self._written_at_once = 0
        self._produce: Callable[..., None] | None = None  # once the transaction has begun
        self._transform = failed.guard((lambda record: transform([record])) if takes_batches else transform)
        self._failed = failed
        self._originals = failed.originals
        self._remembers = failed.continues_after_failure
        self._session = session
        self._producer = session.producer
        self._default_topic = default_topic
        self._topics = {default_topic}  # whose names were checked: at most _TOPICS_MAX of them

    def write(self, records: Sequence[Any]) -> None:
        """Transform ``records`` and write their outputs.

        Raises TransformError for a record that fails where ``on_error`` is "stop", AbortableError or
        RebuildProducerError for a transaction that cannot go on, RefusedRecordsError if it is known why.
        """
        if self._remembers:
            self._originals.remember(records)
        try:
            self._write(records)
        finally:
            self._originals.remember(())

    def _write(self, records: Sequence[Any]) -> None:
        self._produce = None
        if self._begins:
            self._session.outputs.begin()
        if self._prepare is not None:
            self._prepare(records)
        try:
            if self._takes_batches:
                self._write_batch(records)
            else:
                self._write_each(records, self._transform)
        except _RefusedError as refused:
            raise self._find_refused(records, refused) from refused.__cause__
        self._producer.poll(0)  # acknowledged records are freed while their memory is still in the CPU cache

    def write_one_by_one(self, records: Sequence[Any]) -> None:
        """Write like ``write``, but wait for the deliveries of each record, so that a broker's refusal names it.

        Outputs with a time of the application's are not batched with others, so that a refused batch shows whose time
        is wrong. Where only the batch of a record's outputs was too large, each output has a batch of its own.
        """
        self._remembers = True
        for record in records:
            self._originals.remember([record])
            self._writes_apart, self._written_at_once = True, 0
            try:
                self._write([record])
                self._session.outputs.await_deliveries()
            except (RefusedRecordsError, RebuildProducerError):
                raise
            except AbortableError as error:
                with suppress(EosError):  # its delivery reports may still be pending
                    self._session.outputs.await_deliveries()
                self._raise_refused_delivery(record, error)
                raise
            finally:
                self._writes_apart = False
            self._raise_refused_delivery(record, None)

    def _raise_refused_delivery(self, record: Any, error: AbortableError | None) -> None:
        refused = self._producer.take_refusal()
        if refused is not None:
            if refused.is_for_size and self._written_at_once > 1:
                self._writes_each_apart = True
                name = f"{record.topic()}[{record.partition()}]@{record.offset()}"
                raise RefusedRecordsError(
                    f"the {self._written_at_once} outputs of {name} are too large for one batch, and are written one "
                    f"by one next: {refused.reason}"
                ) from error
            refusal = undelivered_output(refused.error, f"the output to {refused.reason}")
            refusal.__context__ = error
            raise self._record_refusals([(record, refusal)]) from refusal

    # The loop that every output passes: a call or an object for each would cost a twentieth of it.
    def _write_each(self, given: Sequence[Any], transform: Callable[[Any], Any] | None) -> None:  # noqa: C901, PLR0912
        """Write what ``transform`` makes of each of the ``given`` records; without it, outputs are given.

        ``on_error`` applies to a record that fails. Raises _RefusedError for a given output that cannot be written.
        """
        default_topic, topics, produce, count = self._default_topic, self._topics, self._produce, len(given)
        output: Any = None
        outputs: Any = None
        left = iter(given)
        for each in left:
            try:
                output = each if transform is None else transform(each)
                kind = type(output)
                if kind is not OutputRecord and kind is not bytes and transform is not None:
                    outputs = collected(output)
                    output = outputs[0] if len(outputs) == 1 else _SEVERAL
                    kind = type(output)
            except BaseException as error:
                if not is_failure(error, [each]):
                    raise
                count -= 1
                self._write_substitute(each, error)
                continue
            if output is _SEVERAL:
                count -= 1
                self._write_outputs_of(each, outputs)
                outputs = None
                continue
            try:
                if produce is None:
                    produce = self._produce = self._session.outputs.begin_and_get_produce()
                if kind is bytes:
                    produce(default_topic, output)
                elif (
                    kind is OutputRecord
                    and output.partition is None
                    and output.timestamp_ms is None
                    and ((topic := output.topic) is None or topic in topics)
                    and (type(value := output.value) is bytes or type(value) in UNCHANGEABLE)
                    and (type(key := output.key) is bytes or type(key) in UNCHANGEABLE)
                ):
                    topic, headers = default_topic if topic is None else topic, output.headers
                    if headers is None:
                        produce(topic, value, key)
                    else:
                        produce(topic, value, key, ANY_PARTITION, None, None, 0, checked_headers(headers))
                else:
                    self._write_unusual(output, produce)
                    output = outputs = value = key = None  # the transform may fill their buffer again
            except EosError:
                raise
            except Exception as error:
                is_handlers = raised_by_signal_handler(error, library_is_bare=self._producer.library.is_bare)
                if is_handlers and is_fit_output(output):  # it may be queued, so nothing may write it again
                    raise
            else:
                continue
            count -= 1
            self._write_again(None if transform is None else each, output, len(given) - length_hint(left) - 1)
        self._session.outputs.count(count)

    def _write_again(self, record: Any, output: Any, written: int) -> None:
        """Write a refused ``output`` again, slowly, so that its error is named; ``record``: whose it is, if known."""
        if record is None:
            self._write_slowly(output, written)
        else:
            self._write_outputs_of(record, [output])

    def _write_outputs_of(self, record: Any, outputs: Sequence[Any]) -> None:
        """Write the outputs of one record; that one is refused is the record's failure, at once if it is the first."""
        try:
            self._write_all(outputs)
        except _RefusedError as refused:
            cause = refused.__cause__ or refused
            if refused.written:
                raise self._record_refusals([(record, cause)]) from cause
            self._write_substitute(record, cause)

    def _write_batch(self, records: Sequence[Any], *, is_half: bool = False) -> None:
        """Write the outputs of a batch. One that fails is halved, until the record that fails is alone."""
        if len(records) == 1:
            self._write_each(records, self._transform)
            return
        if not self._failed.knows_any_of(records):
            outputs, failure = self._outputs_of_batch(records)
            if failure is None:
                self._write_all(outputs)
                return
            if not is_half:
                self._failed.report_batch(records, failure)
        for half in _halves(records):
            self._write_batch(half, is_half=True)

    def _outputs_of_batch(self, records: Sequence[Any]) -> tuple[Sequence[Any], Exception | None]:
        """Return the outputs of a batch, and what its transform has raised; the records are restored then."""
        try:
            return collected(self._transform_batch(list(records))), None
        except BaseException as error:
            if not is_failure(error, records):
                raise
            self._remember_from_now_on("a batch failed", error)
            self._originals.restore(*records)
            return (), error

    # -- outputs -----------------------------------------------------------------------------------------------------

    def _write_all(self, outputs: Sequence[Any]) -> None:
        """Write ``outputs``; raises _RefusedError for the first that can never be written."""
        if not self._writes_apart:
            self._write_each(outputs, None)
            return
        written = 0
        for group in self._apart(outputs):
            if written:
                self._session.outputs.await_deliveries()
            self._written_at_once = len(group)
            try:
                self._write_each(group, None)
            except _RefusedError as refused:
                refused.written += written
                raise
            written += len(group)

    def _apart(self, outputs: Sequence[Any]) -> list[Sequence[Any]]:
        """Return ``outputs`` in groups that may share a batch."""
        if self._writes_each_apart:
            return [[output] for output in outputs]
        groups = groupby(outputs, lambda each: getattr(each, "timestamp_ms", None) is not None)
        return [[*group] for _, group in groups]

    def _write_unusual(self, given: Any, produce: Callable[..., None]) -> None:
        topic, output = self._with_topic(given)
        options = produce_options(topic, output)
        if output.timestamp_ms is not None:
            self._producer.library.times_given.add(topic)
        produce(topic, as_written(output.value), as_written(output.key), **options)
        if len(self._topics) < _TOPICS_MAX:
            self._topics.add(topic)

    def _write_slowly(self, output: Any, written: int = 0) -> None:
        """Write one output of any kind, waiting for room in the local queue; raises an error that names the defect."""
        try:
            self._session.outputs.enqueue(*self._with_topic(output))
        except LOOP_LEVEL_ERRORS:
            raise
        except (OutputRefusedError, TypeError, ValueError) as error:
            raise _RefusedError(written) from error

    def _with_topic(self, output: Any) -> tuple[str, OutputRecord]:
        if isinstance(output, bytes):
            output = OutputRecord(value=output)
        elif not isinstance(output, OutputRecord):
            raise no_output(output)
        topic = self._default_topic if output.topic is None else output.topic
        if topic is None:
            raise TransformUnfitError(
                f"{repr_of(output)} names no topic and the loop has no output_topic: set one of them. No record was "
                "given up."
            )
        return topic, output

    # -- failures ------------------------------------------------------------------------------------------------

    def _write_substitute(self, record: Any, error: BaseException) -> None:
        """Write the first dead letter that librdkafka accepts; nothing for ``on_error="skip"``."""
        self._originals.restore(record)
        refusal: BaseException | None = None
        for letter in self._failed.substitutes_for(record, error):
            refusal = self._refusal_among([letter])
            if refusal is None:
                return
        if refusal is not None:
            raise self._failed.letter_refused(record, refusal) from error

    def _find_refused(self, records: Sequence[Any], refused: _RefusedError) -> EosError:
        """Return the error that aborts the transaction; ``on_error`` applies when the records are consumed again."""
        self._remember_from_now_on("an output was refused", refused.__cause__ or refused)
        found: list[tuple[Any, BaseException]] = []
        try:
            for record in self._suspects(records):
                if not self._failed.has_handled(record) and (refusal := self._refusal_of(record)) is not None:
                    found.append((record, refusal))  # noqa: PERF401  # what was found before an error counts
        except (AbortableError, RebuildProducerError) as error:
            if not found or isinstance(error, StoppedMeanwhileError):
                return error
        if not found:
            return AbortableError(f"an output was refused, but not when it was written again: {refused.__cause__}")
        return self._record_refusals(found)

    def _remember_from_now_on(self, what: str, cause: BaseException) -> None:
        """Raise RefusedRecordsError where a transform cannot be repeated, because its records are not remembered."""
        if not self._remembers:
            self._remembers = True
            raise RefusedRecordsError(
                f"{what}, and the next attempt shows of which record: {text_with_place(cause)}"
            ) from cause

    def _record_refusals(self, found: Sequence[tuple[Any, BaseException]]) -> EosError:
        self._originals.restore(*(record for record, _ in found))
        try:
            for record, refusal in found:
                self._failed.record_refusal(record, refusal)
        except TransformError as stop:
            return stop
        first, refusal = found[0]
        where = f"{first.topic()}[{first.partition()}]@{first.offset()}"
        others = f" and outputs of {len(found) - 1} more records" if len(found) > 1 else ""
        return RefusedRecordsError(f"an output of {where}{others} was refused: {refusal}")

    def _suspects(self, records: Sequence[Any]) -> Iterator[Any]:
        """Yield the ``records`` of a batch whose outputs may have been refused: those of halves that fail again."""
        if len(records) == 1:
            yield from records
            return
        self._originals.restore(*records)
        outputs, failure = self._outputs_of_batch(records)
        if failure is not None or self._refusal_among(outputs) is not None:
            for half in _halves(records):
                yield from self._suspects(half)

    def _refusal_of(self, record: Any) -> BaseException | None:
        """Return why the outputs of ``record`` cannot be written, None if they can. Writes them."""
        self._originals.restore(record)
        try:
            outputs = collected(self._transform(record))
        except BaseException as error:
            if not is_failure(error, [record]):
                raise
            return None  # a transform that raises was handled already
        return self._refusal_among(outputs)

    def _refusal_among(self, outputs: Sequence[Any]) -> BaseException | None:
        """Write ``outputs`` up to the first that is refused; returns why that is."""
        try:
            for output in outputs:
                self._write_slowly(output)
        except _RefusedError as refused:
            return refused.__cause__
        return None


def _halves(records: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    middle = len(records) // 2
    return records[:middle], records[middle:]
