"""Applies ``on_error`` to a record that the transform or the producer refused.

``stop`` ends the loop, ``skip`` passes the record over, ``dead_letter`` writes it, unchanged where it fits, with its
origin and the error in headers, inside the same transaction as everything else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any

import tenacity

from eos_client.config import EosConfig
from eos_client.core.model import InputPartition
from eos_client.errors import TransformError
from eos_client.observe import Counters, Event, EventHook, RecordDeadLettered, RecordSkipped
from eos_client.ports import Clock, Headers, Output, OutputRecord, Record, Transform

_ERROR_CHARACTERS_MAX = 1000
_ERROR_CHARACTERS_SHORT = 100

Collected = Callable[[Any], list[Output]]
Place = tuple[str, int, int]


class KnownFailureError(Exception):
    """A record whose outputs were refused before has come again; the text is what was said of it then."""


class FailedRecords:
    """Applies ``on_error``. Remembers records whose outputs were refused, until what became of them is committed.

    Only then what was done with a record is told and counted: a transaction that is aborted has done nothing with it.
    Of a failure only its text is remembered: an exception would keep the frames, and the records, that it came through.
    """

    def __init__(self, config: EosConfig, hook: EventHook, counters: Counters, clock: Clock) -> None:
        self._config = config
        self._action = config.on_error
        self._dead_letter_topic = config.dead_letter_topic
        self._hook = hook
        self._counters = counters
        self._clock = clock
        self._known: dict[Place, str] = {}
        self._letters_refused: dict[Place, int] = {}
        self._settled: dict[Place, Event] = {}

    def __len__(self) -> int:
        """Return how many records it remembers anything of."""
        return len({*self._known, *self._letters_refused, *self._settled})

    def settle(self, record: Record, error: BaseException) -> list[OutputRecord]:
        """Return what may be written instead of the outputs of ``record``: dead letters, each smaller than the last.

        The first that can be written is enough; none is needed for "skip". Raises TransformError for "stop".
        """
        if self._action == "stop":
            raise _transform_error(record, error) from error
        topic, partition, offset = place = _place(record)
        where: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset}
        said = str(error) if isinstance(error, KnownFailureError) else _said(error)
        if self._dead_letter_topic is None:
            self._settled[place] = RecordSkipped(error=said, **where)
            return []
        self._settled[place] = RecordDeadLettered(error=said, dead_letter_topic=self._dead_letter_topic, **where)
        refused = self._letters_refused.get(place, 0)
        return _dead_letters(self._dead_letter_topic, record, said)[refused:]

    def remember(self, record: Record, error: BaseException) -> None:
        """Let ``record`` fail with ``error`` when it comes again after the abort.

        If ``record`` was settled already, it is its dead letter that was refused: the next smaller one is tried then.
        Raises TransformError for "stop", and when not even the smallest dead letter can be written.
        """
        if self._action == "stop":
            raise _transform_error(record, error) from error
        place = _place(record)
        if place not in self._settled:
            self._known[place] = _said(error)
            return
        self._letters_refused[place] = self._letters_refused.get(place, 0) + 1
        if self._dead_letter_topic is None or self._letters_refused[place] >= DEAD_LETTERS:
            raise _transform_error(record, error) from error

    def committed(self) -> None:
        """Tell what was done with the records that were settled, and forget them: it is committed."""
        settled, self._settled = self._settled, {}
        for place, done in settled.items():
            self._known.pop(place, None)
            self._letters_refused.pop(place, None)
            self._counters.records_failed += 1
            self._hook(done)

    def aborted(self, assigned: Collection[InputPartition]) -> None:
        """Expect the records that were settled once more, but for those of partitions that are not ours any more."""
        self._settled.clear()
        for memory in (self._known, self._letters_refused):
            for place in [place for place in memory if place[:2] not in assigned]:
                del memory[place]

    def guarding(self, transform: Transform) -> Transform:
        """Return ``transform`` as the loop is to call it: with retries, and raising at once for a record known to fail.

        Outputs are collected first, so that a transform that fails half-way has written nothing; where a failure
        aborts the transaction anyway, that is not needed.
        """
        if self._action == "stop" and self._config.transform_attempts_max == 1:
            return transform
        known, collected = self._known, _collecting(transform, self._config, self._clock)

        def guarded(record: Any) -> list[Output]:
            if known and (said := known.get(_place(record))) is not None:
                raise KnownFailureError(said)
            return collected(record)

        return guarded


def _place(record: Record) -> Place:
    return record.topic(), record.partition(), record.offset()


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS_MAX]


def _transform_error(record: Record, error: BaseException) -> TransformError:
    return TransformError(*_place(record), error)


DEAD_LETTERS = 4
"""How many dead letters there are of one record."""


def _dead_letters(topic: str, record: Record, error: str) -> list[OutputRecord]:
    """Return the record with its origin and the error: whole; the error shortened; without its value; origin alone.

    The value that is left out is empty and not null, which would delete an earlier letter of a compacted topic.
    """
    place = dict(zip(("eos.topic", "eos.partition", "eos.offset"), map(str, _place(record)), strict=True))
    whole = {"eos.error": error[:_ERROR_CHARACTERS_MAX], **place}
    short = {"eos.error": error[:_ERROR_CHARACTERS_SHORT], **place}
    size = str(len(record.value() or b""))
    no_value = {**short, "eos.omitted": "value", "eos.value.bytes": size}
    alone = {**short, "eos.omitted": "value, key, headers", "eos.value.bytes": size}
    own, key = record.headers() or [], record.key()

    def letter(value: bytes | None, key: bytes | None, own: Headers, told: dict[str, str]) -> OutputRecord:
        headers = [*own, *((name, text.encode(errors="backslashreplace")) for name, text in told.items())]
        return OutputRecord(topic, value=value, key=key, headers=headers)

    return [
        letter(record.value(), key, own, whole),
        letter(record.value(), key, own, short),
        letter(b"", key, own, no_value),
        letter(b"", None, [], alone),
    ]


def no_outputs(made: Any) -> TypeError | None:
    """Return the error for what a transform has returned where that is no outputs at all, None where it is some."""
    if hasattr(made, "__iter__") or not made:  # in this order: an array may not say whether it is empty
        return None
    if inspect.iscoroutine(made):
        made.close()  # or Python warns that nobody awaits it
    is_async = hasattr(made, "__await__") or hasattr(made, "__aiter__")
    way_out = "make it a plain function or generator, for nothing awaits it" if is_async else "return a list, or yield"
    return TypeError(f"the transform returned {made!r}; it must return an iterable of outputs: {way_out}")


def _collecting(transform: Transform, config: EosConfig, clock: Clock) -> Collected:
    """Return ``transform`` with its outputs collected, tried up to ``transform_attempts_max`` times."""

    def once(record: Any) -> list[Output]:
        made = transform(record)
        if (wrong := no_outputs(made)) is not None:
            raise wrong
        return list(made or ())

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
