"""Are the topics there? A topic that was just created may not be known to the first broker that is asked."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client.confluent.last_errors import LastErrors
from eos_client.confluent.preflight import require_topics
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError
from eos_client.testing.simulator import SimulatedClock


class Consumer:
    """Answers with one more known topic each time."""

    library = SimpleNamespace(last_errors=LastErrors(None), is_real=False)

    def __init__(self, *topics):
        self._topics = topics
        self.asked = 0
        self.settings = {"bootstrap.servers": "nowhere:1"}

    def serve_errors(self):
        pass

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


class Slow(Consumer):
    """Answers a question that has `needs_s` seconds, and breaks one off early with `breaks_off_s`."""

    def __init__(self, clock, needs_s, breaks_off_s=None, code=KafkaError._TIMED_OUT):
        super().__init__("orders")
        self._clock, self._needs_s, self._breaks_off_s, self._code = clock, needs_s, breaks_off_s, code
        self.given: list[float] = []

    def list_topics(self, timeout):
        self.given.append(timeout)
        self.asked = 1
        if timeout >= self._needs_s:
            return super().list_topics(timeout)
        self._clock.sleep(timeout if self._breaks_off_s is None else self._breaks_off_s)
        raise KafkaException(KafkaError(self._code, "no answer"))


def test_an_answer_that_takes_long_is_given_more_time_with_each_question():
    clock = SimulatedClock()
    consumer: Any = Slow(clock, needs_s=3.0)
    require_topics(consumer, ["orders"], 10.0, clock)
    assert consumer.given == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT])
def test_a_silence_is_waited_out(code):
    clock = SimulatedClock()
    consumer: Any = Slow(clock, needs_s=60.0, code=code)
    with pytest.raises(ClusterUnavailableError, match="within 10 s"):
        require_topics(consumer, ["orders"], 10.0, clock)
    assert clock() == sum(consumer.given) == 10.0


def test_a_stop_ends_the_wait_for_a_cluster_to_which_there_is_no_connection():
    clock = SimulatedClock()
    consumer: Any = Slow(clock, needs_s=60.0, code=KafkaError._TRANSPORT)
    with pytest.raises(ClusterUnavailableError, match=r"within 7\.5 s"):
        require_topics(consumer, ["orders"], 60.0, clock, lambda: clock() > 7.2)
    assert clock() == 7.5


def test_an_error_that_comes_at_once_is_the_answer():
    clock = SimulatedClock()
    consumer: Any = Slow(clock, needs_s=60.0, breaks_off_s=0.1)
    with pytest.raises(ClusterUnavailableError):
        require_topics(consumer, ["orders"], 10.0, clock)
    assert consumer.given == [0.5]
