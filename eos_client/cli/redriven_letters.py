"""The records that dead letters hold, as ``eos-client redrive`` sends them back."""

from __future__ import annotations

from collections.abc import Mapping

from eos_client.clients.dead_letters import LetterHeader
from eos_client.core.output_topics import is_topic_name
from eos_client.ports import OutputRecord, Record

_ORIGIN = (LetterHeader.TOPIC, LetterHeader.PARTITION, LetterHeader.OFFSET)
_ALWAYS = frozenset({LetterHeader.ERROR, *_ORIGIN, LetterHeader.TIMESTAMP, LetterHeader.ATTEMPTS})
_LETTERS = _ALWAYS | {
    LetterHeader.PLACE,
    LetterHeader.TRACEBACK,
    LetterHeader.OMITTED,
    LetterHeader.VALUE_BYTES,
}
_REDRIVES, _FIRST_ORIGIN, _LAST_ERROR = "eos.redrives", "eos.redriven.origin", "eos.redriven.error"
_HISTORY = frozenset({_REDRIVES, _FIRST_ORIGIN, _LAST_ERROR})
_DIGITS_OF_TIME = 18
_SHOWN_CHARACTERS_MAX = 100


def redriven(letter: Record, target: str | None) -> OutputRecord:
    """Return the record that ``letter`` holds, for ``target`` or, if that is None, for the partition it came from.

    It has the record's own headers and timestamp. The headers about the failure are replaced by its history:
    ``eos.redrives``, how often it was sent back; ``eos.redriven.origin``, where it stood when it failed first; and
    ``eos.redriven.error``, the last error, byte by byte. Raises ValueError where it cannot be sent back, saying why.
    """
    own, as_bytes = _split_headers(letter.headers() or [])
    eos_headers = {name: _text(value) for name, value in as_bytes.items()}
    topic, partition = eos_headers.get(LetterHeader.TOPIC), eos_headers.get(LetterHeader.PARTITION)
    if LetterHeader.OMITTED in eos_headers:
        raise ValueError(f"it lacks the record's {eos_headers[LetterHeader.OMITTED]}, which did not fit into it")
    if (target or topic) == letter.topic():
        raise ValueError(f"{letter.topic()} is the topic of the letters itself: send it to another one by --to")
    if target is None:
        _require_target(str(topic), partition)
    own, before = _without_history(own)
    origin = "{}[{}]@{}".format(*(eos_headers.get(name, "?") for name in _ORIGIN))
    history = {
        _REDRIVES: str(_number(_REDRIVES, _text(before.get(_REDRIVES, b"0"))) + 1),
        _FIRST_ORIGIN: before.get(_FIRST_ORIGIN, origin),
        _LAST_ERROR: as_bytes.get(LetterHeader.ERROR, b""),
    }
    return OutputRecord(
        target or topic,
        value=letter.value(),
        key=letter.key(),
        headers=[*own, *history.items()],
        partition=int(partition) if target is None and partition is not None else None,
        timestamp_ms=_timestamp_ms(eos_headers.get(LetterHeader.TIMESTAMP, "-1")),
    )


def _timestamp_ms(text: str) -> int | None:
    """Return the time that a letter names, None for -1: in Kafka, that is a record without a time."""
    if text == "-1":
        return None
    number = _number(LetterHeader.TIMESTAMP, text, _DIGITS_OF_TIME)
    if number == 0:
        raise ValueError(f"{LetterHeader.TIMESTAMP}='0' would become the current time, for which librdkafka takes 0")
    return number


def can_be_sent_to(topic: str) -> bool:
    """Whether a record may have come from ``topic``: no broker has others, and names with ``__`` are Kafka's own."""
    return is_topic_name(topic) and not topic.startswith("__")


def _require_target(topic: str, partition: str | None) -> None:
    if not can_be_sent_to(topic):
        raise ValueError(
            f"{LetterHeader.TOPIC}={_shown(topic)} is no topic for records: send it to another one by --to"
        )
    if partition is None:
        raise ValueError(f"it has no header {LetterHeader.PARTITION}: send it to a topic by --to, which needs none")
    _number(LetterHeader.PARTITION, partition)


def _number(name: str, text: str, digits_max: int = 9) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= digits_max):
        raise ValueError(f"{name}={_shown(text)} is no number of up to {digits_max} digits")
    return int(text)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}...")


_Pairs = list[tuple[str, bytes]]


def _split_headers(headers: _Pairs) -> tuple[_Pairs, dict[str, bytes]]:
    """Split ``headers`` into the record's own and those that the last dead letter appended.

    The record may itself be a dead letter, so only the last such set counts. History headers after it belong to this
    letter and are dropped.
    """
    own: _Pairs = []
    eos_headers: dict[str, bytes] = {}
    for name, value in reversed(headers):
        is_whole = eos_headers.keys() >= _ALWAYS
        if name in _LETTERS and name not in eos_headers and not is_whole:
            eos_headers[name] = value
        elif eos_headers or name not in _HISTORY:
            own.append((name, value))
    return own[::-1], {name: value for name, value in eos_headers.items() if value}


def _without_history(own: _Pairs) -> tuple[_Pairs, dict[str, bytes]]:
    """Split the redrive history from ``own``; history before an earlier letter's headers belongs to that letter."""
    begins = max((at for at, (name, _value) in enumerate(own, 1) if name in _LETTERS), default=0)
    behind = own[begins:]
    history = {name: value for name, value in behind if name in _HISTORY and value}
    return own[:begins] + [pair for pair in behind if pair[0] not in _HISTORY], history


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def origin_of(headers: Mapping[str, bytes | None]) -> str:
    """Return the topic that a dead letter with these headers names; empty if they are those of another record."""
    return _text(headers.get(LetterHeader.TOPIC))


def error_of(letter: Record) -> str:
    """Return the error that ``letter`` names, empty if it names none."""
    return _text(dict(letter.headers() or []).get(LetterHeader.ERROR))
