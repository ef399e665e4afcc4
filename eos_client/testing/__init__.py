"""The test kit for applications: a real Kafka, or a simulated one that starts in milliseconds."""

from typing import TYPE_CHECKING

from eos_client.lazy_names import lazy_names

if TYPE_CHECKING:
    from eos_client.testing.broker import KafkaBroker
    from eos_client.testing.container_kafka import ContainerKafka
    from eos_client.testing.embedded_cluster import EmbeddedKafkaCluster
    from eos_client.testing.embedded_kafka import EmbeddedKafka
    from eos_client.testing.simulator import SimulatedCluster
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "ContainerKafka": "eos_client.testing.container_kafka",
            "EmbeddedKafka": "eos_client.testing.embedded_kafka",
            "EmbeddedKafkaCluster": "eos_client.testing.embedded_cluster",
            "KafkaBroker": "eos_client.testing.broker",
            "SimulatedCluster": "eos_client.testing.simulator",
        },
    )

__all__ = ["ContainerKafka", "EmbeddedKafka", "EmbeddedKafkaCluster", "KafkaBroker", "SimulatedCluster"]
