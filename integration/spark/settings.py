"""The sink's settings, checked once and carried to the executors as a plain value."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from pyspark import cloudpickle

from eos_client.config.client_settings import (
    LOG_LEVEL_CRITICAL,
    TRANSACTION_TIMEOUT,
    check_settings,
    for_consumer,
    for_producer,
    group_protocol,
    milliseconds,
)
from eos_client.core.model import ProducerLimits
from eos_client.core.output_topics import TOPIC_NAME_LENGTH_MAX, is_topic_name
from eos_client.core.transaction_timeout import DEFAULT_LIMIT_MS
from eos_client.errors import ConfigurationError

StepObserver = Callable[[str, int, int], object]
"""Called with step, slot and batch id, on the executor. Must be picklable; a seam for tests."""
DriverStepObserver = Callable[[str, int], object]
"""Called with step and batch id, on the driver. A seam for tests."""

_SINK_ID_LENGTH_MAX = 200
_OURS = ("transactional.id", "group.id", "group.instance.id", "bootstrap.servers", "auto.offset.reset")
_TOKEN_SOURCE = "oauth_cb"  # noqa: S105  # the name of a setting
_TRANSACTION_TIMEOUT_MS = 60_000
_HANDLE_IDLE_S_MAX = 3600.0
_SESSION_TIMEOUT_MS, _HEARTBEAT_INTERVAL_MS = 45_000, 3_000  # librdkafka's defaults
SLOTS_MAX = 10_000
KEPT_PRODUCERS = 4


@dataclass(frozen=True, slots=True)
class PickledFunction:
    """A function of the application, pickled for the executors; equal wherever it is unpickled.

    Spark pickles by content, or by name where executors can import its module.
    """

    content: bytes = field(repr=False)

    def function(self) -> Callable[..., Any]:
        """Return the function: one object per process, so that it can cache a token, for example."""
        return _unpickled(self.content)


@functools.cache
def _unpickled(content: bytes) -> Callable[..., Any]:
    function: Callable[..., Any] = cloudpickle.loads(content)
    return function


@dataclass(frozen=True)
class SinkSettings:
    """Everything that a driver and its tasks need to know. ``config``: librdkafka's settings by their dotted names."""

    bootstrap_servers: str
    topic: str
    sink_id: str
    slots: int
    ledger_topic: str
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _: KW_ONLY
    order_by: tuple[str, ...] = ()
    stable_input: str | None = None
    stage_dir: str | None = None
    adopt_ledger: str | None = None
    accept_batch: str | None = None
    query_id: str | None = None
    start_timeout_s: float = 30.0
    commit_timeout_s: float = 30.0
    sibling_timeout_s: float = 10.0
    kept_producers: int = KEPT_PRODUCERS
    """How many idle producers a Python worker keeps between tasks, at most."""
    handle_idle_s: float = _HANDLE_IDLE_S_MAX
    """How long the producer of a slot may be idle and still be reused: brokers forget unused ids."""

    def __post_init__(self) -> None:
        self._check_names()
        if not self.bootstrap_servers:
            raise ConfigurationError("bootstrap_servers is empty. Give host:port of one or more brokers.")
        for name, least in (("slots", 1), ("kept_producers", 0)):
            number = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= SLOTS_MAX:
                raise ConfigurationError(f"{name}={number!r} must be a whole number from {least} to {SLOTS_MAX}.")
        for name, meaning in (("adopt_ledger", "one ledger in one state"), ("accept_batch", "one batch")):
            token = getattr(self, name)
            if token is not None and not isinstance(token, str):
                raise ConfigurationError(
                    f"{name}={token!r} must be the token that a refusal prints: it stands for {meaning}."
                )
        if self.stable_input not in {None, "stage"}:
            raise ConfigurationError(f'stable_input={self.stable_input!r} must be None or "stage".')
        for name in ("start_timeout_s", "commit_timeout_s", "sibling_timeout_s"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name}={getattr(self, name)!r} must be a number of seconds greater than 0.")
        self._check_config()
        self._pickle_functions()

    def _check_names(self) -> None:
        longest = {
            "sink_id": _SINK_ID_LENGTH_MAX,
            "ledger_topic": TOPIC_NAME_LENGTH_MAX,
            "topic": TOPIC_NAME_LENGTH_MAX,
        }
        for name, length_max in longest.items():
            value = getattr(self, name)
            if not isinstance(value, str) or not is_topic_name(value) or len(value) > length_max:
                raise ConfigurationError(
                    f"{name}={value!r} must be 1 to {length_max} letters, digits, dots, dashes or underscores."
                )
        if self.ledger_topic == self.topic:
            raise ConfigurationError(
                f"ledger_topic={self.ledger_topic!r} is the output topic, which would get a partition for each slot. "
                "Leave it out, or name a topic that is used for nothing else."
            )

    def _check_config(self) -> None:
        check_settings(self.config)
        for key in _OURS:
            if key in self.config:
                raise ConfigurationError(f'"{key}" is set by the sink itself. Leave it out of config.')
        if group_protocol(self.config) != "classic":
            raise ConfigurationError(
                '"group.protocol" must be classic for the lease: a KIP-848 group refuses a new driver until the old '
                "one's session has ended. Leave it out."
            )
        callbacks = [key for key, value in self.config.items() if callable(value) and key != _TOKEN_SOURCE]
        if callbacks:
            raise ConfigurationError(
                f"config has callbacks ({', '.join(callbacks)}), which are not served on executors. Leave them out: "
                f"{_TOKEN_SOURCE} alone may be a function."
            )
        session_ms = self._milliseconds("session.timeout.ms", _SESSION_TIMEOUT_MS)
        heartbeat_ms = self._milliseconds("heartbeat.interval.ms", _HEARTBEAT_INTERVAL_MS)
        if session_ms < 2 * heartbeat_ms:
            raise ConfigurationError(
                f"session.timeout.ms={session_ms} leaves no time for a second heartbeat of the lease "
                f"(heartbeat.interval.ms={heartbeat_ms}): the lease would end by itself. Set it to three times that or "
                "more, or the interval lower."
            )

    @property
    def session_timeout_s(self) -> float:
        """Seconds without contact after which the group ends the driver's lease."""
        return self._milliseconds("session.timeout.ms", _SESSION_TIMEOUT_MS) / 1000

    def _milliseconds(self, name: str, default: int) -> int:
        return milliseconds(name, self.config.get(name, default))

    def _pickle_functions(self) -> None:
        source = self.config.get(_TOKEN_SOURCE)
        if not callable(source):
            return
        try:
            pickled = PickledFunction(cloudpickle.dumps(source))  # type: ignore[no-untyped-call]
        except Exception as error:
            raise ConfigurationError(
                f"{_TOKEN_SOURCE} cannot go to executors: {error}. Create what it needs inside the function, or in a "
                "module that executors can import."
            ) from error
        object.__setattr__(self, "config", {**self.config, _TOKEN_SOURCE: pickled})

    @property
    def _unpacked(self) -> dict[str, Any]:
        return {k: v.function() if isinstance(v, PickledFunction) else v for k, v in self.config.items()}

    @property
    def kafka(self) -> dict[str, Any]:
        """The librdkafka settings that all clients share."""
        return {"log_level": LOG_LEVEL_CRITICAL, **self._unpacked, "bootstrap.servers": self.bootstrap_servers}

    @property
    def config_for_admin(self) -> dict[str, Any]:
        """The librdkafka settings for an admin client."""
        return for_consumer(for_producer(self._unpacked))

    @property
    def producer(self) -> dict[str, Any]:
        """The librdkafka settings of the slots' producers, without their ids."""
        return {TRANSACTION_TIMEOUT: _TRANSACTION_TIMEOUT_MS, **self.kafka}

    def within(self, granted_ms: int, id_expiration_ms: int) -> SinkSettings:
        """Return the settings for brokers that allow transactions of ``granted_ms`` milliseconds; 0: unknown.

        Unless ``config`` says otherwise, a slot gets as long as they allow, up to 15 minutes: what it leaves behind is
        ended by the next attempt, not by the time-out. ``id_expiration_ms``: transactional.id.expiration.ms of the
        brokers; 0: unknown. A producer that was idle for half of it is not used again.
        """
        settings = self
        if id_expiration_ms > 0:
            settings = replace(settings, handle_idle_s=min(id_expiration_ms / 2000, _HANDLE_IDLE_S_MAX))
        if granted_ms <= 0 or TRANSACTION_TIMEOUT in self.config:
            return settings
        longest_ms = min(granted_ms, DEFAULT_LIMIT_MS)
        return replace(settings, config={**self.config, TRANSACTION_TIMEOUT: longest_ms})

    @property
    def transaction_timeout_s(self) -> float:
        """Seconds after which the broker aborts a slot's transaction; it bounds the writing of one slot."""
        return int(self.producer[TRANSACTION_TIMEOUT]) / 1000

    @property
    def group_id(self) -> str:
        """The group whose committed offsets are the ledger."""
        return f"{self.sink_id}-ledger"

    @property
    def limits(self) -> ProducerLimits:
        """How long the calls of a slot's producer may take."""
        return ProducerLimits(self.commit_timeout_s, self.start_timeout_s, self.start_timeout_s)

    def transactional_id(self, slot: int) -> str:
        """Return the name under which attempts to write ``slot`` fence each other."""
        return f"{self.sink_id}-{slot}"
