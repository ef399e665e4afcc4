"""Statistics are heard beside the application's own callback, where the application has them made."""

from typing import Any

import pytest

from eos_client import EosConsumer, EosProducer
from eos_client.confluent.statistics import with_statistics_received
from eos_client.errors import ConfigurationError


def test_both_hear_them_we_first():
    told: list[Any] = []
    settings = {"statistics.interval.ms": 5, "stats_cb": told.append}
    with_statistics_received(settings, told.append)["stats_cb"]('{"a": 1}')
    assert told == [{"a": 1}, '{"a": 1}']


@pytest.mark.parametrize("settings", [{}, {"statistics.interval.ms": 0}, {"statistics.interval.ms": "0"}])
def test_without_an_interval_the_settings_stay_as_they_are(settings):
    assert with_statistics_received(settings, print) == settings


@pytest.mark.parametrize("client", [EosConsumer, EosProducer])
def test_a_callback_that_cannot_be_called_is_refused(client):
    settings = {"bootstrap.servers": "127.0.0.1:1", "statistics.interval.ms": 5, "stats_cb": "print"}
    names = {EosConsumer: {"group.id": "g"}, EosProducer: {"transactional.id": "t"}}[client]
    with pytest.raises((ConfigurationError, TypeError), match="stats_cb"):
        client({**settings, **names})
