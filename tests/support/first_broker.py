"""Starts and stops a broker where Java has no archive of Kafka's classes yet; ``make test`` does so before all others.

It does so for each version that several tests run: those that they share are killed, and write none.

Without it, all that start at the same time would cost twice as much, and each would write an archive when it ends.
"""

from __future__ import annotations

from eos_client.testing.broker_java import BrokerJava
from eos_client.testing.broker_settings import DEFAULT_VERSION
from eos_client.testing.embedded_kafka import EmbeddedKafka
from eos_client.testing.java_runtime import find_java
from eos_client.testing.kafka_jars import kafka_jars
from tests.verification.protocols import STRICT_VERSION

SHUT_DOWN_S = 60.0  # writing takes seconds of a processor


def main() -> None:
    """Make the archives that are not there."""
    java = find_java()
    for version in (DEFAULT_VERSION, STRICT_VERSION):
        if not BrokerJava(java, kafka_jars(version, java, print), heap_mb=512).has_archive:
            with EmbeddedKafka(version=version) as broker:
                broker.shut_down(SHUT_DOWN_S)


if __name__ == "__main__":
    main()
