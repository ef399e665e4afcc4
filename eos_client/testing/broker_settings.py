"""Settings of KRaft brokers for development: small, quick to start, replicated where there are several."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eos_client.errors import EmbeddedKafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_VERSION = "4.3.1"
"""The default Kafka version of a broker."""

HOST = "127.0.0.1"
"""Where embedded brokers listen."""

CHEAP_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true")
"""Java options that start a broker in seconds and keep it small, at some cost in throughput."""

DEVELOPMENT_PROPERTIES: Mapping[str, str] = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # a killed broker can be restarted only after the end of its previous session (9 s by default)
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    # else the controller writes two no-op records a second (KIP-835), a third of the load of an idle broker
    "metadata.max.idle.interval.ms": "0",
    # records of a test may bear timestamps of years ago
    "log.retention.hours": "-1",
    # clients and groups of a test may use shorter sessions than production allows
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
"""Differences from Kafka's defaults, for every embedded broker; the caller's properties override them."""

REPLICAS_MAX = 3
"""The number of replicas of a cluster's topics, if it has that many brokers."""

_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_OWNED = frozenset(
    {
        "process.roles",
        "node.id",
        "broker.id",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "controller.listener.names",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "security.inter.broker.protocol",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
    }
)


@dataclass(frozen=True)
class BrokerListeners:
    """The broker's ports; it advertises ``host:advertised`` to clients.

    ``voters``: the controllers' ports of all nodes of its cluster, by node id; empty for a single node.
    ``client_protocol``: what clients speak, ``SASL_PLAINTEXT`` where they have to log in.
    """

    client: int
    internal: int
    controller: int
    advertised: int
    host: str = HOST
    bind_host: str = HOST
    node_id: int = 1
    voters: Mapping[int, int] = field(default_factory=dict)
    client_protocol: str = "PLAINTEXT"

    @property
    def quorum_voters(self) -> str:
        """The controllers of the cluster, as the value of the broker property."""
        voters = self.voters or {self.node_id: self.controller}
        return ",".join(f"{node_id}@{HOST}:{port}" for node_id, port in voters.items())


@dataclass(frozen=True)
class ClusterSeat:
    """The settings of one broker of several: the id of their cluster, and its listeners."""

    cluster_id: str
    listeners: BrokerListeners


def owned_properties(properties: Mapping[str, str]) -> list[str]:
    """Return those that the embedded broker sets itself."""
    return sorted(_OWNED.intersection(properties))


def login_properties(passwords: Mapping[str, str]) -> dict[str, str]:
    """Return the properties by which the users of ``passwords`` log in with SASL PLAIN."""
    users = " ".join(f'user_{user}="{password}"' for user, password in passwords.items())
    listener = "listener.name.plaintext"
    return {
        f"{listener}.sasl.enabled.mechanisms": "PLAIN",
        f"{listener}.plain.sasl.jaas.config": f"{_PLAIN_MODULE} required {users};",
    }


def refuse_owned_properties(properties: Mapping[str, str]) -> None:
    """Raise `EmbeddedKafkaError` for a property that the embedded broker sets itself."""
    owned = owned_properties(properties)
    if owned:
        raise EmbeddedKafkaError(
            f"{owned[0]}={properties[owned[0]]!r} is set by the embedded broker itself: leave it out "
            "(port=, advertised_port= and directory= choose where it listens and keeps its log)"
        )


def broker_settings(listeners: BrokerListeners, log_dir: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return all settings of the broker, by name.

    The broker sends its own requests (transaction markers, KIP-890 verification) to a separate listener, so that a
    proxy on the advertised port gets the clients' requests only.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": str(listeners.node_id),
        "controller.quorum.voters": listeners.quorum_voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{listeners.bind_host}:{listeners.client},INTERNAL://{HOST}:{listeners.internal},"
        f"CONTROLLER://{HOST}:{listeners.controller}",
        "advertised.listeners": f"PLAINTEXT://{listeners.host}:{listeners.advertised},"
        f"INTERNAL://{HOST}:{listeners.internal}",
        "listener.security.protocol.map": f"PLAINTEXT:{listeners.client_protocol},INTERNAL:PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "log.dirs": log_dir,
        **DEVELOPMENT_PROPERTIES,
        **properties,
    }


def replication_properties(brokers: int) -> dict[str, str]:
    """Return the properties with which a cluster of that many brokers survives the death of one without losses."""
    replicas = str(min(brokers, REPLICAS_MAX))
    in_sync = str(max(1, min(brokers, REPLICAS_MAX) - 1))
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,  # also of the offsets topic
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        # after this time others lead a dead broker's partitions; a busy machine delays a live broker's heartbeats, too
        "broker.session.timeout.ms": "3000",
    }


def as_properties_file(settings: Mapping[str, str]) -> str:
    """Render settings as ``java.util.Properties`` reads them."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


def as_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Render settings as the ``KAFKA_*`` variables of the official image (KIP-975): ``.`` is ``_``, ``_`` is ``__``."""
    return {
        "KAFKA_" + key.replace("_", "__").replace("-", "___").replace(".", "_").upper(): value
        for key, value in settings.items()
    }


def new_cluster_id() -> str:
    """Return a random cluster id in Kafka's own notation (16 bytes, base64 for URLs, unpadded)."""
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return f"A{cluster_id[1:]}"  # Kafka's tools parse an argument with a leading "-" as an option


def _escaped(text: str) -> str:
    escaped = str(text).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return "".join(char if " " <= char <= "~" else f"\\u{ord(char):04x}" for char in escaped)
