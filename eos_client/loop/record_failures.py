"""What happens to a record that the transform, or the producer, does not take.

``stop`` ends the loop, ``skip`` passes the record over, ``dead_letter`` writes it, unchanged, with its origin and the
error in headers, inside the same transaction as everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenacity

from eos_client.config import EosConfig
from eos_client.errors import TransformError
from eos_client.observe import Counters, EventHook, RecordDeadLettered, RecordSkipped
from eos_client.ports import Output, OutputRecord, Record, Transform

Write = Callable[[str, OutputRecord], None]


class FailedRecords:
    """Applies ``on_error``. Remembers records that failed after some of their outputs were already written."""

    def __init__(self, config: EosConfig, hook: EventHook, counters: Counters) -> None:
        self._action = config.on_error
        self._dead_letter_topic = config.dead_letter_topic
        self._hook = hook
        self._counters = counters
        self._known: dict[tuple[str, int, int], BaseException] = {}

    def settle(self, record: Record, error: BaseException, write: Write) -> None:
        """Deal with ``record``; raises TransformError when the loop is to stop."""
        if self._action == "stop":
            raise TransformError(record.topic(), record.partition(), record.offset(), error) from error
        self._counters.records_failed += 1
        where: dict[str, Any] = {"topic": record.topic(), "partition": record.partition(), "offset": record.offset()}
        said = f"{type(error).__name__}: {error}"
        if self._dead_letter_topic is None:
            self._hook(RecordSkipped(error=said, **where))
            return
        write(self._dead_letter_topic, _dead_letter(record, said))
        self._hook(RecordDeadLettered(error=said, dead_letter_topic=self._dead_letter_topic, **where))

    def remember(self, record: Record, error: BaseException) -> None:
        """Settle ``record`` with ``error`` when it comes again after the abort."""
        self._known[record.topic(), record.partition(), record.offset()] = error

    def recall(self, record: Record) -> BaseException | None:
        """Return the error that ``record`` is known for."""
        if not self._known:
            return None
        return self._known.get((record.topic(), record.partition(), record.offset()))


def _dead_letter(record: Record, error: str) -> OutputRecord:
    origin = {
        "eos.error": error,
        "eos.topic": record.topic(),
        "eos.partition": str(record.partition()),
        "eos.offset": str(record.offset()),
    }
    headers = [*(record.headers() or []), *((name, text.encode()) for name, text in origin.items())]
    return OutputRecord(value=record.value(), key=record.key(), headers=headers)


def with_retries(transform: Transform, config: EosConfig) -> Callable[[Any], list[Output]]:
    """Return ``transform`` with its outputs collected, tried up to ``transform_attempts_max`` times.

    Collected first, so that a transform that fails half-way has written nothing.
    """

    def once(record: Any) -> list[Output]:
        outputs = transform(record)
        return [] if outputs is None else list(outputs)

    if config.transform_attempts_max == 1:
        return once
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(config.transform_attempts_max),
        wait=tenacity.wait_fixed(config.transform_backoff_s),
        retry=tenacity.retry_if_exception_type(Exception),
        reraise=True,
    )
    return lambda record: retrying(once, record)
