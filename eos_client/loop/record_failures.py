"""Applies ``on_error`` to a record that the transform or the producer refused.

``stop`` ends the loop, ``skip`` leaves the record out, ``dead_letter`` writes the record (unchanged where it fits) with
its origin and the error in headers, in the same transaction as everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeGuard

import tenacity

from eos_client.clients.dead_letters import (
    UNKNOWN_HANDLING,
    RecordKey,
    event_fields,
    forget_departed,
    key_of,
    letters_for,
)
from eos_client.clients.refused_letters import RefusedLetters
from eos_client.config import EosConfig, OnError
from eos_client.confluent.failures.producer_failures import is_refused_for_size
from eos_client.confluent.record_headers import readable_headers
from eos_client.core.error_report import ErrorReport, add_note, place_of, report_of, text_with_place
from eos_client.core.model import InputPartition
from eos_client.errors import AbortableError, ConfigurationError, TransformError
from eos_client.loop.transform_results import SINGLE_OUTPUT_TYPES, TransformUnfitError, collected
from eos_client.observe import ClientReported, Counters, Event, EventHook, RecordDeadLettered, RecordSkipped
from eos_client.ports import Clock, OutputRecord, Outputs, Record, Transform
from eos_client.transform_retry import bounded

Collected = Callable[[Any], Outputs]
Sleep = Callable[[float], None]
_SLEEP_SLICE_S = 0.1


class KnownFailureError(Exception):
    """A record whose outputs were refused before was consumed again; ``first`` tells of the first failure."""

    def __init__(self, first: ErrorReport) -> None:
        super().__init__(first.text)
        self.first = first


class StoppedMeanwhileError(AbortableError):
    """The loop was stopped while a record waited for its next attempt; it was not handled yet."""


class TransactionBrokenError(AbortableError):
    """The transaction that a transform writes into was interrupted, which is no failure of a record."""


class RetryPolicyError(ConfigurationError):
    """The application's ``transform_retry`` has raised an error of its own, which is no failure of a record."""


LOOP_LEVEL_ERRORS = (StoppedMeanwhileError, TransactionBrokenError, RetryPolicyError, TransformUnfitError)
"""What ``on_error`` does not apply to, though it is raised where a record is transformed or its outputs are written."""


class OriginalRecords:
    """The original content of records, which a transform may change: a retry or a dead letter gets it back."""

    def __init__(self) -> None:
        self._records: Sequence[Any] = ()
        self._contents: Sequence[list[Any]] = ()
        self._places: dict[int, int] = {}

    def remember(self, records: Sequence[Any]) -> None:
        """Remember ``records``, in place of those before; by columns, which takes less time than by rows."""
        self._records, self._contents, self._places = records, (), {}
        if records:
            kind = type(records[0])
            topics, values, keys = ([*map(part, records)] for part in (kind.topic, kind.value, kind.key))
            headers = [each and [*each] for each in map(readable_headers, records)]
            self._contents = topics, values, keys, headers

    def restore(self, *records: Any) -> None:
        """Undo what a transform has changed in those of ``records`` that are remembered."""
        if not self._places:
            self._places = {id(record): place for place, record in enumerate(self._records)}
        for record in records:
            if (place := self._places.get(id(record))) is not None:
                topic, value, key, headers = (column[place] for column in self._contents)
                record.set_topic(topic)
                record.set_value(value)
                record.set_key(key)
                record.set_headers(headers and [*headers])


class FailedRecords:
    """Applies ``on_error``. Remembers records whose outputs were refused until they are handled and committed.

    Events and counters follow the commit, because an aborted transaction has done nothing with its records. Of a
    failure only the text is kept: an exception would keep its frames, and their records, alive.
    ``is_stopping``: whether the loop was asked to stop, which ends the wait for an attempt.
    ``continues_after_failure``: whether a failed record is retried, skipped or dead-lettered; else it ends the loop.
    """

    def __init__(
        self,
        config: EosConfig,
        hook: EventHook,
        counters: Counters,
        clock: Clock,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config = config
        self._stops = OnError(config.on_error) is OnError.STOP
        self._dead_letter_topic = config.dead_letter_topic
        self._hook = hook
        self._counters = counters
        self._clock = clock
        self._is_stopping = is_stopping
        self.originals = OriginalRecords()
        self.continues_after_failure = not self._stops or config.retry_policy is not None
        self._attempts = 1
        self._known: dict[RecordKey, ErrorReport] = {}
        self._letters_refused = RefusedLetters()
        self._handled: dict[RecordKey, Event] = {}
        self._endings_seen = (0, 0)

    def substitutes_for(self, record: Record, error: BaseException) -> list[OutputRecord]:
        """Return the dead letters of which one replaces the outputs of ``record``, each smaller than the one before.

        Write the first one that the producer accepts. Empty for "skip"; raises TransformError for "stop".
        """
        if self._stops:
            raise _stopping_error(record, error) from error
        key = key_of(record)
        report = error.first if type(error) is KnownFailureError else report_of(error)
        told = event_fields(key, report)
        if self._dead_letter_topic is None:
            self._handled[key] = RecordSkipped(**told)
            return []
        self._handled[key] = RecordDeadLettered(**told, dead_letter_topic=self._dead_letter_topic)
        letters = letters_for(self._dead_letter_topic, record, report, self._attempts)
        return self._letters_refused.still_allowed(letters, key)

    def record_refusal(self, record: Record, error: BaseException) -> None:
        """Record that ``record`` fails with ``error``; ``on_error`` applies when it is redelivered.

        If ``record`` was handled already, its dead letter was refused; for its size, the next smaller one is tried.
        Raises TransformError for "stop", and when no dead letter can be written.
        """
        if self._stops:
            raise _stopping_error(record, error) from error
        key = key_of(record)
        if key not in self._handled:
            self._known[key] = report_of(error)
            return
        is_left = self._letters_refused.add(key, is_for_size=is_refused_for_size(error))
        if self._dead_letter_topic is None or not is_left:
            raise self.letter_refused(record, error) from error

    def letter_refused(self, record: Record, refusal: BaseException) -> TransformError:
        """Return the error for ``record``, which was handled, where not even its smallest dead letter was taken."""
        key = key_of(record)
        handled = self._handled[key]
        if not isinstance(handled, RecordDeadLettered):
            return _stopping_error(record, refusal)
        return TransformError(*key, refusal, letter_of=handled.error, place=handled.place)

    def apply_endings(self, committed: int, aborted: int, assigned: Collection[InputPartition]) -> None:
        """Apply `committed` or `aborted` if its total since the session began has changed since the last call."""
        if aborted != self._endings_seen[1]:
            self.aborted(assigned)
        elif committed != self._endings_seen[0]:
            self.committed()
        self._endings_seen = committed, aborted

    def committed(self) -> None:
        """Report the handled records, whose transaction was committed, and forget them."""
        handled, self._handled = self._handled, {}
        for key, done in handled.items():
            self._known.pop(key, None)
            self._letters_refused.forget(key)
            self._counters.records_failed += 1
            self._hook(done)

    def unresolved(self) -> None:
        """Report the handled records of a transaction whose outcome is unknown, and keep expecting them.

        If it was committed they are not redelivered, and nothing else would report them.
        """
        handled, self._handled = self._handled, {}
        for done in handled.values():
            error_text = f"{UNKNOWN_HANDLING}{done}"
            self._hook(ClientReported(client="loop", error=error_text))

    def aborted(self, assigned: Collection[InputPartition]) -> None:
        """Expect the handled records again, but forget those of partitions that are not in ``assigned``."""
        self._handled.clear()
        forget_departed(self._known, assigned)
        self._letters_refused.forget_departed(assigned)

    def guard(self, transform: Transform) -> Transform:
        """Return ``transform`` with retries, and raising at once for a record that is known to fail.

        Outputs are collected first, so that a transform that fails half-way has written nothing. Where a failure aborts
        the transaction anyway, ``transform`` is returned as it is.
        """
        policy, sleep, known = self._config.retry_policy, self._sleep_until_retry, self._known
        if not self.continues_after_failure:
            return transform

        def attempt(record: Any) -> Outputs:
            self._attempts += 1
            if self._attempts > 1:
                self.originals.restore(record)
            made = transform(record)
            return made if type(made) in SINGLE_OUTPUT_TYPES else collected(made)

        repeated = attempt if policy is None else _RepeatedAttempt(policy, attempt, self._config, self._clock, sleep)

        def guarded(record: Any) -> Outputs:
            if known:
                self.originals.restore(record)  # it may have been transformed ahead
                if (first := known.get(key_of(record))) is not None:
                    self._attempts = 1
                    raise KnownFailureError(first)
            self._attempts = 0
            return repeated(record)

        return guarded

    def has_handled(self, record: Record) -> bool:
        """Whether ``record`` has failed in the open transaction, and is left out of it or replaced by a letter."""
        return key_of(record) in self._handled

    def knows_any_of(self, records: Sequence[Record]) -> bool:
        """Whether one of ``records`` is known to fail."""
        return bool(self._known) and not self._known.keys().isdisjoint(map(key_of, records))

    def report_batch(self, records: Sequence[Record], error: Exception) -> None:
        """Report a batch that failed as a whole: if it failed for its size, no record reports it."""
        failed = f"transform_batch failed on {len(records)} records and is called with their halves"
        self._hook(ClientReported(client="loop", error=f"{failed}: {text_with_place(error)}"))

    def _sleep_until_retry(self, seconds: float) -> None:
        """Wait between two attempts; raises StoppedMeanwhileError once the loop is asked to stop."""
        until = self._clock() + seconds
        while True:
            if self._is_stopping():
                raise StoppedMeanwhileError("the loop was stopped while a record waited for its next attempt")
            if (left_s := until - self._clock()) <= 0:
                return
            self._clock.sleep(min(left_s, _SLEEP_SLICE_S))


class _RepeatedAttempt:
    """An ``attempt`` that is repeated by ``policy``; raises RetryPolicyError for what ``policy`` itself raises."""

    def __init__(
        self, policy: tenacity.Retrying, attempt: Collected, config: EosConfig, clock: Clock, sleep: Sleep
    ) -> None:
        self._attempt = attempt
        self._clock = clock
        self._limit_s = config.transform_retry_limit_s
        self._last_failure: BaseException | None = None
        self._began_at = 0.0
        self._repeat = bounded(policy, config.retries_wait_s, sleep, self._is_over).wraps(self._once)

    def __call__(self, record: Any) -> Outputs:
        self._began_at, self._last_failure = self._clock(), None
        try:
            made = self._repeat(record)
        except StoppedMeanwhileError:
            raise
        except Exception as error:
            if error is self._last_failure:
                raise
            raise RetryPolicyError(
                f"transform_retry itself raised {text_with_place(error)}. Correct its callables; no record was given "
                "up."
            ) from error
        else:
            if self._last_failure is not None:
                raise self._last_failure
            return made
        finally:
            self._last_failure = None

    def _once(self, record: Any) -> Outputs:
        self._last_failure = None
        try:
            return self._attempt(record)
        except BaseException as error:
            self._last_failure = error
            raise

    def _is_over(self, pause_s: float) -> bool:
        is_late = self._limit_s is not None and self._clock() - self._began_at + pause_s > self._limit_s
        return is_late or issubclass(type(self._last_failure), (TransformUnfitError, TransactionBrokenError))


def _stopping_error(record: Record, error: BaseException) -> TransformError:
    return TransformError(*key_of(record), error, place=place_of(error))


def is_failure(error: BaseException, records: Sequence[Record | None]) -> TypeGuard[Exception]:
    """Return whether ``error``, which the transform of ``records`` has raised, is the failure of one of them.

    A BaseException that is not an Exception leaves the loop unchanged, with a note that names the first record, if one
    was begun.
    """
    kind = type(error)  # isinstance() asks the error for its class, which an application's class may refuse
    if issubclass(kind, Exception):
        return not issubclass(kind, LOOP_LEVEL_ERRORS)
    if (first := records[0]) is not None:
        topic, partition, offset = key_of(first)
        others = f" or one of {len(records) - 1} more" if len(records) > 1 else ""
        place = f"while the transform was at the record {topic}[{partition}]@{offset}{others}"
        add_note(error, place)
    return False
