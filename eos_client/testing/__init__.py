"""What an application team needs for its own tests: a real embedded Kafka, as a process or in a container."""

from eos_client.testing.embedded_kafka import EmbeddedKafka

__all__ = ["EmbeddedKafka"]
