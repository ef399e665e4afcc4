"""The simulated brokers: Kafka's rules as plain objects, without sockets, threads or a clock of their own.

Each can be used alone: `PartitionLog`, `OffsetStore`, `GroupCoordinator`, `TransactionCoordinator`, and the
client's half of the latest-sequence design (P5), `IdempotentSender`.
"""

from eos_client.testing.simulation.group_coordinator import GroupCoordinator
from eos_client.testing.simulation.idempotent_sender import IdempotentSender
from eos_client.testing.simulation.offset_store import OffsetStore
from eos_client.testing.simulation.partition_log import PartitionLog
from eos_client.testing.simulation.transaction_coordinator import TransactionCoordinator

__all__ = ["GroupCoordinator", "IdempotentSender", "OffsetStore", "PartitionLog", "TransactionCoordinator"]
