"""The test kit for applications: a real Kafka, or a simulated one that starts in milliseconds."""

from eos_client.testing.broker import KafkaBroker
from eos_client.testing.container_kafka import ContainerKafka
from eos_client.testing.embedded_cluster import EmbeddedKafkaCluster
from eos_client.testing.embedded_kafka import EmbeddedKafka
from eos_client.testing.simulated_cluster import SimulatedCluster

__all__ = ["ContainerKafka", "EmbeddedKafka", "EmbeddedKafkaCluster", "KafkaBroker", "SimulatedCluster"]
