"""The oldest confluent-kafka that the adapter and the simulated clients work with, named by whichever comes first."""

from __future__ import annotations

from types import ModuleType

CONFLUENT_KAFKA_MIN = (2, 15)


def require_minimum(confluent_kafka: ModuleType) -> None:
    """Raise ImportError where confluent-kafka or its librdkafka is older than the minimum."""
    _require_version("confluent-kafka", str(confluent_kafka.__version__))
    _require_version("librdkafka", str(confluent_kafka.libversion()[0]))


def _require_version(what: str, version: str) -> None:
    if tuple(int(part) for part in version.split(".")[:2]) < CONFLUENT_KAFKA_MIN:
        needed = ".".join(map(str, CONFLUENT_KAFKA_MIN))
        raise ImportError(
            f"eos-client needs {what} {needed} or newer, and {version} is installed: pip install --upgrade "
            f"'confluent-kafka>={needed},<3'",
            name="confluent_kafka",
        )
