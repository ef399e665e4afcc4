"""A record that cannot be processed, as it is written to a dead letter topic."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from eos_client.confluent.serialisation import Serialized, raw_record
from eos_client.core.error_report import ErrorReport
from eos_client.core.model import InputPartition
from eos_client.ports import Headers, OutputRecord, Record

_ERROR_CHARACTERS_SHORT = 100

DEAD_LETTERS = 4
"""Number of dead letters that are tried for one record."""

UNKNOWN_HANDLING = "in a transaction whose outcome is not known, and which may be committed: "
"""Begins the report of a record that failed, where nobody will know whether its handling was committed."""

RecordKey = tuple[str, int, int]
"""Topic, partition and offset."""


class LetterHeader:
    """The names of the headers of a dead letter, which follow the record's own."""

    ERROR = "eos.error"
    PLACE = "eos.error.place"  # these two only where the error has them, and always behind the error
    TRACEBACK = "eos.error.traceback"
    TOPIC = "eos.topic"
    PARTITION = "eos.partition"
    OFFSET = "eos.offset"
    TIMESTAMP = "eos.timestamp"  # of the record, in milliseconds since the epoch
    ATTEMPTS = "eos.attempts"
    OMITTED = "eos.omitted"
    VALUE_BYTES = "eos.value.bytes"


def key_of(record: Record) -> RecordKey:
    """Return where ``record`` stands."""
    return record.topic(), record.partition(), record.offset()


def forget_departed(memory: dict[RecordKey, Any], assigned: Collection[InputPartition]) -> None:
    """Remove from ``memory`` the records of partitions that are not in ``assigned``: others consume them now."""
    for record in [record for record in memory if record[:2] not in assigned]:
        del memory[record]


def event_fields(record: RecordKey, error: ErrorReport) -> dict[str, Any]:
    """Return the fields that the events of a failed ``record`` share."""
    topic, partition, offset = record
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "error": error.text,
        "place": error.place,
        "traceback": error.traceback,
    }


def letters_for(topic: str, record: Record, error: ErrorReport, attempts: int) -> list[OutputRecord]:
    """Return four letters: the whole record; with a short error; without its value; with its origin only.

    Write the first one that the producer accepts. Place and traceback never cost a record its value or its letter: the
    letter with a short error and the last one have neither. An omitted value is empty, not null: null would delete an
    earlier letter in a compacted topic.
    """
    record = raw_record(record)
    _kind, timestamp_ms = record.timestamp()
    origin = {
        LetterHeader.TOPIC: record.topic(),
        LetterHeader.PARTITION: str(record.partition()),
        LetterHeader.OFFSET: str(record.offset()),
        LetterHeader.TIMESTAMP: str(timestamp_ms),
        LetterHeader.ATTEMPTS: str(attempts),
    }
    place = {} if error.place is None else {LetterHeader.PLACE: error.place}
    trace = {} if error.traceback is None else {LetterHeader.TRACEBACK: error.traceback}
    whole = {LetterHeader.ERROR: error.text, **place, **trace, **origin}
    in_short = {LetterHeader.ERROR: error.text[:_ERROR_CHARACTERS_SHORT]}
    short = {**in_short, **origin}
    size = str(len(record.value() or b""))
    no_value = {**in_short, **place, **origin, LetterHeader.OMITTED: "value", LetterHeader.VALUE_BYTES: size}
    origin_only = {**short, LetterHeader.OMITTED: "value, key, headers", LetterHeader.VALUE_BYTES: size}
    own_headers, own_key = record.headers() or [], record.key()

    def letter(value: bytes | None, key: bytes | None, others: Headers, eos_headers: dict[str, str]) -> OutputRecord:
        headers = [*others, *((name, text.encode(errors="backslashreplace")) for name, text in eos_headers.items())]
        return OutputRecord(topic, value=_as_it_is(value), key=_as_it_is(key), headers=headers)

    return [
        letter(record.value(), own_key, own_headers, whole),
        letter(record.value(), own_key, own_headers, short),
        letter(b"", own_key, own_headers, no_value),
        letter(b"", None, [], origin_only),
    ]


def _as_it_is(content: bytes | None) -> bytes | None:
    return None if content is None else Serialized(content)
