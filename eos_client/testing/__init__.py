"""What an application team needs for its own tests: a real Kafka, as a child process or in a container."""

from eos_client.testing.broker import KafkaBroker
from eos_client.testing.container_kafka import ContainerKafka
from eos_client.testing.embedded_cluster import EmbeddedKafkaCluster
from eos_client.testing.embedded_kafka import EmbeddedKafka

__all__ = ["ContainerKafka", "EmbeddedKafka", "EmbeddedKafkaCluster", "KafkaBroker"]
