"""Asks the cluster for missing topics, because a KIP-848 group reports none to its members."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from eos_client.confluent.admin.preflight import require_topics
from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.errors import ClusterUnavailableError
from eos_client.ports import Clock

_ANSWER_LIMIT_S = 1.0
_ASK_AGAIN_S = 5.0


class MissingTopics:
    """The topics of one subscription that the cluster has not confirmed yet."""

    def __init__(self, consumer: ConfluentConsumer, topics: Sequence[str], clock: Clock) -> None:
        self._consumer = consumer
        self._topics = topics
        self._clock = clock
        self._ask_at = clock()

    def require(self) -> None:
        """Raise ClusterUnfitError for a named topic that does not exist; a cluster without an answer is asked again."""
        if not self._topics or self._clock() < self._ask_at:
            return
        self._ask_at = self._clock() + _ASK_AGAIN_S
        with suppress(ClusterUnavailableError):
            require_topics(self._consumer, self._topics, _ANSWER_LIMIT_S, self._clock)
            self._topics = ()
