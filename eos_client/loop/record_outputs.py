"""Transforms records, writes their outputs, and finds the record that a failure belongs to.

A stride of records is transformed first, then its outputs are written without keeping track of which record each
belongs to: that makes the common case cheap. A refused output aborts the transaction anyway. If librdkafka refused it,
the record is found by repeating the stride record by record, or by halves where the transform takes batches; if the
broker did, by the next transactions, which become smaller and at last wait for each record's deliveries
(``transaction_size``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, islice, repeat
from operator import length_hint
from typing import Any, cast

from eos_client.clients.transaction import TransactionSession
from eos_client.confluent.failures.producer_failures import undelivered_output
from eos_client.confluent.producer.output_arguments import UNCHANGEABLE, checked_headers, produce_options
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
from eos_client.loop.transform_results import (
    NOT_OUTPUT_COLLECTIONS,
    SINGLE_OUTPUT_TYPES,
    USUAL_COLLECTIONS,
    InvalidOutput,
    TransformUnfitError,
    as_given,
    each_output,
    invalid_output,
    invalid_result_error,
    outputs_of,
)
from eos_client.ports import Output, OutputRecord, Outputs

_BYTES_ONLY = {bytes}
_WHOLE = (*SINGLE_OUTPUT_TYPES, *NOT_OUTPUT_COLLECTIONS)
# The outputs of so many records are written before more are made. Python 3.10 to 3.12 collect garbage at 700 tracked
# objects; a stride's records and outputs together exceed that. Bytes are not tracked; a record with a header counts for
# three.
_OBJECTS_AT_ONCE = 64


def _append_copies(given: Any, outputs: list[Any]) -> None:
    """Append copies of the ``given`` outputs to ``outputs``, because the application may reuse an object.

    A record of topic, value, key and at most a list of headers is stored as a tuple of these four.
    """
    if type(given) not in USUAL_COLLECTIONS and isinstance(given, _WHOLE):
        if isinstance(given, NOT_OUTPUT_COLLECTIONS):
            raise TypeError(given)  # the caller names the error
        given = (given,)
    for output in given:
        if type(output) is bytes:
            outputs.append(output)
        elif isinstance(output, OutputRecord):
            headers, value, key = output.headers, output.value, output.key
            is_plain = output.partition is None and output.timestamp_ms is None
            is_plain = is_plain and type(value) in UNCHANGEABLE and type(key) in UNCHANGEABLE
            if is_plain and (headers is None or type(headers) is list):
                outputs.append((output.topic, value, key, headers if headers is None else [*headers]))
            else:
                outputs.append(as_given(output))
        else:
            outputs.append(bytes(output) if isinstance(output, bytes) else invalid_output(output))


def _copies_of(given: Iterable[Any]) -> list[Any]:
    outputs: list[Any] = []
    _append_copies(given, outputs)
    return outputs


class _RefusedError(Exception):
    """One output can never be written; its cause says why."""


class RefusedRecordsError(AbortableError):
    """Outputs were refused; ``on_error`` applies to their records when these are consumed again."""


class RecordOutputs:
    """The application's transform, with its outputs written inside the open transaction of ``session``.

    ``takes_batches``: ``transform`` is called with a list of records. ``prefers_whole_batches``: `write` is faster
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
    ) -> None:
        self._takes_batches = takes_batches
        self._transform_batch = transform
        self._prepare = transform.prepare if isinstance(transform, ConcurrentTransform) else None
        self.prefers_whole_batches = takes_batches or self._prepare is not None
        self._records_at_once: int | None = None
        self._writes_apart = False
        self._writes_each_apart = False  # once a batch was too large that held one record's outputs
        self._written_at_once = 0
        self._transform = failed.guard((lambda record: outputs_of(transform([record]))) if takes_batches else transform)
        self._failed = failed
        self._originals = failed.originals
        self._remembers = failed.continues_after_failure
        self._session = session
        self._producer = session.producer
        self._default_topic = default_topic

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
        if self._prepare is not None:
            self._prepare(records)
        try:
            if self._takes_batches:
                self._write_batch(records)
            else:
                self._write_each(records)
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
            self._writes_apart = True
            try:
                self._write([record])
                self._session.await_deliveries()
            except (RefusedRecordsError, RebuildProducerError):
                raise
            except AbortableError as error:
                with suppress(EosError):  # its delivery reports may still be pending
                    self._session.await_deliveries()
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

    def _write_batch(self, records: Sequence[Any], *, is_half: bool = False) -> None:
        """Write the outputs of a batch. One that fails is halved, until the record that fails is alone."""
        if len(records) == 1:
            self._write_each(records)
            return
        made = None if self._failed.knows_any_of(records) else self._outputs_of_batch(records)
        if type(made) is list:
            self._write_all(made)
            return
        if made is not None and not is_half:
            self._failed.report_batch(records, cast("Exception", made))
        for half in _halves(records):
            self._write_batch(half, is_half=True)

    def _outputs_of_batch(self, records: Sequence[Any]) -> list[Output] | Exception:
        try:
            return _copies_of(each_output(self._transform_batch(list(records))))
        except BaseException as error:
            if not is_failure(error, records):
                raise
            self._remember_from_now_on("a batch failed", error)
            self._originals.restore(*records)
            return error

    def _write_each(self, records: Sequence[Any]) -> None:
        left = iter(records)
        while length_hint(left):
            self._write_until_one_fails(left)

    def _write_until_one_fails(self, left: Iterator[Any]) -> None:
        """Write the outputs up to the first record whose transform raises, and apply ``on_error`` to that record."""
        transform, record = self._transform, None
        made: Any = None
        outputs: list[Any] = []
        try:
            for record in islice(left, self._records_at_once):
                made = transform(record)
                kind = type(made)  # as `_append_copies`, without a call for each record
                if kind is bytes:
                    outputs.append(made)
                elif kind is OutputRecord:
                    headers, value, key = made.headers, made.value, made.key
                    is_plain = made.partition is None and made.timestamp_ms is None
                    is_plain = is_plain and type(value) in UNCHANGEABLE and type(key) in UNCHANGEABLE
                    if is_plain and (headers is None or type(headers) is list):
                        outputs.append((made.topic, value, key, headers if headers is None else [*headers]))
                    else:
                        outputs.append(as_given(made))
                elif made is not None:
                    _append_copies(made, outputs)
        except BaseException as error:
            if not is_failure(error, [record]):
                raise
            self._write_all(outputs)
            self._write_substitute(record, invalid_result_error(made) or error)
        else:
            self._write_all(outputs)

    def _write_all(self, outputs: list[Any]) -> None:
        if self._writes_apart and len(groups := self._apart(outputs)) > 1:
            for group in groups:
                self._write_all(group)
                self._session.await_deliveries()
            return
        self._written_at_once = len(outputs)
        is_bytes = set(map(type, outputs)) == _BYTES_ONLY
        self._records_at_once = None if is_bytes else _OBJECTS_AT_ONCE
        write = self._write_values if is_bytes else self._write_mixed
        left, counted = iter(outputs), 0
        while length_hint(left):
            try:
                write(left)
            except EosError:  # noqa: PERF203  # a try costs nothing where nothing is raised
                raise
            except Exception:  # noqa: BLE001  # the slow path repeats it and names the error
                self._write_thoroughly(outputs[-length_hint(left) - 1])  # the one that the iterator has given last
                counted += 1
        self._session.count_outputs(len(outputs) - counted)

    def _apart(self, outputs: list[Any]) -> list[list[Any]]:
        """Return ``outputs`` in groups that may share a batch."""
        if self._writes_each_apart:
            return [[output] for output in outputs]
        groups = groupby(outputs, lambda each: getattr(each, "timestamp_ms", None) is not None)
        return [[*group] for _, group in groups]

    def _write_values(self, left: Iterator[bytes]) -> None:
        deque(map(self._session.raw_produce(), repeat(self._default_topic), left), maxlen=0)

    def _write_mixed(self, left: Iterator[Any]) -> None:
        default_topic, produce = self._default_topic, self._session.raw_produce()
        for output in left:
            if type(output) is tuple:
                topic, value, key, headers = output
                if headers is None:
                    produce(default_topic if topic is None else topic, value, key)
                else:
                    produce(default_topic if topic is None else topic, value, key, headers=checked_headers(headers))
            elif type(output) is bytes:
                produce(default_topic, output)
            else:
                named: Any = default_topic if output.topic is None else output.topic
                if output.timestamp_ms is not None:
                    self._producer.library.times_given.add(named)
                produce(named, output.value, output.key, **produce_options(named, output))

    def _write_thoroughly(self, output: Any) -> None:
        """Write one output of any kind, waiting for room in the local queue; raises an error that names the defect."""
        try:
            self._session.enqueue(*self._with_topic(output))
        except LOOP_LEVEL_ERRORS:
            raise
        except (OutputRefusedError, TypeError, ValueError) as error:
            raise _RefusedError from error

    def _with_topic(self, output: Any) -> tuple[str, OutputRecord]:
        if type(output) is tuple:
            topic, value, key, headers = output
            output = OutputRecord(topic, value=value, key=key, headers=headers)
        elif type(output) is bytes:
            output = OutputRecord(value=output)
        elif type(output) is InvalidOutput:
            raise TypeError(output.reason)
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
            refusal = self._refusal_of_copies([letter])
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
                if (refusal := self._refusal_of(record)) is not None:
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
        """Yield the ``records`` whose outputs may have been refused: of a batch, those of halves that fail again."""
        if not self._takes_batches or len(records) == 1:
            yield from records
            return
        self._originals.restore(*records)
        made = self._outputs_of_batch(records)
        if type(made) is not list or self._refusal_of_copies(made) is not None:
            for half in _halves(records):
                yield from self._suspects(half)

    def _refusal_of(self, record: Any) -> BaseException | None:
        """Return why the outputs of ``record`` cannot be written, None if they can. Writes them."""
        self._originals.restore(record)
        try:
            outputs = _copies_of(each_output(self._transform(record)))
        except BaseException as error:
            if not is_failure(error, [record]):
                raise
            return None  # a transform that raises was handled already
        return self._refusal_of_copies(outputs)

    def _refusal_of_copies(self, outputs: list[Any]) -> BaseException | None:
        try:
            for output in outputs:
                self._write_thoroughly(output)
        except _RefusedError as refused:
            return refused.__cause__
        return None


def _halves(records: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    middle = len(records) // 2
    return records[:middle], records[middle:]
