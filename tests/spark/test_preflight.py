"""What the sink checks of a cluster before its first batch, without a cluster."""

from typing import Any
from unittest.mock import Mock

import pytest

from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.errors import ClusterUnfitError
from eos_client.integration.spark import EosKafkaSink, preflight


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(preflight, "_SPREAD_WAIT_S", 0.0)
    made = Mock(spec=ClusterAdmin)
    made.cluster.return_value.brokers = {1: "localhost:9092"}
    made.broker_settings.return_value = {}
    made.topics.return_value = {"recepits": None}
    made.partition_counts.return_value = {"receipts": 4}
    return made


def test_no_producer_asks_for_a_topic_that_is_missing(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "SlotProducer", Mock(side_effect=AssertionError("the brokers may create the topic")))
    settings = EosKafkaSink("localhost:9092", "recepits", sink_id="s").settings
    with pytest.raises(ClusterUnfitError, match=r"output topic 'recepits' does not exist .* did you mean 'receipts'\?"):
        preflight.check_driver_and_cluster(settings, admin)


def test_a_topic_that_is_seen_late_is_not_missing(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_SPREAD_WAIT_S", 60.0)
    monkeypatch.setattr(preflight, "_ASK_AGAIN_S", 0.0)
    asked = Mock(side_effect=[{"recepits": None}, {"recepits": object()}])
    admin.topics = asked
    preflight._require_topic("recepits", admin)
    assert asked.call_count == 2
