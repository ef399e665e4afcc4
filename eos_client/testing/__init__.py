"""The test kit for applications: real Kafka and databases, or a simulated Kafka that starts in milliseconds."""

from typing import TYPE_CHECKING

from eos_client.lazy_names import lazy_names

if TYPE_CHECKING:
    from eos_client.testing.broker import KafkaBroker
    from eos_client.testing.container_kafka import ContainerKafka
    from eos_client.testing.embedded_cluster import EmbeddedKafkaCluster
    from eos_client.testing.embedded_kafka import EmbeddedKafka
    from eos_client.testing.embedded_mysql import EmbeddedMysql
    from eos_client.testing.embedded_postgres import EmbeddedPostgres
    from eos_client.testing.simulator import SimulatedCluster, record
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "ContainerKafka": "eos_client.testing.container_kafka",
            "EmbeddedKafka": "eos_client.testing.embedded_kafka",
            "EmbeddedKafkaCluster": "eos_client.testing.embedded_cluster",
            "EmbeddedMysql": "eos_client.testing.embedded_mysql",
            "EmbeddedPostgres": "eos_client.testing.embedded_postgres",
            "KafkaBroker": "eos_client.testing.broker",
            "SimulatedCluster": "eos_client.testing.simulator",
            "record": "eos_client.testing.simulator",
        },
    )

__all__ = [
    "ContainerKafka",
    "EmbeddedKafka",
    "EmbeddedKafkaCluster",
    "EmbeddedMysql",
    "EmbeddedPostgres",
    "KafkaBroker",
    "SimulatedCluster",
    "record",
]
