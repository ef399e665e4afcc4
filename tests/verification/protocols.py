"""The group protocols of runs on real brokers, and brokers set up so that a session ends within a test's patience."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from tests.support.protocols import NAMES, settings_of

SESSION_TIMEOUT_S = 3.0
LONG_SESSION_S = 45.0
HEARTBEAT_INTERVAL_S = 0.5
TRANSACTION_TIMEOUT_MS = 15_000
LATEST_VERSION = "4.3.1"
STRICT_VERSION = "4.1.2"
VERSIONS = (LATEST_VERSION, STRICT_VERSION)


class GroupProtocol(enum.Enum):
    """How members agree on partitions; the value is one of `NAMES`."""

    KIP_848 = "kip848"
    COOPERATIVE = "cooperative"
    EAGER = "eager"

    @property
    def consumer_config(self) -> Mapping[str, str]:
        """librdkafka's settings for it; under KIP-848 the session belongs to the broker."""
        settings = settings_of(NAMES[self.value])
        if self is GroupProtocol.KIP_848:
            return settings
        return {
            **settings,
            "session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
            "heartbeat.interval.ms": str(int(HEARTBEAT_INTERVAL_S * 1000)),
        }


def patient_config(protocol: GroupProtocol) -> dict[str, str]:
    """The same for a run in which nobody dies: no session ends because a client had to wait for its turn."""
    config = dict(protocol.consumer_config)
    if "session.timeout.ms" in config:
        config["session.timeout.ms"] = str(int(LONG_SESSION_S * 1000))
    return config


def broker_properties(session_s: float = SESSION_TIMEOUT_S) -> dict[str, str]:
    """Short sessions, quick rebalances, and a dead worker's transaction aborted soon after its time is over."""
    session_ms, heartbeat_ms = str(int(session_s * 1000)), str(int(HEARTBEAT_INTERVAL_S * 1000))
    return {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
        "group.consumer.min.session.timeout.ms": session_ms,
        "group.consumer.session.timeout.ms": session_ms,
        "group.consumer.min.heartbeat.interval.ms": heartbeat_ms,
        "group.consumer.heartbeat.interval.ms": heartbeat_ms,
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }
