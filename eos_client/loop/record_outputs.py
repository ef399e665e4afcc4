"""From records to outputs: transforms them, writes what comes out, and knows whose fault a failure is.

A stride of records is transformed first and its outputs are written then, without a note of which belongs to which:
that makes the common case cheap. A refused output ends the transaction anyway, so its record is found by doing the
stride once more, one record at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import length_hint
from typing import Any

from eos_client.clients.transaction import TransactionSession
from eos_client.errors import AbortableError, EosError, OutputRefusedError, TransformError
from eos_client.loop.record_failures import FailedRecords
from eos_client.ports import OutputRecord, Transform

_VALUES_ALONE = {bytes}


class _RefusedError(Exception):
    """One output can never be written; its cause says why."""


class RecordOutputs:
    """The application's transform, with its outputs written inside the open transaction of ``session``."""

    def __init__(
        self, transform: Transform, failed: FailedRecords, session: TransactionSession, default_topic: str | None
    ) -> None:
        self._transform = failed.guarding(transform)
        self._failed = failed
        self._session = session
        self._default_topic = default_topic

    def write(self, records: Sequence[Any]) -> None:
        """Transform ``records`` and write their outputs.

        Raises TransformError for a record that fails where ``on_error`` is "stop", AbortableError or
        RebuildProducerError for a transaction that cannot go on.
        """
        left = iter(records)
        try:
            while length_hint(left):
                self._write_until_one_fails(left)
        except _RefusedError as refused:
            raise self._blamed(records, refused) from refused.__cause__
        self._session.serve_deliveries()

    def _write_until_one_fails(self, left: Iterator[Any]) -> None:
        """Write the outputs of all records that are left, or up to the first whose transform raises, and settle it."""
        transform, record = self._transform, None
        outputs: list[Any] = []
        try:
            for record in left:
                outputs += transform(record) or ()
        except Exception as error:  # noqa: BLE001  # whatever the application raises is its record's failure
            self._write_all(outputs)
            self._write_instead(record, error)
        else:
            self._write_all(outputs)

    def _write_all(self, outputs: list[Any]) -> None:
        write = self._write_values if set(map(type, outputs)) == _VALUES_ALONE else self._write_mixed
        left = iter(outputs)
        while length_hint(left):
            try:
                write(left)
            except (_RefusedError, EosError):  # noqa: PERF203  # a try costs nothing where nothing is raised
                raise
            except Exception:  # noqa: BLE001  # the thorough way repeats it and names what is wrong
                self._write_thoroughly(outputs[-length_hint(left) - 1])
        self._session.wrote(len(outputs))

    def _write_values(self, left: Iterator[bytes]) -> None:
        deque(map(self._session.outlet(), repeat(self._default_topic), left), maxlen=0)

    def _write_mixed(self, left: Iterator[Any]) -> None:
        default_topic, produce = self._default_topic, self._session.outlet()
        for output in left:
            if type(output) is bytes:
                produce(default_topic, output)
            elif output.headers is None and output.partition is None and output.timestamp_ms is None:
                produce(output.topic or default_topic, output.value, output.key)
            else:
                self._write_thoroughly(output)

    def _write_thoroughly(self, output: Any) -> None:
        """Write one output of any kind, waiting for room in the local queue, and say what is wrong with it."""
        try:
            self._session.enqueue(*self._addressed(output))
        except (OutputRefusedError, TypeError, ValueError) as error:
            raise _RefusedError from error

    def _addressed(self, output: Any) -> tuple[str, OutputRecord]:
        if isinstance(output, bytes):
            output = OutputRecord(value=output)
        if not isinstance(output, OutputRecord):
            raise TypeError(f"the transform gave {output!r}; it must yield OutputRecord objects or bytes")
        topic = output.topic or self._default_topic
        if topic is None:
            raise TypeError(f"{output!r} names no topic and the loop has no output_topic; set one of them")
        return topic, output

    # -- failures ------------------------------------------------------------------------------------------------

    def _write_instead(self, record: Any, error: BaseException) -> None:
        instead = self._failed.settle(record, error)
        try:
            for output in instead:
                self._write_thoroughly(output)
        except _RefusedError as refused:
            cause = refused.__cause__ or refused
            raise TransformError(record.topic(), record.partition(), record.offset(), cause) from error
        self._session.wrote(len(instead))

    def _blamed(self, records: Sequence[Any], refused: _RefusedError) -> EosError:
        """Return the error that takes everything out again; the record is settled when it comes once more."""
        cause = refused.__cause__ or refused
        record = next((each for each in records if self._makes_refused(each)), None)
        if record is None:
            return AbortableError(f"an output was refused, but not when it was made once more: {cause}")
        try:
            self._failed.remember(record, cause)
        except TransformError as stop:
            return stop
        where = f"{record.topic()}[{record.partition()}]@{record.offset()}"
        return AbortableError(f"an output of {where} was refused: {cause}")

    def _makes_refused(self, record: Any) -> bool:
        try:
            outputs = list(self._transform(record) or ())
        except Exception:  # noqa: BLE001  # a transform that raises was settled already
            return False
        try:
            for output in outputs:
                self._write_thoroughly(output)
        except _RefusedError:
            return True
        return False
