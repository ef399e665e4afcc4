"""EosConfig: refuses settings that would break exactly-once and gives the others safe and fast defaults.

Dotted librdkafka names pass through untouched; nothing that the user set is overridden.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, Literal

from eos_client.core.commit_gate import CommitValidation, GatePolicy, GateScope, GateSettings
from eos_client.core.model import ProducerLimits
from eos_client.errors import ConfigurationError

Settings = Mapping[str, Any]

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

SAFE_CONSUMER: Settings = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    # librdkafka's 1000 puts a fast consumer to sleep whenever its local queue is full for a moment.
    "fetch.queue.backoff.ms": 10,
}
SAFE_PRODUCER: Settings = {"enable.idempotence": True, "acks": "all"}
FAST_TRANSACTIONS: Settings = {
    # Nothing is visible before the commit, and its flush does not linger: larger batches cost nobody time.
    "linger.ms": 20,
    # Back-to-back transactions meet CONCURRENT_TRANSACTIONS and wait this long; librdkafka's default is 100.
    "retry.backoff.ms": 10,
    "reconnect.backoff.ms": 10,
    # How long an output to a missing topic waits before it fails; librdkafka's 30000 outlives the transaction.
    "topic.metadata.propagation.max.ms": 5000,
    # With "rebootstrap", librdkafka's default, an outage of all brokers can make it forget the transaction's
    # coordinator, and it does not look for another while the transaction is open: calls then wait for ever.
    "metadata.recovery.strategy": "none",
    # How late a broker that is back may be noticed; with librdkafka's 10000 that outlives the budget of a commit.
    "reconnect.backoff.max.ms": 1000,
}

# The spellings of a boolean that librdkafka takes, in lower case.
_YES = frozenset({"true", "t", "1"})
_NO = frozenset({"false", "f", "0"})
_REFUSED: tuple[tuple[str, frozenset[str], str, str], ...] = (
    (
        "enable.auto.commit",
        _YES,
        "offsets would be committed outside the transaction, whatever became of the outputs",
        "leave it out",
    ),
    (
        "auto.commit.enable",
        _YES,
        "offsets would be committed outside the transaction, whatever became of the outputs",
        "leave it out",
    ),
    (
        "isolation.level",
        frozenset({"read_uncommitted"}),
        "aborted input would be processed, and a new owner would not wait for pending offsets (KIP-447)",
        "leave it out or set read_committed",
    ),
    ("enable.idempotence", _NO, "a retried write would be doubled", "leave it out"),
    ("acks", frozenset({"0", "1"}), "an acknowledged write could be lost with its leader", "set all"),
    ("request.required.acks", frozenset({"0", "1"}), "an acknowledged write could be lost with its leader", "set all"),
)

_COUNTS = frozenset({"max_records", "batch_size"})
# Not max.poll.interval.ms, though a transform may take that long: readers, and the new owner of a dead process's
# partitions, wait for its open transaction this long. A transform is run while none is open where one took longer.
_TRANSACTION_TIMEOUT_MS = 10_000
# librdkafka waits for an answer as long as transaction.timeout.ms less 100 ms: with a long one, a single answer that is
# lost would use up all the time of a recovery.
_ANSWER_TIMEOUT_MS = 20_000
_BROKERS_TIMEOUT_MAX_MS = 900_000  # transaction.max.timeout.ms, by default
_TRANSACTION_LIMIT = "transaction.timeout.ms"
_POLL_LIMIT = "max.poll.interval.ms"
_TOPIC_SETTINGS = "default.topic.config"
# librdkafka's other names of settings that have a default here or that one of the defaults must agree with.
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "acks": ("request.required.acks",),
    "linger.ms": ("queue.buffering.max.ms",),
    "message.timeout.ms": ("delivery.timeout.ms",),
}
_SECRETS = ("password", "passphrase", "secret", "private.key", "ssl.key.pem", "ssl_key", "oauthbearer.config", "jaas")
_MASK = "****"


def all_settings(settings: Settings) -> dict[str, Any]:
    """Return ``settings`` with those of ``default.topic.config`` among them, which win, as in confluent_kafka."""
    every = dict(settings)
    topic = every.get(_TOPIC_SETTINGS)
    if isinstance(topic, Mapping):
        del every[_TOPIC_SETTINGS]
        every.update(topic)
    return every


def masked(settings: Settings) -> dict[str, Any]:
    """Return ``settings`` as they may be shown: secrets are replaced, what is merely private is not."""
    return {key: _MASK if is_secret(key) else value for key, value in settings.items()}


def is_secret(key: str) -> bool:
    """Whether the value of the setting ``key`` must not be shown."""
    return any(part in str(key).lower() for part in _SECRETS)


def check_settings(settings: Settings) -> None:
    """Refuse what would break exactly-once processing; raises ConfigurationError naming key, value and way out."""
    settings = all_settings(settings)
    for key, values, reason, way_out in _REFUSED:
        if key in settings and str(settings[key]).strip().lower() in values:
            raise ConfigurationError(f"{key}={settings[key]!r} breaks exactly-once processing: {reason}. {way_out}.")


def safe_consumer_settings(settings: Settings) -> dict[str, Any]:
    """Complete a consumer's settings; raises ConfigurationError for unsafe ones or a missing ``group.id``."""
    check_settings(settings)
    settings = all_settings(settings)
    if not settings.get("group.id"):
        raise ConfigurationError("group.id must be set: offsets can only be fenced inside a group (KIP-447).")
    return _completed(settings, SAFE_CONSUMER)


def idempotent_producer_settings(settings: Settings) -> dict[str, Any]:
    """Complete the settings of a producer without transactions; raises ConfigurationError for unsafe ones."""
    check_settings(settings)
    return _completed(all_settings(settings), SAFE_PRODUCER)


def safe_producer_settings(settings: Settings, shortest_timeout_s: float = 0.0) -> dict[str, Any]:
    """Complete a transactional producer's settings, generating a ``transactional.id`` when none is given.

    ``shortest_timeout_s``: how long one transaction may stay open; a ``transaction.timeout.ms`` below it is refused.
    """
    settings = idempotent_producer_settings(settings)
    needed_ms = math.ceil(shortest_timeout_s * 1000)
    given_ms = settings.get("transaction.timeout.ms")
    if given_ms is not None and _milliseconds("transaction.timeout.ms", given_ms) < needed_ms:
        raise ConfigurationError(
            f'"transaction.timeout.ms"={given_ms!r} is shorter than a transaction may stay open ({needed_ms} ms: '
            "commit interval + retries of a transform + hold limit + commit timeout): the broker would fence the "
            "producer in mid-transaction. Raise it, or lower the limits."
        )
    if settings.get("transactional.id") == "":
        raise ConfigurationError(
            "\"transactional.id\"='' names no producer: there would be no transactions. "
            "Leave it out to have one generated, or set a name."
        )
    generated = {
        "transactional.id": f"eos-{uuid.uuid4()}",
        "transaction.timeout.ms": max(_TRANSACTION_TIMEOUT_MS, needed_ms, _shortest_transaction_ms(settings)),
    }
    settings = _completed(settings, {**_agreeing(FAST_TRANSACTIONS, settings), **generated})
    is_long = (_number(settings, _TRANSACTION_LIMIT) or 0) > _ANSWER_TIMEOUT_MS
    return _completed(settings, {"socket.timeout.ms": _ANSWER_TIMEOUT_MS} if is_long else {})


def check_transaction_timeout(timeout_s: float, *, hold_limit_s: float, commit_timeout_s: float) -> None:
    """Refuse a ``transaction.timeout.ms`` that ends before the gate and the commit may; raises ConfigurationError."""
    needed_ms = math.ceil((hold_limit_s + commit_timeout_s) * 1000)
    if timeout_s * 1000 < needed_ms:
        raise ConfigurationError(
            f'"transaction.timeout.ms"={timeout_s * 1000:.0f} is shorter than a transaction may stay open with this '
            f"consumer: the gate may hold it for {hold_limit_s:g} s (GateSettings.hold_limit_s), and its commit may "
            f"take {commit_timeout_s:g} s (ProducerLimits.commit_timeout_s). The broker would abort it meanwhile. Set "
            f'"transaction.timeout.ms" to {needed_ms} or more, or lower those limits.'
        )


def check_ids_in_transactions(settings: Settings) -> None:
    """Raise ConfigurationError for a consumer whose offsets librdkafka sends in no transaction (``_BAD_MSG``).

    It takes back only group metadata whose ids are printable ASCII. A classic member's id begins with its
    ``group.instance.id``, or else with its ``client.id``.
    """
    is_classic = str(settings.get("group.protocol", "classic")).lower() == "classic"
    named_by_client = is_classic and settings.get("group.instance.id") is None
    for key in ("group.id", "group.instance.id", *(["client.id"] if named_by_client else [])):
        value = str(settings.get(key) or "")
        if not (value.isascii() and value.isprintable()):
            part = "the group's member ids begin with it, and " if key == "client.id" else ""
            raise ConfigurationError(
                f"{key}={value!r} has other characters than printable ASCII: {part}librdkafka sends no offsets of such "
                "a member in a transaction. Name it with printable ASCII characters."
            )


def _shortest_transaction_ms(settings: Settings) -> int:
    """Return the shortest ``transaction.timeout.ms`` that librdkafka takes beside the delivery and socket time-outs."""
    delivery_ms, socket_ms = _number(settings, "message.timeout.ms"), _number(settings, "socket.timeout.ms")
    return math.ceil(max(delivery_ms or 0, (socket_ms or 0) - 100))


def _agreeing(defaults: Settings, settings: Settings) -> dict[str, Any]:
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
    """Return a setting's number; of its names, the last that was given counts. None where none of them is a number."""
    names, number = {name, *_ALIASES.get(name, ())}, None
    for key in (key for key in settings if key in names):
        with suppress(TypeError, ValueError):
            number = float(settings[key])
    return number if number is not None and math.isfinite(number) else None


def _completed(settings: Settings, defaults: Settings) -> dict[str, Any]:
    """Add ``defaults`` to ``settings`` for what was left out, or set to None, under all of its names."""
    left_out = {k: v for k, v in defaults.items() if all(settings.get(n) is None for n in (k, *_ALIASES.get(k, ())))}
    without = {n for key in left_out for n in (key, *_ALIASES.get(key, ()))}
    return {**left_out, **{key: value for key, value in settings.items() if key not in without}}


def _check_agreement(key: str, option: str | None, settings: Settings) -> None:
    if key in settings and settings[key] != option:
        name = key.replace(".", "_")
        raise ConfigurationError(
            f'"{key}"={settings[key]!r} contradicts {name}={option!r}. Give it once, as the option {name}.'
        )


def _milliseconds(key: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f'"{key}"={value!r} is not a number of milliseconds.') from error


@dataclass(frozen=True)
class EosConfig:
    """Everything an ``ExactlyOnceLoop`` needs.

    ``kafka``: librdkafka settings by their dotted names; those that only a consumer or only a producer knows go there
    alone. ``consumer`` and ``producer`` add settings for one of the two. ``transactional_id=None`` generates one for
    this process; a pinned one must be used by one process at a time, and a restart with it ends an orphaned
    transaction at once.

    A transaction is committed every ``commit_interval_s`` seconds or ``max_records`` records, and held for at most
    ``hold_limit_s`` while the gate is closed. ``scope``, ``policy``: see ``GateScope`` and ``GatePolicy``.
    ``on_error``: what happens to a record whose transform failed ``transform_attempts_max`` times.
    ``liveness_limit_s``: after how many seconds without a poll ``ExactlyOnceLoop.health()`` calls the loop dead; None:
    after ``max.poll.interval.ms``, when the group has given its partitions to others anyway, or after
    ``longest_wait_s`` where that is longer.
    Raises ConfigurationError, naming the key, the value and the way out.
    """

    kafka: Settings
    _: KW_ONLY
    group_id: str
    transactional_id: str | None = None
    consumer: Settings = field(default_factory=dict)
    producer: Settings = field(default_factory=dict)
    commit_interval_s: float = 0.1
    max_records: int = 100_000
    batch_size: int = 500
    poll_timeout_s: float = 0.1
    hold_limit_s: float = 5.0
    commit_timeout_s: float = 4.0
    start_timeout_s: float = 10.0
    recovery_timeout_s: float = 60.0
    shutdown_timeout_s: float = 10.0
    scope: Literal["member", "partition"] = "member"
    policy: Literal["skip", "hold", "block"] = "skip"
    commit_validation: Literal["unknown", "exact", "classic", "assignment_epoch"] = "unknown"
    on_error: Literal["stop", "skip", "dead_letter"] = "stop"
    dead_letter_topic: str | None = None
    transform_attempts_max: int = 1
    transform_backoff_s: float = 0.1
    liveness_limit_s: float | None = None

    def __repr__(self) -> str:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        shown = (f"{name}={masked(v) if isinstance(v, Mapping) else v!r}" for name, v in values.items())
        return f"EosConfig({', '.join(shown)})"

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_numbers()
        if not self.kafka.get("bootstrap.servers"):
            raise ConfigurationError('"bootstrap.servers" is missing. Set it to host:port of one or more brokers.')
        if self.transactional_id == "":
            raise ConfigurationError("transactional_id='' names no producer. Leave it out to have one generated.")
        if not self.group_id:
            raise ConfigurationError("group_id is empty. Name the consumer group.")
        _check_agreement("group.id", self.group_id, {**self.kafka, **self.consumer})
        _check_agreement("transactional.id", self.transactional_id, {**self.kafka, **self.producer})
        self.consumer_config()
        self.producer_config()
        self._check_transform_time()
        self._check_liveness_limit()

    def _check_choices(self) -> None:
        for name, choices in (
            ("scope", [s.value for s in GateScope]),
            ("policy", [p.value for p in GatePolicy]),
            ("commit_validation", [v.value for v in CommitValidation]),
            ("on_error", ["stop", "skip", "dead_letter"]),
        ):
            if getattr(self, name) not in choices:
                raise ConfigurationError(f"{name}={getattr(self, name)!r} is not one of {', '.join(choices)}.")
        if (self.on_error == "dead_letter") != (self.dead_letter_topic is not None):
            raise ConfigurationError(
                f"on_error={self.on_error!r} with dead_letter_topic={self.dead_letter_topic!r}: "
                'a dead letter topic goes with on_error="dead_letter", and only with it.'
            )

    def _check_numbers(self) -> None:
        for name in (f.name for f in fields(self) if f.name.endswith(("_s", "_max")) or f.name in _COUNTS):
            value = getattr(self, name)
            if name == "liveness_limit_s" and value is None:
                continue
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
                raise ConfigurationError(f"{name}={value!r} must be a number greater than 0, and not infinite.")
            if not name.endswith("_s") and not isinstance(value, int):
                raise ConfigurationError(f"{name}={value!r} must be a whole number.")

    def _check_transform_time(self) -> None:
        longest_s = self.retries_wait_s
        poll_limit_ms = _milliseconds(_POLL_LIMIT, self.consumer_config().get(_POLL_LIMIT, 300_000))
        if longest_s * 1000 >= poll_limit_ms:
            raise ConfigurationError(
                f"transform_attempts_max={self.transform_attempts_max} with transform_backoff_s="
                f"{self.transform_backoff_s} may wait {longest_s:g} s, not below {_POLL_LIMIT}={poll_limit_ms}: the "
                "group would evict this member while it retries. Lower one or raise the other."
            )
        chosen_ms = _milliseconds(_TRANSACTION_LIMIT, self.producer_config()[_TRANSACTION_LIMIT])
        if _TRANSACTION_LIMIT not in {**self.kafka, **self.producer} and chosen_ms > _BROKERS_TIMEOUT_MAX_MS:
            raise ConfigurationError(
                f"a transaction may stay open for {self.open_limit_s:g} s: commit_interval_s={self.commit_interval_s:g}"
                f", hold_limit_s={self.hold_limit_s:g}, commit_timeout_s={self.commit_timeout_s:g} and {longest_s:g} s "
                f"of a transform's retries. Brokers allow {_BROKERS_TIMEOUT_MAX_MS} ms (transaction.max.timeout.ms). "
                f"Lower one of them, or raise the brokers' limit and set {_TRANSACTION_LIMIT}."
            )

    def _check_liveness_limit(self) -> None:
        if self.liveness_limit_s is not None and self.liveness_limit_s < self.open_limit_s:
            raise ConfigurationError(
                f"liveness_limit_s={self.liveness_limit_s:g} is shorter than a healthy loop may take from one poll to "
                f"the next ({self.open_limit_s:g} s: commit interval + retries of a transform + hold limit + commit "
                "timeout): it would be restarted in mid-transaction. Raise it, or lower those limits."
            )

    @property
    def retries_wait_s(self) -> float:
        """How long, in seconds, one record's transform waits between its attempts, all together."""
        return (self.transform_attempts_max - 1) * self.transform_backoff_s

    @property
    def open_limit_s(self) -> float:
        """How long, in seconds, one transaction may stay open, not counting what its transforms take themselves."""
        return self.commit_interval_s + self.retries_wait_s + self.hold_limit_s + self.commit_timeout_s

    @property
    def longest_wait_s(self) -> float:
        """How long, in seconds, a loop may wait for the cluster without a poll: at its start, or in a recovery.

        A start asks for three things; a recovery follows a commit, registers the producer and looks the outcome up.
        """
        return max(3 * self.start_timeout_s, self.open_limit_s + 2 * self.recovery_timeout_s)

    def consumer_config(self) -> dict[str, Any]:
        """Return the settings of the consumer."""
        check_settings(self.kafka)
        shared = {k: v for k, v in all_settings(self.kafka).items() if k not in PRODUCER_ONLY}
        return safe_consumer_settings({**shared, **self.consumer, "group.id": self.group_id})

    def producer_config(self) -> dict[str, Any]:
        """Return the settings of the producer, without ``transactional.id`` when one is to be generated."""
        check_settings(self.kafka)
        own = {k: v for k, v in all_settings(self.kafka).items() if k not in CONSUMER_ONLY}
        pinned = {} if self.transactional_id is None else {"transactional.id": self.transactional_id}
        # The loop wants no report of a success; of a failure it keeps the reason.
        watched = {"delivery.report.only.error": True}
        settings = safe_producer_settings({**watched, **own, **self.producer, **pinned}, self.open_limit_s)
        if self.transactional_id is None:
            del settings["transactional.id"]
        return settings

    def gate_settings(self) -> GateSettings:
        """Return the settings of the commit gate."""
        return GateSettings(
            scope=GateScope(self.scope),
            policy=GatePolicy(self.policy),
            hold_limit_s=self.hold_limit_s,
            validation=CommitValidation(self.commit_validation),
        )

    def producer_limits(self) -> ProducerLimits:
        """Return the limits of the producer's transactional calls."""
        return ProducerLimits(self.commit_timeout_s, self.start_timeout_s, self.recovery_timeout_s)
