"""Which id and epoch a producer has is read from the statistics of the handle in use."""

import json

import pytest

from eos_client import EosProducer

THEIRS = json.dumps({"eos": {"producer_id": 1, "producer_epoch": 1}})


class Raw:
    """A handle whose every call succeeds."""

    def init_transactions(self, timeout):
        pass

    def poll(self, timeout):
        return 0

    def purge(self):
        pass

    def close(self):
        pass


@pytest.fixture
def seen():
    """The settings of each handle that was built."""
    return []


@pytest.fixture
def producer(seen):
    def factory(settings):
        seen.append(settings)
        return Raw()

    made = EosProducer(
        {"bootstrap.servers": "127.0.0.1:1", "statistics.interval.ms": 100},
        generate_id=True,
        factory=factory,
        hook=lambda event: None,
    )
    made.init_transactions()
    yield made
    made.close()


def test_a_producers_id_and_epoch_are_those_of_its_statistics(producer, seen):
    assert producer.adapter.library.identity is None
    seen[0]["stats_cb"](THEIRS)
    assert producer.adapter.library.identity == "1/1"


def test_late_statistics_of_a_handle_that_was_left_behind_are_not_taken_for_the_new_ones(producer, seen):
    producer.adapter.rebuild()
    seen[0]["stats_cb"](THEIRS)
    assert producer.adapter.library.identity is None
    seen[1]["stats_cb"](json.dumps({"eos": {"producer_id": 1, "producer_epoch": 2}}))
    assert producer.adapter.library.identity == "1/2"


def test_a_rebuilt_producer_has_forgotten_the_old_id_and_epoch(producer, seen):
    seen[0]["stats_cb"](THEIRS)
    producer.adapter.rebuild()
    assert producer.adapter.library.identity is None
