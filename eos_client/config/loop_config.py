"""EosConfig: everything that a loop needs, checked as a whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from enum import Enum
from functools import cached_property
from typing import Any, Generic, Literal

import tenacity

from eos_client.config.client_settings import (
    POLL_LIMIT,
    TRANSACTION_TIMEOUT,
    all_settings,
    check_serialiser,
    check_settings,
    for_consumer,
    for_producer,
    milliseconds,
    poll_limit_ms,
    safe_consumer_settings,
    safe_producer_settings,
)
from eos_client.config.secret_settings import Settings, masked
from eos_client.core.commit_gate import CommitValidation, GatePolicy, GateScope, GateSettings
from eos_client.core.model import ProducerLimits
from eos_client.core.transaction_timeout import DEFAULT_LIMIT_MS, is_timeout_allowed
from eos_client.errors import ConfigurationError
from eos_client.ports import Deserializer, K_co, Serializer, V_co
from eos_client.transform_retry import check_policy, longest_wait_s

_SECONDS_MAX = 2_000_000  # librdkafka counts milliseconds in 32 bits


class OnError(Enum):
    """What becomes of a record whose transform failed, or whose output can never be written."""

    STOP = "stop"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


_CHOICES: Mapping[str, type[Enum]] = {
    "scope": GateScope,
    "policy": GatePolicy,
    "commit_validation": CommitValidation,
    "on_error": OnError,
}


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
    """Seconds from a record's first attempt within which `transform_retry` begins the last; needed for random waits."""
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
    `max.poll.interval.ms`, when the group has reassigned its partitions anyway, or after the longest time that a
    recovery may take (`longest_wait_s`, 129 s with the default settings), whichever is longer."""

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
        check_settings(self.kafka)  # as a whole: the settings of one client may override what is refused
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
        for name, kind in _CHOICES.items():
            if getattr(self, name) not in (choices := [choice.value for choice in kind]):
                raise ConfigurationError(f"{name}={getattr(self, name)!r} is not one of {', '.join(choices)}.")
        if (self.on_error == OnError.DEAD_LETTER.value) != (self.dead_letter_topic is not None):
            raise ConfigurationError(
                f"on_error={self.on_error!r} with dead_letter_topic={self.dead_letter_topic!r}: "
                'a dead letter topic goes with on_error="dead_letter", and only with it.'
            )

    def _check_numbers(self) -> None:
        for name, kind in ((f.name, f.type) for f in fields(self) if f.type in {"float", "float | None", "int"}):
            value = getattr(self, name)
            if value is None and kind == "float | None":
                continue
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
                raise ConfigurationError(f"{name}={value!r} must be a number greater than 0, and not infinite.")
            if kind != "int" and value > _SECONDS_MAX:
                raise ConfigurationError(f"{name}={value!r} must be at most {_SECONDS_MAX:,} seconds.")
            if kind == "int" and not isinstance(value, int):
                raise ConfigurationError(f"{name}={value!r} must be a whole number.")

    def _check_retry(self) -> None:
        policy, limit_s = self.transform_retry, self.transform_retry_limit_s
        if policy is None:
            if limit_s is not None:
                raise ConfigurationError(f"transform_retry_limit_s={limit_s!r} goes with transform_retry only.")
            return
        if self.transform_attempts_max != 1:
            raise ConfigurationError(
                f"transform_attempts_max={self.transform_attempts_max} beside transform_retry: give one of them; "
                f"stop=tenacity.stop_after_attempt({self.transform_attempts_max}) means the same."
            )
        check_policy(policy)
        if limit_s is None:
            longest_wait_s(policy, self._poll_limit_ms / 1000)

    @property
    def _poll_limit_ms(self) -> int:
        return poll_limit_ms(self.consumer_config())

    def _check_times(self) -> None:
        longest_s, poll_limit_ms = self.retries_wait_s, self._poll_limit_ms
        if longest_s * 1000 >= poll_limit_ms:
            raise ConfigurationError(
                f"{self._retries_named()} may wait {longest_s:g} s, not below {POLL_LIMIT}={poll_limit_ms}: the "
                "group would evict this member while it retries. Lower one or raise the other."
            )
        chosen_ms = milliseconds(TRANSACTION_TIMEOUT, self.producer_config()[TRANSACTION_TIMEOUT])
        if TRANSACTION_TIMEOUT not in {**self.kafka, **self.producer} and not is_timeout_allowed(chosen_ms, None):
            raise ConfigurationError(
                f"a transaction may stay open for {self.open_limit_s:g} s: commit_interval_s={self.commit_interval_s:g}"
                f", hold_limit_s={self.hold_limit_s:g}, commit_timeout_s={self.commit_timeout_s:g} and {longest_s:g} s "
                f"of a transform's retries. Brokers allow {DEFAULT_LIMIT_MS} ms "
                "(transaction.max.timeout.ms). Lower one of them, or raise the brokers' limit and set "
                f"{TRANSACTION_TIMEOUT}."
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
        return 0.0 if policy is None else longest_wait_s(policy, self._poll_limit_ms / 1000)

    @property
    def open_limit_s(self) -> float:
        """How long, in seconds, one transaction may stay open, not counting what its transforms take themselves."""
        return self.commit_interval_s + self.retries_wait_s + self.hold_limit_s + self.commit_timeout_s

    @property
    def longest_wait_s(self) -> float:
        """How long, in seconds, a loop may wait for the cluster without a poll: at its start, or in a recovery.

        A start sends three requests (topics, init_transactions, output topics); a recovery follows a commit, registers
        the producer and looks the outcome up.
        """
        return max(3 * self.start_timeout_s, self.open_limit_s + 2 * self.recovery_timeout_s)

    def consumer_config(self) -> dict[str, Any]:
        """Return the settings of the consumer."""
        shared = for_consumer(all_settings(self.kafka))
        return safe_consumer_settings({**shared, **self.consumer, "group.id": self.group_id})

    def producer_config(self) -> dict[str, Any]:
        """Return the settings of the producer, without ``transactional.id`` when one is to be generated."""
        own = for_producer(all_settings(self.kafka))
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


def _check_agreement(key: str, option: str | None, settings: Settings) -> None:
    if key in settings and settings[key] != option:
        name = key.replace(".", "_")
        raise ConfigurationError(
            f'"{key}"={settings[key]!r} contradicts {name}={option!r}. Give it once, as the option {name}.'
        )
