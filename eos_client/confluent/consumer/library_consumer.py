"""The client library's consumer: asks it for records and offsets, and closes it in time."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from eos_client.config.secret_settings import MaskedSettings
from eos_client.confluent.call_marks import CallMarks, in_library, refuse_inside_library
from eos_client.confluent.callback_guard import CallbackGuard
from eos_client.confluent.consumer import safe_close
from eos_client.confluent.consumer.topic_identities import TopicIdentities
from eos_client.confluent.failures.consumer_failures import consumer_errors
from eos_client.confluent.failures.kafka_errors import ErrorTranslation, is_fatal, kafka_error
from eos_client.confluent.last_errors import LastErrors
from eos_client.confluent.statistics import with_statistics_received
from eos_client.core.error_codes import OUTPUT_WITHOUT_PLACE
from eos_client.core.model import CommittedOffset, InputPartition, Partitions
from eos_client.core.outcome_resolution import NO_LOG
from eos_client.core.partition_row import ResetPolicy
from eos_client.core.passed_offsets import PassedOffset
from eos_client.errors import CommitRefusedError, EosError
from eos_client.ports import Clock, input_partition, is_simulated

__all__ = ["LibraryConsumer", "TopicPartition", "to_kafka", "with_epoch", "with_offsets"]

ConsumerFactory = Callable[[dict[str, Any]], Any]
T = TypeVar("T")

_NO_EPOCH = -1
_RESET = "auto.offset.reset"
_STABLE_TIMEOUT_S = 0.5
_SESSION_TIMEOUT_MS = 45_000  # librdkafka's default
_SLICE_S = 1.0
"""The longest delay before an exception raised in a callback leaves a call that waits for records."""


def to_kafka(partitions: Iterable[InputPartition]) -> list[TopicPartition]:
    """Return ``partitions`` as confluent_kafka wants them."""
    return [TopicPartition(p.topic, p.partition) for p in partitions]


def with_epoch(partition: InputPartition, offset: int, epoch: int | None) -> TopicPartition:
    """Return an offset to commit or to seek, with the leader epoch before it; None: not known."""
    return TopicPartition(*partition, offset, leader_epoch=_NO_EPOCH if epoch is None else epoch)


def with_offsets(answer: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return those of an answer that have a committed offset; raises KafkaException where one has an error instead."""
    for each in answer:
        if each.error is not None:
            raise KafkaException(each.error)
    return [each for each in answer if each.offset >= 0]


def library_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` for the client library, which must never skip to the end of a log by itself."""
    if ResetPolicy.of(settings[_RESET]) is ResetPolicy.LATEST:
        return {**settings, _RESET: "earliest"}
    return dict(settings)


class LibraryConsumer:
    """``raw`` is the library's consumer, ``guard`` stands between it and callbacks.

    ``settings`` are the librdkafka settings in force, the defaults of this package included. ``fatal`` is the error for
    which librdkafka has given the consumer up, once that is known. ``why_unanswered``: why the
    committed offsets could not be read when that failed last. ``may_keep_a_record``: the library may keep a record that
    was not handed over, and its ``close()`` wait for it for ever. ``is_real``: whether it is a member of a real
    group; those of a simulated one stand for processes.
    """

    def __init__(self, settings: dict[str, Any], factory: ConsumerFactory, clock: Clock, marks: CallMarks) -> None:
        self.last_errors = LastErrors(settings.get("error_cb"))
        self.settings = MaskedSettings(settings, error_cb=self.last_errors.error_cb)
        self.reset_policy = ResetPolicy.of(self.settings[_RESET])
        self.topics = TopicIdentities(self.settings)
        self._stable_ends: dict[InputPartition, int] | None = None
        self.fatal: KafkaError | None = None
        self.why_unanswered = ""
        self._awaits_fatal_event = False
        self._clock = clock
        self._marks = marks
        self.is_real = not is_simulated(clock)
        self.may_keep_a_record = False
        self._close_begun = threading.Lock()  # taken for good when the library's close() begins
        self.guard = CallbackGuard()
        with self.guard.building("consumer"):
            given = self.topics.added_to(library_settings(self.settings))
            self.raw = factory(self.guard.added_to(with_statistics_received(given, self._receive_statistics)))

    def _receive_statistics(self, statistics: dict[str, Any]) -> None:
        self._stable_ends = {
            InputPartition(topic, int(number)): partition["ls_offset"]
            for topic, known in statistics.get("topics", {}).items()
            for number, partition in known["partitions"].items()
            if partition["ls_offset"] >= 0
        }

    def take_stable_ends(self) -> dict[InputPartition, int] | None:
        """Return the last stable offsets from statistics since the last call; None where there were none.

        ``get_watermark_offsets(cached=True)`` is no substitute: it returns the high watermark even for read_committed.
        """
        new, self._stable_ends = self._stable_ends, None
        return new

    def call(self, call: Callable[[], T]) -> T:
        """Make a ``call`` that may serve callbacks; raises TransactionStateError inside another such call."""
        return in_library(self._marks, call)

    def refuse_nested(self) -> None:
        """Raise TransactionStateError inside a call that may serve callbacks."""
        refuse_inside_library(self._marks)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Replace the SASL credentials."""
        self.raw.set_sasl_credentials(username, password)
        self.settings.update({"sasl.username": username, "sasl.password": password})

    # -- records ---------------------------------------------------------------------------------------------------

    def fetch(self, count: int, timeout: float) -> list[Any]:
        """Return up to ``count`` messages within ``timeout`` seconds; serves callbacks.

        A long wait is cut into slices, so that what a callback has raised need not wait for a record.
        """
        if not self.is_real or not isinstance(timeout, (int, float)) or 0 <= timeout <= _SLICE_S:
            return self._fetch_once(count, timeout)
        deadline = math.inf if timeout < 0 else self._clock() + timeout
        batch: list[Any] = []
        while not batch and self.guard.error is None and (left := deadline - self._clock()) > 0:
            batch = self._fetch_once(count, min(_SLICE_S, left))
        return batch

    def _fetch_once(self, count: int, timeout: float) -> list[Any]:
        if count != 1:
            return in_library(self._marks, lambda: self._consume(count, timeout))
        message = in_library(self._marks, lambda: self.raw.poll(timeout))
        return [] if message is None else [message]

    def _consume(self, count: int, timeout: float) -> list[Any]:
        try:
            batch: list[Any] = self.raw.consume(count, timeout)
        except BaseException:
            # Where it came out of a callback, librdkafka (2.16, `rd_kafka_q_serve_rkmessages`) neither hands over nor
            # frees the next record, which refers to a connection that `close` waits for.
            self.may_keep_a_record = True
            raise
        return batch

    # -- the group's offsets, and the ends of logs -------------------------------------------------------------------

    @property
    def group_id(self) -> str:
        """The group's name; empty where none is set."""
        return str(self.settings.get("group.id", ""))

    @property
    def session_timeout_s(self) -> float:
        """How long a classic group keeps a member that sends no heartbeat (``session.timeout.ms``)."""
        return float(self.settings.get("session.timeout.ms", _SESSION_TIMEOUT_MS)) / 1000

    def naming_errors(self, call: str, topics: Iterable[str] | None = None) -> ErrorTranslation:
        """Translate what ``call`` raises; with ``topics``, also a missing permission on them or the group."""
        return consumer_errors(call, self.group_id, topics, self.fatal)

    def committed_entries(
        self, partitions: Iterable[InputPartition], timeout_s: float
    ) -> dict[InputPartition, CommittedOffset]:
        """Read the stable committed offsets (KIP-447) with their metadata; partitions without one are left out."""
        with self.naming_errors("committed()"):
            answer = self.raw.committed(to_kafka(partitions), timeout_s)
        found = with_offsets(answer)
        return {input_partition(p): CommittedOffset(p.offset, p.metadata or "", p.leader_epoch) for p in found}

    def committed_offsets(
        self, partitions: Iterable[InputPartition], timeout_s: float = _STABLE_TIMEOUT_S
    ) -> Mapping[InputPartition, CommittedOffset] | None:
        """Return the committed offsets; None while any of them is pending or cannot be read."""
        try:
            return self.committed_entries(partitions, timeout_s)
        except KafkaException as error:
            if isinstance(error, EosError) and not isinstance(error, CommitRefusedError):
                raise
            self.why_unanswered = kafka_error(error).str()
            return None

    def end_of(self, partition: InputPartition) -> int | None:
        """Return the offset after the last record that may be read now; None if no broker answers."""
        span = self.span_of(partition)
        return None if span is None else span[1]

    def span_of(self, partition: InputPartition, timeout_s: float = _STABLE_TIMEOUT_S) -> tuple[int, int] | None:
        """Return the offset of the first record of the log, and `end_of`; None if no broker answers.

        A broker answers a connection in turn, so the answer may wait for a fetch (``fetch.wait.max.ms``).
        """
        try:
            return self._ask_span(partition, timeout_s)
        except KafkaException:
            return None

    def log_end(self, partition: InputPartition) -> int | None:
        """Return `end_of`, or NO_LOG where the cluster answers that there is no such partition any more."""
        try:
            span = self._ask_span(partition, _STABLE_TIMEOUT_S)
        except KafkaException as error:
            if isinstance(error, EosError):  # of a signal handler
                raise
            self.why_unanswered = kafka_error(error).str()
            return NO_LOG if kafka_error(error).name() in OUTPUT_WITHOUT_PLACE else None
        return None if span is None else span[1]

    def _ask_span(self, partition: InputPartition, timeout_s: float) -> tuple[int, int] | None:
        watermarks = self.raw.get_watermark_offsets(TopicPartition(*partition), timeout_s)
        return None if watermarks is None else (int(watermarks[0]), int(watermarks[1]))

    def passed_offsets(self, partitions: Partitions) -> dict[InputPartition, PassedOffset]:
        """Return the library's positions, behind all that it has handed over and the transaction markers after that.

        Left out are partitions of which nothing has come since they were assigned, or sought.
        """
        positions = self.raw.position(to_kafka(partitions))
        return {input_partition(p): PassedOffset(p.offset, p.leader_epoch) for p in positions if p.offset >= 0}

    def commit_starts(self, starts: Mapping[InputPartition, int]) -> str | None:
        """Commit start offsets; returns why they were not committed."""
        offsets = [TopicPartition(*p, offset) for p, offset in starts.items()]
        try:
            answer = self.raw.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            return str(error)
        return next((f"{each.error}" for each in answer if each.error is not None), None)

    # -- failed for good ---------------------------------------------------------------------------------------------

    def record_fatal(self, events: Iterable[Any]) -> None:
        """Keep the fatal error among ``events``, if there is one: librdkafka reports it once."""
        errors = (event.error() for event in events)
        if (error := next((error for error in errors if is_fatal(error)), None)) is not None:
            self.fatal, self._awaits_fatal_event = error, False

    def check_fatal(self) -> bool:
        """Check whether the consumer has failed for good; returns whether it has."""
        if self.fatal is None:
            try:
                self.raw.commit(offsets=[], asynchronous=False)  # looks at that before it looks at the offsets
            except KafkaException as exception:
                error = kafka_error(exception)
                if is_fatal(error):
                    self.fatal, self._awaits_fatal_event = error, True
        return self.fatal is not None

    def take_awaits_fatal_event(self) -> bool:
        """Return, once, whether the event with the fatal error may still come."""
        awaited, self._awaits_fatal_event = self._awaits_fatal_event, False
        return awaited

    # -- closing it --------------------------------------------------------------------------------------------------

    @property
    def close_limit_s(self) -> float:
        """How long the library's ``close()`` is waited for."""
        return safe_close.CLOSE_LIMIT_AFTER_AN_EXCEPTION_S if self.may_keep_a_record else safe_close.CLOSE_LIMIT_S

    @property
    def close_has_begun(self) -> bool:
        """Whether the library's ``close()`` was called."""
        return self._close_begun.locked()

    def close_once(self) -> None:
        """Close it, unless that has begun: two calls at once would destroy the library's handle twice."""
        if self._close_begun.acquire(blocking=False):
            in_library(self._marks, self.raw.close)
