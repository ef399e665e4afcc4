"""Starts and stops a broker where Java has no archive of Kafka's classes yet; ``make test`` does so before all others.

Without it, all that start at the same time would cost twice as much, and each would write an archive when it ends.
"""

from __future__ import annotations

from eos_client.testing.broker_java import BrokerJava
from eos_client.testing.broker_settings import DEFAULT_VERSION
from eos_client.testing.embedded_kafka import EmbeddedKafka
from eos_client.testing.java_runtime import find_java
from eos_client.testing.kafka_jars import kafka_jars

SHUT_DOWN_S = 60.0  # writing takes seconds of a processor


def main() -> None:
    """Make the archive if there is none."""
    java = find_java()
    if not BrokerJava(java, kafka_jars(DEFAULT_VERSION, java, print), heap_mb=512).has_archive:
        with EmbeddedKafka() as broker:
            broker.shut_down(SHUT_DOWN_S)


if __name__ == "__main__":
    main()
