"""From records to outputs: transforms them, writes what comes out, and knows whose fault a failure is.

A stride of records is transformed first and written then, which is what makes the common case cheap; a transform that
yields is run while its outputs are written. Order is kept either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import length_hint
from typing import Any

from eos_client.clients.transaction import TransactionSession
from eos_client.errors import AbortableError, EosError, OutputRefusedError, TransformError
from eos_client.loop.record_failures import FailedRecords
from eos_client.ports import OutputRecord, Transform

_COLLECTIONS = frozenset({tuple, list})
_VALUES_ALONE = {bytes}


class _WriteFailedError(Exception):
    """Carries ``reason`` past the handler of what the application raises."""

    def __init__(self, reason: EosError) -> None:
        super().__init__(str(reason))
        self.reason = reason


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
        done = 0
        while done < len(records):
            done += self._write_until_one_fails(records[done:] if done else records)
        self._session.serve_deliveries()

    def _write_until_one_fails(self, records: Sequence[Any]) -> int:
        """Return how many records are done with: those before the first whose transform raises, and that one."""
        transform, results = self._transform, []
        try:
            for record in records:
                results.append(transform(record))  # noqa: PERF401  # what came before a failure is kept
        except Exception as error:  # noqa: BLE001  # whatever the application raises is its record's failure
            failed = records[len(results)]
            self._write_results(records, results)
            self._write_instead(failed, error)
            return len(results) + 1
        self._write_results(records, results)
        return len(results)

    def _write_results(self, records: Sequence[Any], results: list[Any]) -> None:
        start = self._write_single_values(results)
        if start == len(results):
            return
        default_topic, produce = self._default_topic, self._session.outlet()
        simple = 0
        for record, outputs in zip(records[start:], results[start:], strict=False):
            try:
                for output in outputs or ():
                    try:
                        if type(output) is bytes:
                            produce(default_topic, output)
                        elif output.headers is None and output.partition is None and output.timestamp_ms is None:
                            produce(output.topic or default_topic, output.value, output.key)
                        else:
                            self._write_thoroughly(record, output)
                            continue
                        simple += 1
                    except _WriteFailedError:  # a try costs nothing where nothing is raised
                        raise
                    except Exception:  # noqa: BLE001  # the thorough way repeats it and names what is wrong
                        self._write_thoroughly(record, output)
            except _WriteFailedError as failed:
                raise failed.reason from failed.reason.__cause__
            except Exception as error:  # noqa: BLE001  # raised by a transform that yields
                self._write_instead(record, error)
        self._session.wrote(simple)

    def _write_single_values(self, results: list[Any]) -> int:
        """Write the results at full speed if each is one value; return how many were written."""
        if not _COLLECTIONS.issuperset(map(type, results)):
            return 0
        try:
            values = [value for (value,) in results]
        except ValueError:
            return 0
        if set(map(type, values)) != _VALUES_ALONE:
            return 0
        topic, produce = self._default_topic, self._session.outlet()
        left = iter(values)
        written = len(values)
        try:
            for value in left:
                produce(topic, value)
        except Exception:  # noqa: BLE001  # the thorough way repeats it and names what is wrong
            written -= length_hint(left) + 1
        self._session.wrote(written)
        return written

    def _write_thoroughly(self, record: Any, output: Any) -> None:
        """Write one output of any kind, waiting for room in the local queue, and say what is wrong with it."""
        try:
            topic, output = self._addressed(output)
            self._session.produce(topic, output)
        except (OutputRefusedError, TypeError, ValueError) as error:
            raise _WriteFailedError(self._refused(record, error)) from error
        except EosError as error:
            raise _WriteFailedError(error) from error

    def _write_instead(self, record: Any, error: BaseException) -> None:
        try:
            for output in self._failed.settle(record, error):
                self._write_thoroughly(record, output)
        except _WriteFailedError as failed:
            raise failed.reason from failed.reason.__cause__

    def _addressed(self, output: Any) -> tuple[str, OutputRecord]:
        if isinstance(output, bytes):
            output = OutputRecord(value=output)
        if not isinstance(output, OutputRecord):
            raise TypeError(f"the transform gave {output!r}; it must yield OutputRecord objects or bytes")
        topic = output.topic or self._default_topic
        if topic is None:
            raise TypeError(f"{output!r} names no topic and the loop has no output_topic; set one of them")
        return topic, output

    def _refused(self, record: Any, error: BaseException) -> EosError:
        """Return the error that takes the record's other outputs out again; it is settled when it comes once more."""
        try:
            self._failed.remember(record, error)
        except TransformError as stop:
            return stop
        where = f"{record.topic()}[{record.partition()}]@{record.offset()}"
        abort = AbortableError(f"an output of {where} was refused: {error}")
        abort.__cause__ = error
        return abort
