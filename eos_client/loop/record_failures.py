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
from eos_client.ports import Clock, Output, OutputRecord, Record, Transform

_ERROR_CHARACTERS_MAX = 1000

Collected = Callable[[Any], list[Output]]


class FailedRecords:
    """Applies ``on_error``. Remembers records whose outputs were refused when others were already written."""

    def __init__(self, config: EosConfig, hook: EventHook, counters: Counters, clock: Clock) -> None:
        self._config = config
        self._action = config.on_error
        self._dead_letter_topic = config.dead_letter_topic
        self._hook = hook
        self._counters = counters
        self._clock = clock
        self._known: dict[tuple[str, int, int], BaseException] = {}

    def settle(self, record: Record, error: BaseException) -> list[Output]:
        """Return what is written instead of the outputs of ``record``; raises TransformError for "stop"."""
        if self._action == "stop":
            raise TransformError(record.topic(), record.partition(), record.offset(), error) from error
        self._counters.records_failed += 1
        where: dict[str, Any] = {"topic": record.topic(), "partition": record.partition(), "offset": record.offset()}
        said = f"{type(error).__name__}: {error}"
        if self._dead_letter_topic is None:
            self._hook(RecordSkipped(error=said, **where))
            return []
        self._hook(RecordDeadLettered(error=said, dead_letter_topic=self._dead_letter_topic, **where))
        return [_dead_letter(self._dead_letter_topic, record, said)]

    def remember(self, record: Record, error: BaseException) -> None:
        """Let ``record`` fail with ``error`` when it comes again after the abort; raises TransformError for "stop"."""
        if self._action == "stop":
            self.settle(record, error)
        self._known[record.topic(), record.partition(), record.offset()] = error

    def guarding(self, transform: Transform) -> Transform:
        """Return ``transform`` as the loop is to call it: with retries, and raising at once for a record known to fail.

        Outputs are collected first, so that a transform that fails half-way has written nothing; where a failure
        aborts the transaction anyway, that is not needed.
        """
        if self._action == "stop" and self._config.transform_attempts_max == 1:
            return transform
        known, collected = self._known, _collecting(transform, self._config, self._clock)

        def guarded(record: Any) -> list[Output]:
            if known and (error := known.get((record.topic(), record.partition(), record.offset()))) is not None:
                raise error
            return collected(record)

        return guarded


def _dead_letter(topic: str, record: Record, error: str) -> OutputRecord:
    origin = {
        "eos.error": error[:_ERROR_CHARACTERS_MAX],
        "eos.topic": record.topic(),
        "eos.partition": str(record.partition()),
        "eos.offset": str(record.offset()),
    }
    headers = [*(record.headers() or []), *((name, text.encode()) for name, text in origin.items())]
    return OutputRecord(topic, value=record.value(), key=record.key(), headers=headers)


def _collecting(transform: Transform, config: EosConfig, clock: Clock) -> Collected:
    """Return ``transform`` with its outputs collected, tried up to ``transform_attempts_max`` times."""

    def once(record: Any) -> list[Output]:
        return list(transform(record) or ())

    if config.transform_attempts_max == 1:
        return once
    retrying = tenacity.Retrying(
        sleep=clock.sleep,
        stop=tenacity.stop_after_attempt(config.transform_attempts_max),
        wait=tenacity.wait_fixed(config.transform_backoff_s),
        retry=tenacity.retry_if_exception_type(Exception),
        reraise=True,
    )
    return lambda record: retrying(once, record)
