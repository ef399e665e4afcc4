"""The simulator: brokers, clients with confluent_kafka's methods, and the cluster that a test scripts.

``__all__`` holds its public names. ``docs/reference/simulated-cluster.md`` explains them, and lists what is simplified.
Nothing in this folder imports anything else of the package.
"""

from eos_client.testing.simulator.brokers.clock import SimulatedClock
from eos_client.testing.simulator.brokers.faults import Fault, FaultKind
from eos_client.testing.simulator.brokers.group_coordinator import GroupCoordinator
from eos_client.testing.simulator.brokers.idempotent_sender import IdempotentSender
from eos_client.testing.simulator.brokers.model import BrokerError, PartitionKey, StoredRecord
from eos_client.testing.simulator.brokers.network import Delivered
from eos_client.testing.simulator.brokers.offset_store import OffsetStore
from eos_client.testing.simulator.brokers.partition_log import PartitionLog
from eos_client.testing.simulator.brokers.peer_member import PeerMember
from eos_client.testing.simulator.brokers.settings import BrokerSettings, CommitCheck, ProducerStateKind
from eos_client.testing.simulator.brokers.transaction_coordinator import TransactionCoordinator
from eos_client.testing.simulator.clients.consumer import SimulatedConsumer
from eos_client.testing.simulator.clients.input_record import record
from eos_client.testing.simulator.clients.producer import SimulatedProducer
from eos_client.testing.simulator.cluster import SimulatedCluster

__all__ = [
    "BrokerError",
    "BrokerSettings",
    "CommitCheck",
    "Delivered",
    "Fault",
    "FaultKind",
    "GroupCoordinator",
    "IdempotentSender",
    "OffsetStore",
    "PartitionKey",
    "PartitionLog",
    "PeerMember",
    "ProducerStateKind",
    "SimulatedClock",
    "SimulatedCluster",
    "SimulatedConsumer",
    "SimulatedProducer",
    "StoredRecord",
    "TransactionCoordinator",
    "record",
]
