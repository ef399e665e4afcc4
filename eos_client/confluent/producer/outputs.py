"""A producer's records: queues them, waits until they are acknowledged, and names what refuses them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import KafkaException

from eos_client.confluent.failures import must_abort
from eos_client.confluent.producer.bounded_calls import BoundedCalls
from eos_client.confluent.producer.output_arguments import produce_options
from eos_client.confluent.thread_ownership import ThreadOwnership, owned
from eos_client.core.producer_recovery import TransactionalRequest
from eos_client.errors import EosError, OutputRefusedError
from eos_client.ports import Clock, OutputRecord

_SLICE_S = 0.2
_WORKING_SLICE_S = 0.02
_QUEUE_WAIT_S = 0.05
_BEFORE_CALLBACK = 3  # of the unnamed arguments of produce(), after the topic: value, key and partition


class Produces(Protocol):
    """Whatever queues a record as confluent_kafka's producer does, and makes room for it."""

    def produce(self, topic: str, *args: Any, **kwargs: Any) -> None: ...  # noqa: D102
    def poll(self, timeout: float = -1) -> int: ...  # noqa: D102


class Outputs:
    """Queues records and waits for their acknowledgement. Fulfils ``TransactionalOutputs``.

    ``face``: whose ``produce`` and ``poll`` `enqueue` calls, because the application may have put its own around them.
    """

    def __init__(self, calls: BoundedCalls, ownership: ThreadOwnership, clock: Clock, face: Produces | None) -> None:
        self._library = calls.library
        self._calls = calls
        self._ownership = ownership
        self._clock = clock
        self._face: Produces = self if face is None else face

    @owned(claims=True)
    def produce(self, topic: str, *args: Any, **kwargs: Any) -> None:
        """Queue a record. Raises OutputRefusedError, AbortableError, BufferError when the local queue is full."""
        if self._calls.finished is not None:
            raise self._calls.finished
        library = self._library
        if kwargs or len(args) > _BEFORE_CALLBACK:
            args, kwargs = library.reports.guard_arguments(args), library.reports.guard_options(kwargs)
        try:
            library.raw.produce(topic, *args, **kwargs)
        except KafkaException as exception:
            self._calls.raise_named(TransactionalRequest.PRODUCE, exception, f" (topic {topic!r})")

    @property
    def raw_produce(self) -> Callable[..., None]:
        """The client library's own ``produce``, for the hot loop; what it raises is named by ``enqueue``."""
        self._calls.require_usable()
        unnamed: Callable[..., None] = self._library.raw.produce
        return unnamed

    def enqueue(self, topic: str, record: OutputRecord) -> None:
        """Queue one output, waiting for room in the local queue.

        Raises OutputRefusedError for what is no output, AbortableError when there is no room in time.
        """
        if not self._queued(topic, record):
            self._queue_with_patience(topic, record)

    def take_refused_delivery(self) -> str:
        """Return to where and why an output of the last transaction was refused for good, once; empty if none was."""
        return self._library.last_errors.take_refused_delivery()

    def __len__(self) -> int:
        return 0 if self._library.raw is None else len(self._library.raw)

    def __bool__(self) -> bool:
        return True

    def _queued(self, topic: str, record: OutputRecord) -> bool:
        try:
            self._face.produce(topic, record.value, record.key, **produce_options(topic, record))
        except BufferError:
            return False
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, EosError):
                raise
            raise OutputRefusedError(
                f"the output for topic {topic!r} cannot be written: {type(error).__name__}: {error}. Correct it."
            ) from error
        return True

    def _queue_with_patience(self, topic: str, record: OutputRecord) -> None:
        limit_s = self._calls.limits.commit_timeout_s
        deadline = self._clock() + limit_s
        while not self._queued(topic, record):
            if self._clock() > deadline:
                raise self._calls.remember(
                    must_abort(
                        f"the local queue stayed full for {limit_s:g} s{self._library.last_errors.clause()}. Abort, "
                        "rewind and go on."
                    )
                )
            self._face.poll(_QUEUE_WAIT_S)

    @owned()
    def produce_batch(self, topic: str, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> int:
        """Queue many records at once; confluent_kafka drops their headers and timestamps.

        Returns how many were queued; a message that was not has a KafkaError as its ``_error``. Raises TypeError for
        what is no list of dicts.
        """
        library = self._library
        guarded, options = library.reports.guard_messages(messages), library.reports.guard_options(kwargs)
        arguments = library.reports.guard_arguments(args)
        queued = int(
            self._calls.direct(
                TransactionalRequest.PRODUCE, lambda: library.raw.produce_batch(topic, guarded, *arguments, **options)
            )
        )
        for message, sent in zip(messages, guarded, strict=True):
            if sent is not message and "_error" in sent:
                message["_error"] = sent["_error"]
        return queued

    def flush_outputs(self, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> None:
        """Wait until every record is acknowledged; raises AbortableError when some are not within ``timeout_s``.

        ``meanwhile`` is called while there is nothing to do but wait.
        """
        left = self._flush(timeout_s, _WORKING_SLICE_S if meanwhile else _SLICE_S, meanwhile)
        if left:
            raise self._calls.remember(
                must_abort(
                    f"{left} outputs of transactional.id {self._library.transactional_id!r} were not acknowledged "
                    f"within {timeout_s:g} s{self._library.last_errors.clause()}. Abort, rewind and go on."
                )
            )

    @owned(alone=True, but_for_callbacks=True)
    def flush(self, timeout: float = -1) -> int:
        """Wait for outstanding records; returns how many are left."""
        left = self._flush(timeout, _SLICE_S, until_raised=True)
        self._library.deferred.raise_kept()
        return left

    def flush_for_good(self) -> None:
        """Wait for outstanding records without limit, whatever callbacks raise."""
        self._flush(-1, _SLICE_S)

    @owned()
    def _flush(
        self,
        timeout: float,
        longest_s: float,
        meanwhile: Callable[[], None] | None = None,
        *,
        until_raised: bool = False,
    ) -> int:
        # In slices: Python runs signal handlers between calls into the client library, not during one.
        calls, library = self._calls, self._library
        deadline = math.inf if timeout < 0 else self._clock() + timeout
        while True:
            slice_s = min(longest_s, max(0.0, deadline - self._clock()))
            left = int(calls.direct(TransactionalRequest.FLUSH, lambda: library.raw.flush(slice_s)))  # noqa: B023
            self._refuse_implied()
            if not left or self._clock() >= deadline or (until_raised and library.guard.error is not None):
                return left
            if meanwhile is not None:
                meanwhile()

    def _refuse_implied(self) -> None:
        self._calls.serve(0)  # the client library's log
        library = self._library
        if library.log.implied and self._calls.began_at is not None:
            raise self._calls.remember(
                must_abort(
                    f"outputs of transactional.id {library.transactional_id!r} are taken for written although the "
                    f"broker may have refused them (confluent-kafka-go #921): {library.log.implied}. Abort, rewind "
                    "and go on."
                )
            )

    @owned(alone=True, but_for_callbacks=True)
    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports; returns how many events were served."""
        served = self._calls.serve(timeout)
        self._library.deferred.raise_kept()
        return served
