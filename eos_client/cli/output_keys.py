"""The keys of outputs that a transform gives as plain bytes: said once that they are lost, or kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

import structlog

from eos_client.ports import OutputRecord

_WATCHED_MAX_RECORDS = 10_000
_LOG: Any = structlog.get_logger("eos_client")


def keeping_keys(transform: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return ``transform`` with the key of its record on each output that is plain bytes."""

    def keep(record: Any) -> Any:
        made, key = transform(record), record.key()
        if key is None:
            return made
        if isinstance(made, bytes):
            return OutputRecord(value=made, key=key)
        if isinstance(made, (list, tuple)):
            return list(_with_key(iter(made), key))
        return _with_key(made, key) if isinstance(made, GeneratorType) else made

    return keep


def _with_key(outputs: Iterator[Any], key: bytes) -> Iterator[Any]:
    for each in outputs:
        yield OutputRecord(value=each, key=key) if isinstance(each, bytes) else each


class LostKeys:
    """A transform that warns, once, where a record with a key becomes plain bytes, which have none.

    After the first 10,000 records or batches it looks no more.

    :param takes_batches: ``transform`` gets a list of records.
    """

    def __init__(self, transform: Callable[[Any], Any], *, takes_batches: bool) -> None:
        self._transform = transform
        self._takes_batches = takes_batches
        self._left_records = _WATCHED_MAX_RECORDS

    def __call__(self, given: Any) -> Any:
        """Call the transform, and look at what it makes."""
        made = self._transform(given)
        if self._left_records <= 0:
            return made
        self._left_records -= 1
        records = given if self._takes_batches else [given]
        keyed = next((record for record in records if record.key() is not None), None)
        if keyed is None:
            return made
        if isinstance(made, GeneratorType):
            return self._watched(made, keyed)
        for each in made if isinstance(made, (list, tuple)) else (made,):
            self._look_at(each, keyed)
        return made

    def _watched(self, outputs: Iterator[Any], record: Any) -> Iterator[Any]:
        for each in outputs:
            self._look_at(each, record)
            yield each

    def _look_at(self, output: Any, record: Any) -> None:
        if self._left_records > 0 and isinstance(output, bytes):
            self._left_records = 0
            keep = "" if self._takes_batches else ", or give --keep-key"
            _LOG.warning(
                "key_not_kept",
                topic=record.topic(),
                partition=record.partition(),
                offset=record.offset(),
                advice=f"plain bytes have no key: yield OutputRecord(key=record.key(), value=...){keep}",
            )
