"""The jars of Spark's own Kafka connector, in the user's cache like those of the broker.

``spark.jars.packages`` would resolve them again at each start of Spark. The token provider is that of Spark 4.0.0, with
which the connector of every later 4.x works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos_client.testing.jar_resolvers import JarSet
from eos_client.testing.java_runtime import find_java
from eos_client.testing.kafka_jars import cached_jars

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONNECTOR_VERSION = "4.2.0"
"""The newest connector that can be resolved; it works with PySpark of the same minor version."""

_JARS = JarSet(
    title=f"Spark's Kafka connector {CONNECTOR_VERSION}",
    folder=f"spark-{CONNECTOR_VERSION}",
    artifacts=(
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.1"),
        ("org.apache.commons", "commons-pool2", "2.12.0"),
    ),
    landmark=rf"spark-sql-kafka-0-10_2\.13-{CONNECTOR_VERSION}\.jar",
    size_mb=10,
    transitive=False,  # Spark has the other dependencies
)


def connector_jars(on_progress: Callable[[str], None] | None = None) -> list[Path]:
    """Return the connector's jars, for ``spark.jars`` or ``--jars``; downloads them if they are not cached.

    Raises `EmbeddedKafkaError` if that fails; ``on_progress`` is called with one line a step.
    """
    folder = cached_jars(_JARS, find_java(), on_progress or (lambda _line: None))
    return sorted(folder.glob("*.jar"))
