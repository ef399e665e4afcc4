"""Turns an output into arguments of ``produce``, refuses what confluent_kafka does not check, and guards callbacks.

A header name with a lone surrogate ends the process, one with a NUL is cut at it, and one that is not a str is written
as its ``repr``; a str value is cut at a NUL. Of an array of objects their addresses are written. A topic that no broker
accepts is found out only when the transaction cannot be committed. A timestamp of 0 is replaced by the current time,
and ``True`` is taken for 1. A delivery callback is not called once its handle was abandoned: its records belong to a
transaction that is over, and the report would come from a thread of its own.
"""

from __future__ import annotations

import operator
import traceback
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import NoneType
from typing import Any

from confluent_kafka import KafkaException

from eos_client.confluent.callback_guard import CallbackGuard
from eos_client.confluent.signal_handlers import is_of_a_handler
from eos_client.core.output_topics import TOPIC_NAME_RULE, is_topic_name
from eos_client.errors import repr_of, text_of
from eos_client.ports import OutputRecord

ANY_PARTITION = -1
"""The producer's partitioner chooses, as with None."""
_PARTITION_MAX = 2**31 - 1
_TIMESTAMP_MAX = 2**63 - 1
_HEADERS = 6  # of the unnamed arguments of produce(), after the topic; they are the last
_SHOWN_MAX = 200
_PAIR = 2
_PACKAGE = "eos_client."
_JUDGE_THEMSELVES = frozenset(
    {
        __name__,
        "eos_client.confluent.serialisation",
        "eos_client.confluent.producer.confluent_producer",
    }
)
_NAMES_MAX = 1024
_HEADER_NAMES: set[str] = set()  # that were checked: at most _NAMES_MAX of them
_CONTENT = (bytes, str, NoneType)
UNCHANGEABLE = frozenset(_CONTENT)
"""Types of keys and values that nobody can change after they were given."""


def produce_options(topic: str, record: OutputRecord, *, checks_headers: bool = True) -> dict[str, Any]:
    """Return what ``produce`` gets beside topic, value and key; raises TypeError or ValueError.

    Without ``checks_headers`` they are passed on as they are, for a ``produce`` that checks them itself.
    """
    _check_topic(topic)
    options: dict[str, Any] = {}
    if record.partition is not None:
        options["partition"] = _partition(record.partition)
    if record.headers is not None:
        options["headers"] = checked_headers(record.headers) if checks_headers else record.headers
    if record.timestamp_ms is not None:
        options["timestamp"] = _timestamp(record.timestamp_ms)
    return options


def as_written(content: Any) -> Any:
    """Return the bytes of a key or value that is a buffer, such as a bytearray or an array, and any other as it is.

    A buffer may be filled again for the next output. Raises TypeError for an array of objects, which has no bytes, and
    for one whose bytes only the client library can read (numpy's dates).
    """
    if isinstance(content, (bytes, str)):
        return content
    try:
        buffer = memoryview(content)
    except TypeError:
        return content  # `produce` refuses it by name
    except ValueError as error:
        raise TypeError(f"{repr_of(content)[:_SHOWN_MAX]} cannot be copied ({text_of(error)}): give bytes") from error
    if "O" in buffer.format:
        raise TypeError(f"{repr_of(content)[:_SHOWN_MAX]} is an array of objects: serialise it to bytes")
    return buffer.tobytes()


def _check_topic(topic: str) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"the name of a topic must be str, not {type(topic).__name__}")
    _check_topic_name(topic)


@lru_cache(maxsize=1024)
def _check_topic_name(topic: str) -> None:
    if not is_topic_name(topic):
        raise ValueError(f"topic={topic!r}: {TOPIC_NAME_RULE}")


def _partition(partition: Any) -> Any:
    number = _whole("partition", partition)
    if not ANY_PARTITION <= number <= _PARTITION_MAX:
        raise ValueError(
            f"partition={repr_of(partition)} is no number of a partition; None leaves it to the partitioner"
        )
    return partition


def _whole(name: str, given: Any) -> int:
    why: TypeError | None = None
    if not isinstance(given, bool):
        try:
            return operator.index(given)
        except TypeError as error:
            why = error
    raise TypeError(f"{name} must be a whole number, not {repr_of(given)[:_SHOWN_MAX]}") from why


def _timestamp(timestamp_ms: Any) -> Any:
    if _whole("timestamp_ms", timestamp_ms) <= 0:
        raise ValueError(
            f"timestamp_ms={timestamp_ms!r} is not after the epoch: librdkafka takes 0 for the current time, and Kafka "
            "knows no time before the epoch; None stamps the current time"
        )
    if timestamp_ms > _TIMESTAMP_MAX:
        raise ValueError(f"timestamp_ms={timestamp_ms!r} is beyond the 63 bits of a time in Kafka, in milliseconds")
    return timestamp_ms


def checked_headers(headers: Any) -> list[Any]:
    """Return any mapping, or any collection of pairs, as the list that ``produce`` takes and writes as it is."""
    pairs: list[Any] = headers if type(headers) is list else _listed(headers)
    for pair in pairs:
        if type(pair) is not tuple or len(pair) != _PAIR:
            break
        name, value = pair
        if type(name) is not str or name not in _HEADER_NAMES or type(value) is not bytes:
            break
    else:  # the usual ones: of names that were checked before
        return pairs
    return [_checked_pair(each) for each in pairs]


def _listed(headers: Any) -> list[Any]:
    # An iterator gives them only once, and an output that finds the local queue full is written again.
    if isinstance(headers, (str, bytes, Iterator)) or not isinstance(headers, Iterable):
        raise TypeError(
            f"headers must be a mapping, or a sequence of (name, value) pairs, not {type(headers).__name__}"
        )
    return list(headers.items() if isinstance(headers, Mapping) else headers)


def _checked_pair(pair: Any) -> Any:
    if not isinstance(pair, tuple) or len(pair) != _PAIR:
        raise TypeError(f"headers must be tuples of a name and a value, not {repr_of(pair)[:_SHOWN_MAX]}")
    name, value = pair
    check_header_name(name)
    written = value.encode() if isinstance(value, str) and "\0" in value else value
    return str.__str__(name), written  # of an enum that is a str, confluent_kafka writes the member's name


def check_header_name(name: Any) -> None:
    """Raise TypeError or ValueError for a header's name that would be written as another one."""
    if not isinstance(name, str):
        raise TypeError(f"headers must be (name, value) pairs whose name is str, not {type(name).__name__}")
    if "\0" in name:
        raise ValueError(f"the header name {name!r} contains a NUL, at which it would end")
    name.encode()
    if len(_HEADER_NAMES) < _NAMES_MAX:
        _HEADER_NAMES.add(name)


def named_arguments(  # confluent_kafka's own
    value: Any = None,
    key: Any = None,
    partition: Any = ANY_PARTITION,
    callback: Any = None,
    on_delivery: Any = None,
    timestamp: Any = 0,
    headers: Any = None,
) -> dict[str, Any]:
    """Return the arguments of ``produce`` after the topic by their names; raises TypeError as a call would."""
    given = {"value": value, "key": key, "partition": partition, "timestamp": timestamp, "headers": headers}
    return given | {"callback": callback, "on_delivery": on_delivery}


def describe_output(topic: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> str:
    """Return topic, partition if one was chosen, and size of what ``produce`` was called with, in words."""
    given = named_arguments(*arguments, **options)
    chosen = "" if given["partition"] in (None, ANY_PARTITION) else f", partition {given['partition']}"
    sizes = (len(each.encode() if isinstance(each, str) else each or b"") for each in (given["value"], given["key"]))
    return f" (topic {topic!r}{chosen}, {sum(sizes)} bytes)"


def unfit_content(record: OutputRecord) -> str:
    """Return which of value and key ``produce`` does not take, as " (key=5)"; empty where it takes both."""
    for name, given in (("value", record.value), ("key", record.key)):
        try:
            memoryview(given.encode() if isinstance(given, str) else b"" if given is None else given)
        except (TypeError, ValueError):  # noqa: PERF203  # two turns
            return f" ({name}={repr_of(given)[:_SHOWN_MAX]})"
    return ""


def raised_by_signal_handler(error: BaseException, *, library_is_bare: bool = False) -> bool:
    """Whether a signal handler has raised ``error``, perhaps after the output was queued.

    A handler that is installed is known by its frame. If it was replaced meanwhile, the innermost function of this
    package in the traceback shows it: if that is in a module that calls neither the application nor the client library
    about an output, what it has called can only be a signal handler. The client library's own classes count as a
    handler's only where it ``library_is_bare``: wrapped by instrumentation, it has frames of its own.
    """
    if is_of_a_handler(error):
        return True
    if isinstance(error, (KafkaException, BufferError)) and not library_is_bare:
        return False
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = [place for place, name in enumerate(names) if name.startswith(_PACKAGE)]
    return bool(ours) and ours[-1] + 1 < len(names) and names[ours[-1]] not in _JUDGE_THEMSELVES


def is_fit(topic: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether confluent_kafka takes these arguments of ``produce``, which were checked.

    If it raises TypeError or ValueError for them all the same, a signal handler has raised that, or confluent_kafka
    (2.16) has replaced what the handler has raised.
    """
    try:
        given = named_arguments(*arguments, **options)
        contents = [given["value"], given["key"], *(value for _, value in given["headers"] or ())]
        for text in (topic, *(each for each in contents if isinstance(each, str))):
            text.encode()
    except (AttributeError, TypeError, ValueError):
        return False
    return (
        all(isinstance(each, _CONTENT) for each in contents)
        and _is_number_up_to(_PARTITION_MAX, given["partition"])
        and _is_number_up_to(_TIMESTAMP_MAX, given["timestamp"])
        and all(given[name] is None or callable(given[name]) for name in ("callback", "on_delivery"))
    )


def is_fit_output(output: Any) -> bool:
    """Whether an output of a transform can be given to ``produce``."""
    if isinstance(output, bytes):
        return True
    try:
        return is_fit(output.topic or "", (output.value, output.key), produce_options(output.topic or "any", output))
    except (AttributeError, TypeError, ValueError, OverflowError):
        return False


def _is_number_up_to(limit: int, number: Any) -> bool:
    return isinstance(number, int) and -limit <= number <= limit


def guard_call(
    guard: CallbackGuard, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Guard the callback among a call's arguments and options, where nothing else can be called, and check the others.

    Raises TypeError or ValueError.
    """
    for name in ("value", "key"):
        if type(options.get(name)) not in UNCHANGEABLE:
            options[name] = as_written(options[name])
    for name in ("callback", "on_delivery"):
        if options.get(name) is not None:
            options[name] = guard.keeping_errors(options[name])
    if options.get("headers") is not None:
        options["headers"] = checked_headers(options["headers"])
    guarded = [guard.keeping_errors(each) if callable(each) else each for each in arguments]
    guarded[_HEADERS:] = [each if each is None else checked_headers(each) for each in guarded[_HEADERS:]]
    return tuple(guarded), options


def _has_partition(message: Any) -> bool:
    partition = message.get("partition") if isinstance(message, dict) else None
    return isinstance(partition, int) and partition != ANY_PARTITION


def guard_messages(guard: CallbackGuard, messages: Any) -> Any:
    """Return ``messages`` of a batch, those with a callback of their own as copies.

    Whatever is no list of dicts is left to the client library, which says what is wrong with it. Raises ValueError for
    a message with a partition of its own, which the library (2.16) takes and ignores.
    """
    if not isinstance(messages, list):
        return messages
    if any(map(_has_partition, messages)):
        raise ValueError(
            "produce_batch() got a message with 'partition', which confluent_kafka ignores, so that it could go to "
            "another one. Give partition= to the call for all messages, or write this one by produce()."
        )
    return [
        {**m, "callback": guard.keeping_errors(m["callback"])}
        if isinstance(m, dict) and m.get("callback") is not None
        else m
        for m in messages
    ]
