"""Are the topics there? A topic that was just created may not be known to the first broker that is asked."""

from types import SimpleNamespace
from typing import Any

import pytest

from eos_client.confluent.preflight import require_topics
from eos_client.errors import ClusterUnfitError
from eos_client.testing.simulator import SimulatedClock


class Consumer:
    """Answers with one more known topic each time."""

    def __init__(self, *topics):
        self._topics = topics
        self.asked = 0

    def list_topics(self, timeout):
        assert timeout > 0
        self.asked += 1
        return SimpleNamespace(topics={name: SimpleNamespace(error=None) for name in self._topics[: self.asked - 1]})


def test_a_topic_that_is_not_known_yet_is_asked_for_again():
    consumer: Any = Consumer("orders", "bills")
    require_topics(consumer, ["orders", "bills", "^any.*"], 10.0, SimulatedClock())
    assert consumer.asked == 3


def test_a_topic_that_stays_unknown_is_named():
    consumer: Any = Consumer("orders", "bills")
    with pytest.raises(ClusterUnfitError, match=r"'bils' does not exist .* did you mean 'bills'"):
        require_topics(consumer, ["orders", "bils"], 0.5, SimulatedClock())
