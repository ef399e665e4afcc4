"""Configuration: what would break exactly-once is refused, what was left out gets the safe and the fast value.

Dotted librdkafka names pass through untouched; nothing that the user set is overridden.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
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
SAFE_PRODUCER: Settings = {
    "enable.idempotence": True,
    "acks": "all",
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
_TRANSACTION_TIMEOUT_MS = 10_000
_DELIVERY_TIMEOUTS = ("message.timeout.ms", "delivery.timeout.ms")
_POLL_LIMIT = "max.poll.interval.ms"


def check_settings(settings: Settings) -> None:
    """Refuse what would break exactly-once processing; raises ConfigurationError naming key, value and way out."""
    for key, values, reason, way_out in _REFUSED:
        if key in settings and str(settings[key]).strip().lower() in values:
            raise ConfigurationError(f"{key}={settings[key]!r} breaks exactly-once processing: {reason}. {way_out}.")


def safe_consumer_settings(settings: Settings) -> dict[str, Any]:
    """Complete a consumer's settings; raises ConfigurationError for unsafe ones or a missing ``group.id``."""
    check_settings(settings)
    if not settings.get("group.id"):
        raise ConfigurationError('"group.id" is missing: offsets can only be fenced inside a group (KIP-447). Set it.')
    return {**_left_out(SAFE_CONSUMER, settings), **settings}


def safe_producer_settings(settings: Settings, shortest_timeout_s: float = 0.0) -> dict[str, Any]:
    """Complete a producer's settings, generating a ``transactional.id`` when none is given.

    ``shortest_timeout_s``: how long one transaction may stay open; a ``transaction.timeout.ms`` below it is refused.
    """
    check_settings(settings)
    needed_ms = math.ceil(shortest_timeout_s * 1000)
    given_ms = settings.get("transaction.timeout.ms")
    if given_ms is not None and _milliseconds("transaction.timeout.ms", given_ms) < needed_ms:
        raise ConfigurationError(
            f'"transaction.timeout.ms"={given_ms!r} is shorter than a transaction may stay open ({needed_ms} ms: '
            "commit interval + hold limit + commit timeout): the broker would fence the producer in mid-transaction. "
            "Raise it, or lower the limits."
        )
    if "transactional.id" in settings and not settings["transactional.id"]:
        raise ConfigurationError(
            f'"transactional.id"={settings["transactional.id"]!r} names no producer: there would be no transactions. '
            "Leave it out to have one generated, or set a name."
        )
    # librdkafka refuses a delivery timeout that is longer than the transaction's.
    longest_ms = max((int(str(v)) for v in map(settings.get, _DELIVERY_TIMEOUTS) if str(v).isdigit()), default=0)
    timeout_ms = max(_TRANSACTION_TIMEOUT_MS, needed_ms, longest_ms)
    generated = {"transactional.id": f"eos-{uuid.uuid4()}", "transaction.timeout.ms": timeout_ms}
    return {**_left_out(SAFE_PRODUCER, settings), **_left_out(generated, settings), **settings}


def _left_out(defaults: Settings, settings: Settings) -> dict[str, Any]:
    aliases = {"acks": "request.required.acks", "linger.ms": "queue.buffering.max.ms"}
    return {k: v for k, v in defaults.items() if k not in settings and aliases.get(k) not in settings}


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
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
                raise ConfigurationError(f"{name}={value!r} must be a number greater than 0, and not infinite.")
            if not name.endswith("_s") and not isinstance(value, int):
                raise ConfigurationError(f"{name}={value!r} must be a whole number.")

    def _check_transform_time(self) -> None:
        longest_s = (self.transform_attempts_max - 1) * self.transform_backoff_s
        poll_limit_ms = _milliseconds(_POLL_LIMIT, self.consumer_config().get(_POLL_LIMIT, 300_000))
        if longest_s * 1000 >= poll_limit_ms:
            raise ConfigurationError(
                f"transform_attempts_max={self.transform_attempts_max} with transform_backoff_s="
                f"{self.transform_backoff_s} may wait {longest_s:g} s, not below {_POLL_LIMIT}={poll_limit_ms}: the "
                "group would evict this member while it retries. Lower one or raise the other."
            )

    @property
    def open_limit_s(self) -> float:
        """How long, in seconds, one transaction may stay open."""
        return self.commit_interval_s + self.hold_limit_s + self.commit_timeout_s

    def consumer_config(self) -> dict[str, Any]:
        """Return the settings of the consumer."""
        check_settings(self.kafka)
        shared = {k: v for k, v in self.kafka.items() if k not in PRODUCER_ONLY}
        return safe_consumer_settings({**shared, **self.consumer, "group.id": self.group_id})

    def producer_config(self) -> dict[str, Any]:
        """Return the settings of the producer, without ``transactional.id`` when one is to be generated."""
        check_settings(self.kafka)
        own = {k: v for k, v in self.kafka.items() if k not in CONSUMER_ONLY}
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
