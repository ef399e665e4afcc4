"""EosConfig: refuses settings that would break exactly-once and gives the others safe and fast defaults.

Dotted librdkafka names pass through untouched; nothing that the user set is overridden.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple

import tenacity

from eos_client.core.commit_gate import CommitValidation, GatePolicy, GateScope, GateSettings
from eos_client.core.model import ProducerLimits
from eos_client.errors import ConfigurationError, shown
from eos_client.ports import Deserializer, K_co, Serializer, V_co
from eos_client.transform_retry import asks_for_results, longest_wait_s, never_ends

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
    "enable.idempotence": Default(True, "A retried write is not doubled."),
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

_COUNTS = frozenset({"max_records", "batch_size"})
_OAUTHBEARER = "sasl.oauthbearer.config"
_OAUTHBEARER_PART = re.compile(r"(principal|principalClaimName|scope|scopeClaimName|lifeSeconds|extension_[A-Za-z]+)=")
_SECONDS_MAX = 2_000_000  # librdkafka counts milliseconds in 32 bits
_OPTIONAL_SECONDS = frozenset({"liveness_limit_s", "transform_retry_limit_s"})
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


def is_on(settings: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Return whether the boolean setting ``name`` is on, in any of librdkafka's spellings."""
    given = str(settings.get(name, default)).lower()
    return given not in _NO if default else given in _YES


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
    shown = {key: masked(value) if isinstance(value, Mapping) else value for key, value in settings.items()}
    return {key: _MASK if is_secret(key) else value for key, value in shown.items()}


class DiscreetSettings(dict[str, Any]):
    """Settings that show no secret as a text; asked by its key, they tell it."""

    def __repr__(self) -> str:
        return repr(masked(self))


def is_secret(key: str) -> bool:
    """Whether the value of the setting ``key`` must not be shown."""
    return any(part in str(key).lower() for part in _SECRETS)


def check_token_settings(settings: Settings) -> None:
    """Refuse a ``sasl.oauthbearer.config`` that librdkafka cannot read, because its own error would show it.

    Raises ConfigurationError, without the value. With ``oauth_cb`` and with OIDC its form is another.
    """
    text = settings.get(_OAUTHBEARER)
    if text is None or "oauth_cb" in settings or settings.get("sasl.oauthbearer.method") == "oidc":
        return
    for number, part in enumerate(str(text).split(), 1):
        if _OAUTHBEARER_PART.match(part) is None:
            raise ConfigurationError(
                f"part {number} of {_OAUTHBEARER!r}, whose value is not shown, is none of principal=, "
                "principalClaimName=, scope=, scopeClaimName=, lifeSeconds= and extension_NAME=. Correct it; for OIDC "
                "set sasl.oauthbearer.method=oidc and sasl.oauthbearer.client.secret."
            )


def check_addresses(settings: Settings) -> None:
    """Refuse credentials in the addresses of brokers; raises ConfigurationError, without the value.

    librdkafka takes what stands before the ``@`` for a part of the host's name, and shows it in its log.
    """
    for key in ("bootstrap.servers", "metadata.broker.list"):
        if "@" in str(settings.get(key, "")):
            raise ConfigurationError(
                f'"{key}" has an "@" in it, and is not shown, because a password may stand there. Give host:port, and '
                'user and password as "sasl.username" and "sasl.password".'
            )


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


def idempotent_producer_settings(settings: Settings) -> dict[str, Any]:
    """Complete the settings of a producer without transactions; raises ConfigurationError for unsafe ones."""
    check_settings(settings)
    return _completed(all_settings(settings), _values(SAFE_PRODUCER))


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
    # librdkafka takes none that is shorter than the delivery or the socket time-out.
    delivery_ms = _number(settings, "message.timeout.ms") or 0
    socket_ms = (_number(settings, "socket.timeout.ms") or 0) - 100
    generated = {
        "transactional.id": f"eos-{uuid.uuid4()}",
        "transaction.timeout.ms": max(_TRANSACTION_TIMEOUT_MS, needed_ms, math.ceil(max(delivery_ms, socket_ms))),
    }
    settings = _completed(settings, {**_agreeing(_values(FAST_TRANSACTIONS), settings), **generated})
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


def _values(defaults: Mapping[str, Default]) -> dict[str, Any]:
    return {key: default.value for key, default in defaults.items()}


def _completed(settings: Settings, defaults: Settings) -> DiscreetSettings:
    """Add ``defaults`` to ``settings`` for what was left out, or set to None, under all of its names."""
    left_out = {k: v for k, v in defaults.items() if all(settings.get(n) is None for n in (k, *_ALIASES.get(k, ())))}
    without = {n for key in left_out for n in (key, *_ALIASES.get(key, ()))}
    return DiscreetSettings(left_out | {key: value for key, value in settings.items() if key not in without})


def _check_agreement(key: str, option: str | None, settings: Settings) -> None:
    if key in settings and settings[key] != option:
        name = key.replace(".", "_")
        raise ConfigurationError(
            f'"{key}"={settings[key]!r} contradicts {name}={option!r}. Give it once, as the option {name}.'
        )


def check_serialiser(name: str, given: Any) -> None:
    """Raise ConfigurationError for a serialiser or deserialiser that cannot be called."""
    if given is not None and not callable(given):
        raise ConfigurationError(
            f"{name}={given!r} cannot be called. Give an object such as StringSerializer(), or a function of a value "
            "and a SerializationContext."
        )


def _milliseconds(key: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f'"{key}"={value!r} is not a number of milliseconds.') from error


@dataclass(frozen=True)
class EosConfig(Generic[K_co, V_co]):
    """Everything an ``ExactlyOnceLoop`` needs.

    A transaction is committed every ``commit_interval_s`` seconds or ``max_records`` records, and held for at most
    ``hold_limit_s`` while the gate is closed. librdkafka settings that only a consumer or only a producer knows go to
    that one alone. Raises ConfigurationError, naming the key, the value and the way out.
    """

    kafka: Settings
    """librdkafka settings by their dotted names, for both clients; `bootstrap.servers` is needed."""
    _: KW_ONLY
    group_id: str
    """The consumer group, which all workers of a job share."""
    transactional_id: str | None = None
    """None generates one for this process. A pinned one must be used by one process at a time; a restart with it ends
    an orphaned transaction at once."""
    consumer: Settings = field(default_factory=dict)
    """librdkafka settings of the consumer alone."""
    producer: Settings = field(default_factory=dict)
    """librdkafka settings of the producer alone."""
    commit_interval_s: float = 0.1
    """Seconds of work in one transaction. Shorter: outputs are visible earlier; longer: fewer commits."""
    max_records: int = 100_000
    """Records at which a transaction is committed before its interval is over. It bounds what an abort repeats."""
    batch_size: int = 500
    """Records that one call fetches at most from what the client library has read ahead."""
    poll_timeout_s: float = 0.1
    """Seconds that one poll waits for a record, and so how late an idle loop notices `stop()`."""
    hold_limit_s: float = 5.0
    """Seconds for which a transaction may be held while the gate is closed; then it is aborted, so that a skip ends."""
    commit_timeout_s: float = 4.0
    """Seconds that one transactional call may take; a commit that takes longer has an unknown outcome."""
    start_timeout_s: float = 10.0
    """Seconds that the cluster may take to answer at the start, before `ClusterUnavailableError`."""
    recovery_timeout_s: float = 60.0
    """Seconds of work without a commit, or without an answer, after which the loop ends with an error."""
    shutdown_timeout_s: float = 10.0
    """Seconds to finish or abort the open transaction and leave the group, once the loop is to stop."""
    scope: Literal["member", "partition"] = "member"
    """Whose commits a revocation holds back. `member` is right for every broker; `partition` is enough from 4.3 on
    with `group.protocol=consumer` (KIP-1251)."""
    policy: Literal["skip", "hold", "block"] = "skip"
    """What the loop does while the gate is closed. `skip`: goes on, and tries again when the next commit is due;
    `hold`: goes on, and commits as soon as the generation moves; `block`: consumes nothing until it moves."""
    commit_validation: Literal["unknown", "exact", "classic", "assignment_epoch"] = "unknown"
    """Which check the brokers are known to run. Only the counters of needed and false skips use it."""
    on_error: Literal["stop", "skip", "dead_letter"] = "stop"
    """What happens to a record whose transform failed, or whose output can never be written."""
    dead_letter_topic: str | None = None
    """Where `on_error="dead_letter"` writes such a record."""
    transform_attempts_max: int = 1
    """How often the transform is called for a record before it counts as failed."""
    transform_backoff_s: float = 0.1
    """Seconds between two attempts at a record, more than 0; a `transform_retry` may do without."""
    transform_retry: tenacity.Retrying | None = None
    """How a transform that fails is repeated, in place of the two above: `retry`, `wait` and `stop` count."""
    transform_retry_limit_s: float | None = None
    """Seconds from the first attempt at a record within which `transform_retry` begins the last one; needed where its
    waits are random."""
    key_deserializer: Deserializer[K_co] | None = None
    """Makes the key that the transform gets: confluent_kafka's, or any callable of bytes and a
    `SerializationContext`."""
    value_deserializer: Deserializer[V_co] | None = None
    """Makes the value that the transform gets."""
    key_serializer: Serializer | None = None
    """Makes bytes of the keys of outputs."""
    value_serializer: Serializer | None = None
    """Makes bytes of the values of outputs."""
    liveness_limit_s: float | None = None
    """After how many seconds without a poll `ExactlyOnceLoop.health()` calls the loop dead; None: after
    `max.poll.interval.ms`, when the group has given its partitions to others anyway, or after `longest_wait_s` where
    that is longer."""

    def __repr__(self) -> str:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        shown = ", ".join(f"{name}={value!r}" for name, value in masked(values).items())
        return f"EosConfig({shown})"

    def __post_init__(self) -> None:
        self._check_types()
        self._check_choices()
        self._check_numbers()
        if not self.kafka.get("bootstrap.servers"):
            raise ConfigurationError('"bootstrap.servers" is missing. Set it to host:port of one or more brokers.')
        if self.transactional_id == "":
            raise ConfigurationError("transactional_id='' names no producer. Leave it out to have one generated.")
        _check_agreement("group.id", self.group_id, {**self.kafka, **self.consumer})
        _check_agreement("transactional.id", self.transactional_id, {**self.kafka, **self.producer})
        for name in ("key_deserializer", "value_deserializer", "key_serializer", "value_serializer"):
            check_serialiser(name, getattr(self, name))
            if (key := name.replace("_", ".")) in {**self.kafka, **self.consumer, **self.producer}:
                raise ConfigurationError(f'"{key}" stands among the settings. Give it as the option {name}.')
        self.consumer_config()
        self._check_retry()
        self._check_times()

    def _check_types(self) -> None:
        for name in ("kafka", "consumer", "producer"):
            given = getattr(self, name)
            if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
                raise ConfigurationError(
                    f"{name} must be a dict of settings by their names, not {type(given).__name__}."
                )
        topic = self.dead_letter_topic
        if topic is not None and not (isinstance(topic, str) and topic.strip()):
            raise ConfigurationError(f"dead_letter_topic={topic!r} must be the name of a topic.")

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
            if value is None and name in _OPTIONAL_SECONDS:
                continue
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
                raise ConfigurationError(f"{name}={value!r} must be a number greater than 0, and not infinite.")
            if name.endswith("_s") and value > _SECONDS_MAX:
                raise ConfigurationError(f"{name}={value!r} must be at most {_SECONDS_MAX:,} seconds.")
            if not name.endswith("_s") and not isinstance(value, int):
                raise ConfigurationError(f"{name}={value!r} must be a whole number.")

    def _check_retry(self) -> None:
        policy, limit_s = self.transform_retry, self.transform_retry_limit_s
        if policy is None:
            if limit_s is not None:
                raise ConfigurationError(f"transform_retry_limit_s={limit_s!r} goes with transform_retry only.")
            return
        if not isinstance(policy, tenacity.Retrying):
            raise ConfigurationError(
                f"transform_retry={policy!r} is no tenacity.Retrying. Give for example "
                "tenacity.Retrying(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_fixed(1))."
            )
        if self.transform_attempts_max != 1:
            raise ConfigurationError(
                f"transform_attempts_max={self.transform_attempts_max} beside transform_retry: give one of them; "
                f"stop=tenacity.stop_after_attempt({self.transform_attempts_max}) means the same."
            )
        self._check_parts_of(policy)
        if limit_s is None and longest_wait_s(policy, self._poll_limit_ms / 1000) is None:
            raise ConfigurationError(
                "how long transform_retry may wait is not known beforehand, because its waits are random or depend on "
                "the failure. Say how long they may take for one record, for example transform_retry_limit_s=30."
            )

    def _check_parts_of(self, policy: tenacity.Retrying) -> None:
        if policy.retry_error_callback is not None:
            raise ConfigurationError(
                f"transform_retry has retry_error_callback={shown(policy.retry_error_callback)}, but what becomes of a "
                "record whose attempts are used up is decided by on_error alone. Leave it out; "
                'on_error="dead_letter" with dead_letter_topic keeps such records.'
            )
        if asks_for_results(policy.retry):
            raise ConfigurationError(
                "transform_retry decides by what the transform returned, but only failures are repeated. Raise an "
                "exception in the transform instead, and name its class by tenacity.retry_if_exception_type."
            )
        if never_ends(policy):
            raise ConfigurationError(
                "transform_retry never stops and does not wait: it would call the transform for one record for ever. "
                "Give it a stop, for example stop=tenacity.stop_after_attempt(3)."
            )

    @property
    def _poll_limit_ms(self) -> int:
        return _milliseconds(_POLL_LIMIT, self.consumer_config().get(_POLL_LIMIT, 300_000))

    def _check_times(self) -> None:
        longest_s, poll_limit_ms = self.retries_wait_s, self._poll_limit_ms
        if longest_s * 1000 >= poll_limit_ms:
            raise ConfigurationError(
                f"{self._retries_named()} may wait {longest_s:g} s, not below {_POLL_LIMIT}={poll_limit_ms}: the "
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
        turn_s = max(self.open_limit_s, self.poll_timeout_s)
        if self.liveness_limit_s is not None and self.liveness_limit_s < turn_s:
            raise ConfigurationError(
                f"liveness_limit_s={self.liveness_limit_s:g} is shorter than a healthy loop may take from one poll to "
                f"the next ({turn_s:g} s: poll_timeout_s, or commit interval + retries of a transform + hold limit "
                "+ commit timeout): it would be restarted for nothing. Raise it, or lower those limits."
            )

    def _retries_named(self) -> str:
        if self.transform_retry is None:
            attempts, backoff_s = self.transform_attempts_max, self.transform_backoff_s
            return f"transform_attempts_max={attempts} with transform_backoff_s={backoff_s}"
        limit_s = self.transform_retry_limit_s
        return "transform_retry" if limit_s is None else f"transform_retry_limit_s={limit_s:g}: transform_retry"

    @property
    def retry_policy(self) -> tenacity.Retrying | None:
        """How a transform that fails is repeated; None: it is not."""
        if self.transform_retry is None and self.transform_attempts_max == 1:
            return None
        stop = tenacity.stop_after_attempt(self.transform_attempts_max)
        return self.transform_retry or tenacity.Retrying(stop=stop, wait=tenacity.wait_fixed(self.transform_backoff_s))

    @cached_property
    def retries_wait_s(self) -> float:
        """How long, in seconds, one record's transform waits between its attempts at most, all together."""
        if self.transform_retry_limit_s is not None:
            return self.transform_retry_limit_s
        policy = self.retry_policy
        return 0.0 if policy is None else longest_wait_s(policy, self._poll_limit_ms / 1000) or 0.0

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
