"""What ``eos-client run`` asks the cluster first, so that a plain mistake is told within seconds."""

from __future__ import annotations

from collections.abc import Sequence

from eos_client.config import EosConfig
from eos_client.confluent.admin import ClusterAdmin
from eos_client.errors import ClusterUnfitError

_ANSWER_LIMIT_S = 5.0


def require_topics(config: EosConfig, names: Sequence[str]) -> None:
    """Check that the cluster answers and has these topics.

    :raises ConfigurationError: librdkafka does not know a setting.
    :raises ClusterUnavailableError: no broker answered within 5 s.
    :raises ClusterUnfitError: a topic is missing; topics are never created by a typing error.
    """
    bootstrap_servers = str(config.kafka["bootstrap.servers"])
    admin = ClusterAdmin(bootstrap_servers, config.kafka, timeout_s=min(config.start_timeout_s, _ANSWER_LIMIT_S))
    missing = [name for name, topic in admin.topics(list(dict.fromkeys(names))).items() if topic is None]
    if missing:
        raise ClusterUnfitError(
            f"the cluster at {bootstrap_servers} has no topic {', '.join(map(repr, missing))}: "
            "create it with as many partitions as workers should share, or correct the name"
        )
