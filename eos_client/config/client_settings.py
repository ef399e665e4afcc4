"""Settings of librdkafka's clients: refuses those that would break exactly-once, gives the others safe, fast defaults.

Dotted librdkafka names pass through untouched; nothing that the user set is overridden.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from eos_client.config.secret_settings import MaskedSettings, Settings, check_addresses, check_token_settings
from eos_client.core.commit_gate import GateSettings
from eos_client.core.model import ProducerLimits
from eos_client.errors import ConfigurationError

# librdkafka's pairs of names for one setting; its errors have the second one.
_ALIASES = (
    ("acks", "request.required.acks"),
    ("compression.type", "compression.codec"),
    ("delivery.timeout.ms", "message.timeout.ms"),
    ("linger.ms", "queue.buffering.max.ms"),
    ("max.in.flight", "max.in.flight.requests.per.connection"),
    ("max.partition.fetch.bytes", "fetch.message.max.bytes"),
    ("retries", "message.send.max.retries"),
)


def names_of(key: str) -> tuple[str, ...]:
    """Return all of librdkafka's names of the setting ``key``."""
    return next((names for names in _ALIASES if key in names), (key,))


CONSUMER_ONLY = frozenset(
    [
        "auto.commit.enable",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "check.crcs",
        "consume.callback.max.messages",
        "coordinator.query.interval.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "on_commit",
        "partition.assignment.strategy",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "session.timeout.ms",
    ]
)
PRODUCER_ONLY = frozenset(
    [
        "acks",
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "compression.type",
        "delivery.report.only.error",
        "delivery.timeout.ms",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "linger.ms",
        "message.send.max.retries",
        "message.timeout.ms",
        "on_delivery",
        "partitioner",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "request.required.acks",
        "request.timeout.ms",
        "retries",
        "sticky.partitioning.linger.ms",
        "transaction.timeout.ms",
        "transactional.id",
    ]
)


class Default(NamedTuple):
    """The value of a setting that the application left out, and why it is not librdkafka's."""

    value: Any
    reason: str


SAFE_CONSUMER: Mapping[str, Default] = {
    "enable.auto.commit": Default(False, "Offsets are committed with the outputs, or by the application."),
    "isolation.level": Default("read_committed", "As in librdkafka: aborted input is not processed."),
    "auto.offset.reset": Default("earliest", "A new group misses no record that is in the log."),
    "fetch.queue.backoff.ms": Default(
        10, "librdkafka's 1000 puts a fast consumer to sleep whenever its local queue is full for a moment."
    ),
}
SAFE_PRODUCER: Mapping[str, Default] = {
    "enable.idempotence": Default(
        True, "A repeated write is not doubled; without a transaction, it may be at an election."
    ),
    "acks": Default("all", "An acknowledged write is not lost with its leader."),
}
FAST_TRANSACTIONS: Mapping[str, Default] = {
    "linger.ms": Default(
        20, "Nothing is visible before the commit, and its flush does not linger: larger batches cost nobody time."
    ),
    "retry.backoff.ms": Default(
        10, "Back-to-back transactions meet CONCURRENT_TRANSACTIONS and wait this long; librdkafka's default is 100."
    ),
    "reconnect.backoff.ms": Default(10, "A lost connection is tried again at once; librdkafka's default is 100."),
    "topic.metadata.propagation.max.ms": Default(
        5000, "An output to a missing topic fails after this time; librdkafka's 30000 outlives the transaction."
    ),
    "metadata.recovery.strategy": Default(
        "none",
        "With librdkafka's `rebootstrap`, an outage of all brokers can make it forget the transaction's coordinator, "
        "and it does not look for another while the transaction is open: calls then wait for ever.",
    ),
    "reconnect.backoff.max.ms": Default(
        1000, "A broker that is back is noticed after this time; librdkafka's 10000 outlives the budget of a commit."
    ),
}

# The spellings of a boolean that librdkafka takes, in lower case.
_YES = frozenset({"true", "t", "1"})
_NO = frozenset({"false", "f", "0"})
_OUTSIDE = "offsets would be committed outside the transaction, whatever became of the outputs"
_LOST = "an acknowledged write could be lost with its leader"
REFUSED: tuple[tuple[str, frozenset[str], str, str], ...] = (
    ("enable.auto.commit", _YES, _OUTSIDE, "leave it out"),
    ("auto.commit.enable", _YES, _OUTSIDE, "leave it out"),
    (
        "isolation.level",
        frozenset({"read_uncommitted"}),
        "aborted input would be processed, and a new owner would not wait for pending offsets (KIP-447)",
        "leave it out or set read_committed",
    ),
    ("enable.idempotence", _NO, "a retried write would be doubled", "leave it out"),
    ("acks", frozenset({"0", "1"}), _LOST, "set all"),
    ("request.required.acks", frozenset({"0", "1"}), _LOST, "set all"),
)

# Not max.poll.interval.ms, though a transform may take that long: readers, and the new owner of a dead process's
# partitions, wait for its open transaction this long. After one that took longer, transforms run while none is open.
_TRANSACTION_TIMEOUT_MS = 10_000
# librdkafka waits for an answer as long as transaction.timeout.ms less 100 ms: with a long one, a single answer that is
# lost would use up all the time of a recovery.
_ANSWER_TIMEOUT_MS = 20_000
LOG_LEVEL_CRITICAL = 2
"""syslog level: connection failures reach the caller as an error, not as log lines between its own output."""
TRANSACTION_TIMEOUT = "transaction.timeout.ms"
POLL_LIMIT = "max.poll.interval.ms"
_POLL_LIMIT_MS = 300_000  # librdkafka's default
_TOPIC_SETTINGS = "default.topic.config"


def merged_settings(client: str, config: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a dict and keywords, which win; raises TypeError when there is neither, as confluent_kafka's clients do."""
    if config is None and not keywords:
        raise TypeError(f"expected configuration dict: {client}() was given neither a dict nor keywords")
    if config is not None and not isinstance(config, Mapping):
        raise TypeError(f"expected configuration dict: {client}() was given a {type(config).__name__}")
    return {**(config or {}), **keywords}


def is_on(settings: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Return whether the boolean setting ``name`` is on, in any of librdkafka's spellings."""
    given = str(settings.get(name, default)).lower()
    return given not in _NO if default else given in _YES


def all_settings(settings: Settings) -> dict[str, Any]:
    """Return ``settings`` with those of ``default.topic.config`` among them, which win, as in confluent_kafka.

    :raises ConfigurationError: ``default.topic.config`` is no mapping.
    """
    every = dict(settings)
    topic = every.pop(_TOPIC_SETTINGS, {})
    if not isinstance(topic, Mapping):
        raise ConfigurationError(
            f"{_TOPIC_SETTINGS} is of type {type(topic).__name__} and no mapping of settings: give a dict, or put its "
            "settings beside the others."
        )
    return {**every, **topic}


def for_consumer(settings: Settings) -> dict[str, Any]:
    """Return ``settings`` without those that only producers have."""
    return {key: value for key, value in settings.items() if key not in PRODUCER_ONLY}


def for_producer(settings: Settings) -> dict[str, Any]:
    """Return ``settings`` without those that only consumers have."""
    return {key: value for key, value in settings.items() if key not in CONSUMER_ONLY}


def check_settings(settings: Settings) -> None:
    """Refuse what would break exactly-once processing; raises ConfigurationError naming key, value and way out."""
    settings = all_settings(settings)
    check_token_settings(settings)
    check_addresses(settings)
    for key, values, reason, way_out in REFUSED:
        if key in settings and str(settings[key]).strip().lower() in values:
            raise ConfigurationError(f"{key}={settings[key]!r} breaks exactly-once processing: {reason}. {way_out}.")


def safe_consumer_settings(settings: Settings) -> dict[str, Any]:
    """Complete a consumer's settings; raises ConfigurationError for unsafe ones or a missing ``group.id``."""
    check_settings(settings)
    settings = all_settings(settings)
    group_id = settings.get("group.id")
    if not str(group_id or "").strip():  # librdkafka ends the process over one of spaces alone
        raise ConfigurationError(
            f"group.id={group_id!r} is blank: offsets can only be fenced inside a group (KIP-447). Name the consumer "
            "group."
        )
    return _completed(settings, _values(SAFE_CONSUMER))


def group_protocol(settings: Settings) -> str:
    """Return which protocol a consumer with ``settings`` speaks: ``classic``, or ``consumer`` for KIP-848."""
    return str(settings.get("group.protocol", "classic")).lower()


def poll_limit_ms(settings: Settings) -> int:
    """Return after how long without a poll the group takes the partitions away; raises ConfigurationError."""
    return milliseconds(POLL_LIMIT, settings.get(POLL_LIMIT, _POLL_LIMIT_MS))


def idempotent_producer_settings(settings: Settings) -> dict[str, Any]:
    """Complete the settings of a producer without transactions; raises ConfigurationError for unsafe ones."""
    check_settings(settings)
    return _completed(all_settings(settings), _values(SAFE_PRODUCER))


def safe_producer_settings(settings: Settings, shortest_timeout_s: float = 0.0) -> dict[str, Any]:
    """Complete a transactional producer's settings, generating a ``transactional.id`` when none is given.

    ``shortest_timeout_s``: how long one transaction may stay open; a ``transaction.timeout.ms`` below it is refused.
    """
    settings = idempotent_producer_settings(settings)
    if (given_ms := settings.get(TRANSACTION_TIMEOUT)) is not None:
        parts = "commit interval + retries of a transform + hold limit + commit timeout"
        _refuse_shorter_transaction(given_ms, shortest_timeout_s, parts)
    if settings.get("transactional.id") == "":
        raise ConfigurationError(
            "\"transactional.id\"='' names no producer: there would be no transactions. "
            "Leave it out to have one generated, or set a name."
        )
    # librdkafka refuses a transaction.timeout.ms below the delivery or the socket time-out.
    delivery_ms = _number(settings, "message.timeout.ms") or 0
    socket_ms = (_number(settings, "socket.timeout.ms") or 0) - 100
    generated = {
        "transactional.id": f"eos-{uuid.uuid4()}",
        TRANSACTION_TIMEOUT: math.ceil(max(_TRANSACTION_TIMEOUT_MS, shortest_timeout_s * 1000, delivery_ms, socket_ms)),
    }
    settings = _completed(settings, {**_compatible(_values(FAST_TRANSACTIONS), settings), **generated})
    is_long = (_number(settings, TRANSACTION_TIMEOUT) or 0) > _ANSWER_TIMEOUT_MS
    return _completed(settings, {"socket.timeout.ms": _ANSWER_TIMEOUT_MS} if is_long else {})


def check_transaction_timeout(settings: Settings, gate: GateSettings, limits: ProducerLimits) -> None:
    """Refuse a ``transaction.timeout.ms`` that ends before the gate and the commit may; raises ConfigurationError."""
    parts = (
        f"the gate may hold it for {gate.hold_limit_s:g} s (GateSettings.hold_limit_s), and its commit may take "
        f"{limits.commit_timeout_s:g} s (ProducerLimits.commit_timeout_s)"
    )
    _refuse_shorter_transaction(settings[TRANSACTION_TIMEOUT], held_and_committed_s(gate, limits), parts)


def held_and_committed_s(gate: GateSettings, limits: ProducerLimits) -> float:
    """Return how long, in seconds, a transaction may stay open once its records are processed."""
    return gate.hold_limit_s + limits.commit_timeout_s


def _refuse_shorter_transaction(given_ms: Any, needed_s: float, parts: str) -> None:
    needed_ms = math.ceil(needed_s * 1000)
    if milliseconds(TRANSACTION_TIMEOUT, given_ms) < needed_ms:
        raise ConfigurationError(
            f'"transaction.timeout.ms"={given_ms!r} is shorter than a transaction may stay open ({needed_ms} ms: '
            f"{parts}): the broker would end it meanwhile. Raise it to {needed_ms} or more, or lower those limits."
        )


def check_ids_in_transactions(settings: Settings) -> None:
    """Raise ConfigurationError for a consumer whose offsets librdkafka sends in no transaction (``_BAD_MSG``).

    It takes back only group metadata whose ids are printable ASCII. A classic member's id begins with its
    ``group.instance.id``, or else with its ``client.id``.
    """
    named_by_client = group_protocol(settings) == "classic" and settings.get("group.instance.id") is None
    for key in ("group.id", "group.instance.id", *(["client.id"] if named_by_client else [])):
        value = str(settings.get(key) or "")
        if not (value.isascii() and value.isprintable()):
            part = "the group's member ids begin with it, and " if key == "client.id" else ""
            raise ConfigurationError(
                f"{key}={value!r} has other characters than printable ASCII: {part}librdkafka sends no offsets of such "
                "a member in a transaction. Name it with printable ASCII characters."
            )


def _compatible(defaults: Settings, settings: Settings) -> dict[str, Any]:
    """Return ``defaults``, changed where librdkafka would refuse one beside what the user set."""
    fitted = dict(defaults)
    delivery_ms = _number(settings, "message.timeout.ms")
    if delivery_ms and delivery_ms <= fitted["linger.ms"]:
        del fitted["linger.ms"]  # librdkafka fits its own
    for first, longest in (
        ("reconnect.backoff.ms", "reconnect.backoff.max.ms"),
        ("retry.backoff.ms", "retry.backoff.max.ms"),
    ):
        first_ms, longest_ms = _number(settings, first), _number(settings, longest)
        if longest_ms is not None:
            fitted[first] = min(fitted[first], int(longest_ms))
        if first_ms is not None and longest in fitted:
            fitted[longest] = max(fitted[longest], int(first_ms))
    return fitted


def _number(settings: Settings, name: str) -> float | None:
    """Return the number of a setting; of its aliases, the last one given wins. None if none is a number."""
    number = None
    for key in (key for key in settings if key in names_of(name)):
        with suppress(TypeError, ValueError):
            number = float(settings[key])
    return number if number is not None and math.isfinite(number) else None


def _values(defaults: Mapping[str, Default]) -> dict[str, Any]:
    return {key: default.value for key, default in defaults.items()}


def _completed(settings: Settings, defaults: Settings) -> MaskedSettings:
    """Add ``defaults`` to ``settings`` for what was left out, or set to None, under all of its names."""
    left_out = {k: v for k, v in defaults.items() if all(settings.get(name) is None for name in names_of(k))}
    without = {name for key in left_out for name in names_of(key)}
    return MaskedSettings(left_out | {key: value for key, value in settings.items() if key not in without})


def check_serialiser(name: str, given: Any) -> None:
    """Raise ConfigurationError for a serialiser or deserialiser that cannot be called."""
    if given is not None and not callable(given):
        raise ConfigurationError(
            f"{name}={given!r} cannot be called. Give an object such as StringSerializer(), or a function of a value "
            "and a SerializationContext."
        )


def milliseconds(key: str, value: Any) -> int:
    """Return the value of the setting ``key`` as a number; raises ConfigurationError where it is none."""
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f'"{key}"={value!r} is not a number of milliseconds.') from error
